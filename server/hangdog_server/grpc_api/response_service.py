"""What people do about an incident, as it is asked for over the wire: take it, note, resolve, reopen."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import sqlalchemy as sa

from hangdog_models.actions.respond import OF_MACHINES, ResponseDecision
from hangdog_models.errors import HangdogError, WrongUse
from hangdog_models.incident import Incident, ResponseKind, SettledCause
from hangdog_models.verdict import StallCause
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_server.actions import policy
from hangdog_server.auth.audit_log import AuditLog
from hangdog_server.auth.authorizer import Person
from hangdog_server.incidents import decode
from hangdog_server.incidents.incident_run import IncidentServices
from hangdog_server.store.history import responses
from hangdog_server.store.tables import storable

#: Machines that one incident may be laid to: as many as one hypothesis of a verdict may name to count for each.
MOST = 64
#: What is asked for, by the word that asks.
ASKED = {
    "ack": ResponseKind.ACKNOWLEDGED, "take-over": ResponseKind.ACKNOWLEDGED, "give-back": ResponseKind.GIVEN_BACK,
    "note": ResponseKind.NOTED, "resolve": ResponseKind.RESOLVED, "reopen": ResponseKind.REOPENED,
}  # fmt: skip
#: What is worth nothing without words.
_NEEDS_WORDS = {ResponseKind.NOTED: "write what you found", ResponseKind.REOPENED: "say why it is not over"}


@dataclass(frozen=True, slots=True)
class Asked:
    """What somebody asks for: `what` is a word of `ASKED`, `text` a note, or why.

    `shown`: how many decisions they were shown, None where that is not known. `key` is the same where the same comes twice.
    """

    what: str
    text: str = ""
    cause: str = ""
    machines: tuple[str, ...] = ()
    shown: int | None = None
    key: str = ""


class ResponseService:
    """Keeps what people do."""

    def __init__(self, services: IncidentServices, audit: AuditLog) -> None:
        self._services = services
        self._audit = audit

    async def respond(self, name: str, asked: Asked, person: Person) -> Incident:
        """Does it, recorded before and after; nothing is done to a machine that is in use. Raises HangdogError."""
        wanted, store = self._decision(asked, person), self._services.store
        incident = await store.find(name)
        settled = (wanted.settled.cause, *wanted.settled.machines) if wanted.settled is not None else ()
        words = " ".join((asked.what, *settled))
        entry = replace(person.audit_entry(words, incident.job, asked.text), incident=incident.id)
        await self._audit.note(replace(entry, outcome="asked"))

        def respond(connection: sa.Connection) -> bool:
            store.one_at_a_time(connection, policy.TURN)  # acts that are open may follow from it
            return responses.respond(connection, incident.id, wanted, asked.shown, storable(asked.key))

        try:
            done = await store.do(respond)
        except HangdogError as error:
            await self._audit.note(replace(entry, outcome=f"refused: {error}"))
            raise
        self._services.judged.set()  # what follows is done at once
        await self._audit.note(replace(entry, outcome=str(wanted.what) if done else "it was so already"))
        return await store.find(incident.id)

    def _decision(self, asked: Asked, person: Person) -> ResponseDecision:
        """What is wanted; raises WrongUse."""
        if asked.what not in ASKED:
            raise WrongUse(
                f"{asked.what[:40]!r} is not a response to an incident",
                f"give one of {', '.join(ASKED)}",
                code="unknown-choice",
            )
        for what, text in (("text", asked.text), ("key", asked.key)):
            if len(text) > decode.WHY:
                raise WrongUse(
                    f"a {what} of {len(text)} characters is too long",
                    f"give {decode.WHY} at most",
                    code="too-long",
                )
        kind, text, now = ASKED[asked.what], storable(asked.text.strip()), self._services.clock()
        if kind in _NEEDS_WORDS and not text:
            raise WrongUse("the text is empty", _NEEDS_WORDS[kind], code="text-missing")
        who, settled = storable(person.name), None
        if kind is ResponseKind.RESOLVED:
            settled = SettledCause(_cause(asked.cause), _machines(asked.cause, asked.machines), text, who, now)
        return ResponseDecision(kind, who, now, text, over=asked.what == "take-over", settled=settled)


def asked_of(request: pb.RespondRequest) -> Asked:
    """What a message asks for."""
    shown = request.shown if request.HasField("shown") else None
    return Asked(request.what, request.text, request.cause, tuple(request.machines), shown, request.key)


def _cause(stated: str) -> StallCause:
    try:
        return StallCause(stated)
    except ValueError:
        raise WrongUse(
            f"{stated[:40]!r} is no cause of an incident", ", ".join(StallCause), code="unknown-choice"
        ) from None


def _machines(cause: str, stated: Sequence[str]) -> tuple[str, ...]:
    """The machines that are named, each once; raises WrongUse."""
    if stated and cause not in OF_MACHINES:
        raise WrongUse(
            f"cause {cause} blames no machine",
            f"name machines only for {', '.join(OF_MACHINES)}",
            code="conflicting-options",
        )
    if len(stated) > MOST:
        raise WrongUse(
            f"{len(stated)} machines for one incident; {MOST} at most",
            "name those that were at fault",
            code="too-many",
        )
    return tuple(dict.fromkeys(decode.name(machine, "machine") for machine in stated))
