"""Whether machines were named rightly: known where people settled it, a campaign tested them, or a person said no."""

from collections import Counter
from collections.abc import Iterable, Mapping

from hangdog_models.incident import SettledCause
from hangdog_models.operations.past_events import Came, MachineTestRecord, Naming
from hangdog_models.verdict import StallCause

#: A campaign that was not asked for the incident itself speaks of a naming if it began so soon afterwards: in a day a
#: machine is repaired or replaced (ByteRobust's time to replenish), and then tests say nothing of what it was. Seconds.
SOON_S = 86400.0
#: The answers, in the order in which the first that holds is taken: who settles an incident knows what tests showed, and these
#: weigh more than a dismissal, which comes before anything is known.
GUILTY = "right: settled by people"
INNOCENT = "wrong: settled by people"
CONVICTED = "right: convicted by tests"
PASSED = "wrong: passed its tests"
DISMISSED = "wrong: dismissed with a reason"
UNKNOWN = "unknown"
#: Answers by which a machine was guilty, and by which it was innocent.
RIGHT, WRONG = (GUILTY, CONVICTED), (INNOCENT, PASSED)
#: Causes that lie in no machine of the job.
_ELSEWHERE = (StallCause.SOFTWARE, StallCause.DEPENDENCY, StallCause.HEALTHY)
#: What came of those that were named rightly or not, as the tally tells it.
_WHERE = {Came.TAKEN: "taken", Came.GIVEN_UP: "not taken", Came.DISMISSED: "not taken", Came.LEFT: "not taken"}


def judged(naming: Naming, trials: Iterable[MachineTestRecord], settled: SettledCause | None = None) -> str:
    """What became known of one naming, by all trials of its machine.

    Passed means that a campaign did run tests on the machine, every one was passed, and it was not convicted: a fault that
    comes and goes may pass, so this counts rather too much against hangdog.
    """
    if settled is not None and (settled.machines or settled.cause in _ELSEWHERE):
        return GUILTY if naming.machine in settled.machines else INNOCENT
    mine = [one for one in trials if one.machine == naming.machine and _speaks(one, naming)]
    if any(one.convicted for one in mine):
        return CONVICTED
    if any(one.passed and not one.others for one in mine):
        return PASSED
    if naming.came is Came.DISMISSED and naming.reason:
        return DISMISSED
    return UNKNOWN


def rightness(
    namings: Iterable[Naming], trials: Iterable[MachineTestRecord], settled: Mapping[str, SettledCause]
) -> dict[str, int]:
    """Counts of each answer, for machines that were taken and for those that were only named, in order.

    What people `settled`, by incident, is left out where it speaks of none.
    """
    of: dict[str, list[MachineTestRecord]] = {}
    for trial in trials:
        of.setdefault(trial.machine, []).append(trial)
    found = Counter(
        (_WHERE[one.came], judged(one, of.get(one.machine, ()), settled.get(one.incident))) for one in namings
    )
    answers = (CONVICTED, PASSED, DISMISSED, UNKNOWN)
    wanted = [("taken", answer) for answer in (CONVICTED, PASSED, UNKNOWN)] + [("not taken", one) for one in answers]
    spoken = [(where, one) for where in ("taken", "not taken") for one in (GUILTY, INNOCENT) if found[where, one]]
    return {f"{where}, {answer}": found[where, answer] for where, answer in (*spoken, *wanted)}


def taken(rightness: Mapping[str, int]) -> Mapping[str, int]:
    """The counts of each answer for machines that were taken."""
    return {name.removeprefix("taken, "): count for name, count in rightness.items() if name.startswith("taken, ")}


def what_came(namings: Iterable[Naming]) -> Mapping[str, int]:
    """How many namings came to what."""
    found = Counter(one.came for one in namings)
    return {str(came): found[came] for came in Came}


def _speaks(trial: MachineTestRecord, naming: Naming) -> bool:
    if trial.incident:
        return trial.incident == naming.incident
    return 0 <= trial.began - naming.at <= SOON_S
