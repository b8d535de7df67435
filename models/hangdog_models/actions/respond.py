"""What people may do about an incident as it stands, and what that leaves: once, and never over somebody else's head."""

from dataclasses import dataclass, replace

from hangdog_models.errors import WrongUse
from hangdog_models.incident import IncidentResponse, ResponseKind, ResponseState, SettledCause
from hangdog_models.verdict import StallCause

#: Causes that lie in machines; of the others none may be named.
OF_MACHINES = (StallCause.MACHINE, StallCause.GROUP, StallCause.SLOW)
#: Causes by which no machine of the job was at fault.
ELSEWHERE = (StallCause.SOFTWARE, StallCause.DEPENDENCY, StallCause.HEALTHY)


class DecidedSince(WrongUse):
    """Somebody else decided: nothing is done."""


@dataclass(frozen=True, slots=True)
class ResponseDecision:
    """What `who` wants at `at` (Unix seconds): `text` is a note, or why; `over`: also where somebody else has the incident.

    `settled` is what it turned out to be, where it is resolved.
    """

    what: ResponseKind
    who: str
    at: float
    text: str = ""
    over: bool = False
    settled: SettledCause | None = None


def decide(
    before: IncidentResponse, settled: SettledCause | None, wanted: ResponseDecision, shown: int | None = None
) -> IncidentResponse | None:
    """What stands then; None where it stands so already, by the same person. Raises DecidedSince.

    `settled` is what people said before. `shown`: how many decisions they were shown, where that is known.
    """
    after = _RULES[wanted.what](before, settled, wanted)
    if after is None:
        return None
    if shown is not None and shown != before.decisions and wanted.what is not ResponseKind.NOTED:
        raise DecidedSince(
            f"nothing was done: it was decided upon since you were shown it ({before or 'given back'})",
            "look again, and decide",
            code="changed-meanwhile",
        )
    after = replace(after, entries=before.entries + 1)
    if wanted.what is ResponseKind.NOTED:
        return after
    return replace(after, decisions=before.decisions + 1, changed=wanted.at)


def clears(response: IncidentResponse, settled: SettledCause | None, machine: str) -> bool:
    """Whether people say that this machine was not at fault."""
    if response.state == ResponseState.DISMISSED:
        return True
    if settled is None:
        return False
    return machine not in settled.machines if settled.machines else settled.cause in ELSEWHERE


def _acknowledged(
    before: IncidentResponse, settled: SettledCause | None, wanted: ResponseDecision
) -> IncidentResponse | None:
    _require_open(before)
    if before.acknowledged_by == wanted.who:
        return None
    if before.acknowledged_by and not wanted.over:
        raise DecidedSince(
            f"{before.acknowledged_by} has it", "take it over where that is meant: --take-over", code="taken-by-another"
        )
    return replace(before, acknowledged_by=wanted.who, acknowledged_at=wanted.at)


def _given_back(
    before: IncidentResponse, settled: SettledCause | None, wanted: ResponseDecision
) -> IncidentResponse | None:
    if before.acknowledged_by not in ("", wanted.who):
        raise DecidedSince(
            f"{before.acknowledged_by} has it, not {wanted.who}", "who has it gives it back", code="taken-by-another"
        )
    return replace(before, acknowledged_by="", acknowledged_at=0.0) if before.acknowledged_by else None


def _noted(before: IncidentResponse, settled: SettledCause | None, wanted: ResponseDecision) -> IncidentResponse | None:
    return before


def _resolved(
    before: IncidentResponse, settled: SettledCause | None, wanted: ResponseDecision
) -> IncidentResponse | None:
    if before.state == ResponseState.RESOLVED:
        if before.who != wanted.who:
            raise _decided(before)
        if (before.reason, _cause(settled)) == (wanted.text, _cause(wanted.settled)):
            return None
    return _closed(before, ResponseState.RESOLVED, wanted)


def _dismissed(
    before: IncidentResponse, settled: SettledCause | None, wanted: ResponseDecision
) -> IncidentResponse | None:
    if before.closed:
        if (before.state, before.who) == (ResponseState.DISMISSED, wanted.who):
            return None
        raise _decided(before)
    return _closed(before, ResponseState.DISMISSED, wanted)


def _reopened(
    before: IncidentResponse, settled: SettledCause | None, wanted: ResponseDecision
) -> IncidentResponse | None:
    if not before.closed:
        if before.who == wanted.who:
            return None
        by = f", reopened by {before.who}" if before.who else ""
        raise DecidedSince(f"it is open{by}", "nothing was done", code="already-open")
    opened = _closed(before, ResponseState.OPEN, wanted)
    return replace(opened, acknowledged_by="", acknowledged_at=0.0)


def _closed(before: IncidentResponse, state: ResponseState, wanted: ResponseDecision) -> IncidentResponse:
    return replace(before, state=state, who=wanted.who, at=wanted.at, reason=wanted.text)


def _require_open(before: IncidentResponse) -> None:
    if before.closed:
        raise _decided(before)


def _decided(before: IncidentResponse) -> DecidedSince:
    why = f": {before.reason}" if before.reason else ""
    return DecidedSince(
        f"it is {before}{why}", "reopen it first where that is wrong: hangdog reopen", code="already-closed"
    )


def _cause(settled: SettledCause | None) -> tuple[str, tuple[str, ...]]:
    return (settled.cause, settled.machines) if settled is not None else (str(StallCause.UNKNOWN), ())


_RULES = {
    ResponseKind.ACKNOWLEDGED: _acknowledged,
    ResponseKind.GIVEN_BACK: _given_back,
    ResponseKind.NOTED: _noted,
    ResponseKind.RESOLVED: _resolved,
    ResponseKind.DISMISSED: _dismissed,
    ResponseKind.REOPENED: _reopened,
}
