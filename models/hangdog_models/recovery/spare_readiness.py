"""What is done ahead for the spares of a job that trains: which is tested or warmed next, and which may be used at once; pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from hangdog_models.backoff import pause
from hangdog_models.recovery.recovery_history import Entry, SpareOutcome, SpareTested, SpareWarmed

#: For how long a pass counts. Llama 3 had 0.0038 incidents per machine and day. A machine that passed up to 12 h ago, 6 h on
#: average, has met one since with a probability of 0.1 %. Tests of three minutes twice a day take 0.4 % of its time. Seconds.
AGE_S = 43200.0
#: Share of the allowed age at which a pass is renewed: the next result is there before the pass is too old.
RENEW = 0.9
#: What did not succeed is tried again after the first pause, later ones double: an agent starts within a minute, and once
#: an hour costs a machine without a job nothing. Seconds.
FIRST_S, MOST_S = 60.0, 3600.0
#: Results without a pass, in a row, after which a person is told: by then a minute, two and four have passed.
TELL = 3


class SpareTask(StrEnum):
    """What may be done for a spare before it is needed."""

    TEST = "test"
    WARM = "warm"


@dataclass(frozen=True, slots=True)
class SparePolicy:
    """Tests by these `levels`, none if there are none; a pass counts for `age_s`. `warm` is the command that prepares a spare."""

    levels: tuple[int, ...] = ()
    age_s: float = AGE_S
    warm: str = ""


@dataclass(frozen=True, slots=True)
class SpareReadiness:
    """What is known of a spare. `passed_at`: its pass, unless a later result took that back.

    `tries` and `warm_tries`: results in a row without success; `tried_at` and `warm_at`: the last result."""

    passed_at: float | None = None
    outcome: SpareOutcome | None = None
    message: str = ""
    tries: int = 0
    tried_at: float = 0.0
    warmed: bool = False
    warm_tries: int = 0
    warm_at: float = 0.0


def readiness(history: Sequence[Entry], policy: SparePolicy) -> Mapping[str, SpareReadiness]:
    """What the history says of each spare, by its name. Tests by fewer levels do not count, nor does another command."""
    found: dict[str, SpareReadiness] = {}
    for entry in history:
        if isinstance(entry, SpareTested) and set(policy.levels) <= set(entry.levels):
            found[entry.machine] = _tested(found.get(entry.machine, SpareReadiness()), entry)
        elif isinstance(entry, SpareWarmed) and entry.command == policy.warm:
            before = found.get(entry.machine, SpareReadiness())
            tries = 0 if entry.ok else before.warm_tries + 1
            found[entry.machine] = replace(before, warmed=entry.ok, warm_tries=tries, warm_at=entry.at)
    return found


def _tested(before: SpareReadiness, entry: SpareTested) -> SpareReadiness:
    """A test that was not held says nothing about the machine: the pass before it still counts."""
    passed_at = before.passed_at if entry.outcome is SpareOutcome.UNANSWERED else None
    tries = before.tries + 1
    if entry.outcome is SpareOutcome.PASSED:
        passed_at, tries = entry.at, 0
    return replace(
        before, passed_at=passed_at, outcome=entry.outcome, message=entry.message, tries=tries, tried_at=entry.at
    )


def is_fresh(spare: SpareReadiness, policy: SparePolicy, now: float) -> bool:
    """Whether it passed lately enough to be used without another test; not by a date from the future, of a clock set back."""
    return bool(policy.levels) and spare.passed_at is not None and 0 <= now - spare.passed_at <= policy.age_s


def in_order_of_use(
    spares: Sequence[str], known: Mapping[str, SpareReadiness], policy: SparePolicy, now: float, testing: str
) -> tuple[str, ...]:
    """The spares, those first that make the job wait least: fresh passes, then the one whose test is running, failures last."""

    def rank(name: str) -> tuple[int, bool]:
        spare = known.get(name, SpareReadiness())
        if is_fresh(spare, policy, now):
            place = 0
        elif name == testing:
            place = 1
        else:
            place = 3 if spare.outcome is SpareOutcome.DOUBTFUL else 2
        return place, not spare.warmed

    return tuple(sorted(spares, key=rank))


def next_task(
    spares: Sequence[str], known: Mapping[str, SpareReadiness], policy: SparePolicy, now: float
) -> tuple[SpareTask, str] | None:
    """What to do next, and for which of these spares; tests first, as a spare that fails needs no warming."""
    for name in spares if policy.levels else ():
        if _test_is_due(known.get(name, SpareReadiness()), policy, now):
            return SpareTask.TEST, name
    for name in spares if policy.warm else ():
        spare = known.get(name, SpareReadiness())
        if not spare.warmed and _again(spare.warm_tries, spare.warm_at, now):
            return SpareTask.WARM, name
    return None


def _test_is_due(spare: SpareReadiness, policy: SparePolicy, now: float) -> bool:
    if spare.tries:
        return _again(spare.tries, spare.tried_at, now)
    return spare.passed_at is None or not 0 <= now - spare.passed_at < RENEW * policy.age_s


def _again(tries: int, at: float, now: float) -> bool:
    """Whether the pause after so many failures is over; a clock set back does not prolong it."""
    return not tries or not 0 <= now - at < pause(tries - 1, FIRST_S, MOST_S)


def tells_a_person(spare: SpareReadiness) -> bool:
    """Whether its last result is one that a person must know of: once for a conviction, once for a row without a pass."""
    return spare.outcome is SpareOutcome.CONVICTED or spare.tries == TELL
