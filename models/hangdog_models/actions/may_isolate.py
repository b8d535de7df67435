"""Decides whether the machines of a verdict may be taken: all of them, or none, and each reason against it in words."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from hangdog_models.actions.action_history import ActionHistory, Body, PastAction, WantedAction
from hangdog_models.actions.caps import Caps
from hangdog_models.counts import counted

#: What `per_hour`, `per_job` and `per_user` are counted over, and the breaker's window (NVSentinel: five minutes). Seconds.
HOUR_S, DAY_S, BREAKER_S = 3600.0, 86400.0, 300.0
#: Clocks of two servers, or one that is being set: evidence may be so far in the future. Seconds.
AHEAD_S = 5.0
#: Fewer machines than this never trip the breaker: half of a small cluster is one verdict.
FEW = 3


class Bound(StrEnum):
    """What forbids it."""

    EMPTY = "no machine"
    TWICE = "once only"
    BREAKER = "breaker"
    STALE = "old evidence"
    BODY = "another machine"
    HOUR = "per hour"
    JOB = "per job"
    USER = "per user"
    CONFLICT = "conflict"
    DOMAIN = "fault domain"
    SHARE = "share"
    SPARES = "spares"
    AGAIN = "taken lately"


@dataclass(frozen=True, slots=True)
class IsolationRefusal:
    """One reason against taking the machines of a verdict."""

    bound: Bound
    message: str


@dataclass(frozen=True, slots=True)
class Decision:
    """The machines to take, none where there are `refusals`."""

    machines: tuple[str, ...]
    refusals: tuple[IsolationRefusal, ...] = ()

    @property
    def words(self) -> str:
        """Every reason, in one sentence."""
        return "; ".join(refusal.message for refusal in self.refusals)


def decide(
    wanted: WantedAction, known: ActionHistory, past: Sequence[PastAction], caps: Caps, now: float, tripped: str = ""
) -> Decision:
    """Whether the machines of a verdict may be taken at `now` (Unix seconds), after `past`, in whatever order that is.

    Part of a set is never taken: what is left of it may hold the fault, and the job would come back to it. `tripped` is why
    the breaker is open, empty while it is closed. People who approve are bound by this as hangdog itself is.
    """
    refusals = tuple(_against(wanted, known, [one for one in past if one.took], caps, now, tripped))
    return Decision(() if refusals else tuple(dict.fromkeys(wanted.machines)), refusals)


def tripping(past: Sequence[PastAction], known: ActionHistory, caps: Caps, since: float, now: float) -> str:
    """Why the breaker is to open, by what was asked and done after `since`, when a person closed it last; else empty."""
    lately = {one.machine for one in past if one.at > max(since, now - BREAKER_S)}
    if len(lately) >= FEW and len(lately) > caps.breaker_share * known.machines:
        return (
            f"verdicts asked for {len(lately)} of {known.machines} machines within {BREAKER_S / 60:.0f} minutes: "
            "so many do not fail at once, look for what they share"
        )
    ended = sorted((one for one in past if one.at > since and one.took and (one.failed or one.settled)), key=_when)
    last = ended[-caps.breaker_failures :] if caps.breaker_failures else []
    if last and len(last) == caps.breaker_failures and all(one.failed for one in last):
        return f"the last {counted(len(last), 'act')} failed: see hangdog actions for why"
    return ""


def allowed_out(caps: Caps, machines: int) -> int:
    """Machines that may be out at once, of so many."""
    return max(1, int(caps.share * machines)) if caps.share else 0


def _against(
    wanted: WantedAction, known: ActionHistory, took: list[PastAction], caps: Caps, now: float, tripped: str
) -> Iterator[IsolationRefusal]:
    machines = tuple(dict.fromkeys(wanted.machines))
    if not machines:
        yield IsolationRefusal(Bound.EMPTY, "the verdict names no machine to evict")
        return
    if tripped:
        yield IsolationRefusal(
            Bound.BREAKER, f"the breaker is open ({tripped}); hangdog actions --close-breaker closes it"
        )
    before = {one.machine for one in took if one.incident == wanted.incident}
    if twice := [machine for machine in machines if machine in before]:
        yield IsolationRefusal(Bound.TWICE, f"{_named(twice)} was taken for this incident before")
    for conflict in wanted.conflicts:
        yield IsolationRefusal(Bound.CONFLICT, f"whose ranks these are is not clear: {conflict}")
    yield from _evidence(wanted, machines, known, caps, now)
    yield from _rates(wanted, machines, took, caps, now)
    yield from _already_out(machines, known, took, caps)


def _evidence(
    wanted: WantedAction, machines: Sequence[str], known: ActionHistory, caps: Caps, now: float
) -> Iterator[IsolationRefusal]:
    age = now - wanted.evidence_at
    if not -AHEAD_S <= age <= caps.evidence_s:  # a time that is no number is refused, too
        reported = f"{age:.0f} s old, and is believed for {caps.evidence_s:.0f} s" if age > 0 else "of the future"
        yield IsolationRefusal(Bound.STALE, f"the evidence is {reported}: capture again")
    for machine in machines:
        seen, now_there = wanted.bodies.get(machine, Body()), known.bodies.get(machine)
        if not seen.boot:
            yield IsolationRefusal(
                Bound.BODY, f"it is not known which start of {machine} the evidence is of: is its agent an older one?"
            )
        elif now_there is not None and now_there.boot != seen.boot:
            yield IsolationRefusal(Bound.BODY, f"{machine} was started anew since the evidence")
        elif now_there is not None and now_there.serial != seen.serial:
            yield IsolationRefusal(Bound.BODY, f"{machine} is other hardware now ({now_there.serial or 'no serial'})")


def _rates(
    wanted: WantedAction, machines: Sequence[str], took: list[PastAction], caps: Caps, now: float
) -> Iterator[IsolationRefusal]:
    hour = sum(now - one.at < HOUR_S for one in took)
    if hour + len(machines) > caps.per_hour:
        yield IsolationRefusal(
            Bound.HOUR, f"{_counted(hour, len(machines))} within an hour, {_allowed(caps.per_hour)} (per_hour)"
        )
    day = sum(now - one.at < DAY_S for one in took if one.job == wanted.job)
    if day + len(machines) > caps.per_job:
        what = f"{_counted(day, len(machines))} of job {wanted.job} within a day"
        yield IsolationRefusal(Bound.JOB, f"{what}, {_allowed(caps.per_job)} (per_job)")
    theirs = sum(now - one.at < DAY_S for one in took if wanted.user and one.user == wanted.user)
    if wanted.user and theirs + len(machines) > caps.per_user:
        what = f"{_counted(theirs, len(machines))} for jobs of user {wanted.user} within a day"
        yield IsolationRefusal(Bound.USER, f"{what}, {_allowed(caps.per_user)} (per_user)")
    held = [one for one in took if one.out or not one.failed]  # what failed and left no mark took nothing away
    again = {one.machine for one in held if one.incident != wanted.incident and now - one.at < caps.again_s}
    if lately := [machine for machine in machines if machine in again]:
        days = caps.again_s / DAY_S
        reported = f"{_named(lately)} was taken within {days:g} {'day' if days == 1 else 'days'} before (again_s)"
        yield IsolationRefusal(Bound.AGAIN, f"{reported}: look at it by hand")


def _already_out(
    machines: Sequence[str], known: ActionHistory, took: list[PastAction], caps: Caps
) -> Iterator[IsolationRefusal]:
    out = {one.machine: one.domain for one in took if one.out}
    after = out | {machine: known.domains.get(machine, "") for machine in machines}
    most = allowed_out(caps, known.machines)
    if len(after) > most:
        what = f"{len(after)} of {known.machines} machines would be out at once"
        yield IsolationRefusal(Bound.SHARE, f"{what}, {_allowed(most)} (share = {caps.share:g})")
    crowded = Counter(domain for domain in after.values() if domain)
    touched = {known.domains.get(machine, "") for machine in machines}
    for domain in sorted(name for name in touched if crowded[name] > caps.per_domain):
        what = f"{counted(crowded[domain], 'machine')} of {domain} would be out at once"
        yield IsolationRefusal(
            Bound.DOMAIN, f"{what}, {_allowed(caps.per_domain)} (per_domain): look at what they share"
        )
    left = known.free - sum(not one.settled for one in took if one.out) - len(machines)
    if left < caps.spares:
        free, needed = max(0, known.free - sum(not one.settled for one in took if one.out)), len(machines) + caps.spares
        lately = " that passed a test lately (tested_s)" if caps.tested_s else ""
        spare = counted(free, "spare machine") if free else "no spare machine"
        what = f"{spare}{lately} {'is' if free <= 1 else 'are'} free"
        kept = f", {caps.spares} of them to be left (spares)" if caps.spares else ""
        yield IsolationRefusal(Bound.SPARES, f"{what} ({needed} needed{kept}), so the job could not restart")


def _counted(before: int, more: int) -> str:
    if not before:
        return counted(more, "machine")
    return f"{counted(before, 'machine')} {'was' if before == 1 else 'were'} taken, and {more} more would be"


def _allowed(number: float) -> str:
    return f"{number} is allowed" if number == 1 else f"{number} are allowed"


def _named(machines: Iterable[str]) -> str:
    return ", ".join(machines)


def _when(one: PastAction) -> float:
    return one.at
