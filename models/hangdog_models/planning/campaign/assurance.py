"""What passes prove: the probability that a fault of each mode would have shown by now, for each machine. Never
"healthy".
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from hangdog_models.counts import counted
from hangdog_models.planning.campaign.belief import Belief
from hangdog_models.planning.campaign.fault import FailureMode
from hangdog_models.planning.campaign.launch import Diagnostic, Launch, LaunchResult

#: The most repetitions considered for a mode: at a minute each they take a week.
ENDLESS = 10_000


@dataclass(frozen=True, slots=True)
class Assurance:
    """What one diagnostic proves for one machine.

    `detection`: the probability that a fault of each mode would have shown.
    """

    machine: str
    diagnostic: str
    launches: int
    repetitions: int
    detection: Mapping[str, float]

    def __str__(self) -> str:
        shown = ", ".join(f"{mode} {probability:.3f}" for mode, probability in self.detection.items())
        times = counted(self.repetitions, "repetition")
        return f"{self.machine}: not convicted by {self.diagnostic}, {times}; would have shown: {shown}"


def bought(belief: Belief) -> tuple[Assurance, ...]:
    """The assurance of each machine and diagnostic, in the belief's order, from launches that passed."""
    passed: dict[tuple[str, str], list[Launch]] = defaultdict(list)
    for outcome in belief.evidence:
        if outcome.result is LaunchResult.PASS:
            for machine in outcome.launch.machines:
                passed[machine, outcome.launch.diagnostic.name].append(outcome.launch)
    return tuple(
        Assurance(
            machine,
            name,
            len(launches),
            sum(launch.repetitions for launch in launches),
            {mode.name: _shown(mode, launches) for mode in belief.modes},
        )
        for machine, name in sorted(passed, key=lambda key: (belief.number[key[0]], key[1]))
        for launches in (passed[machine, name],)
    )


def needed(modes: Sequence[FailureMode], diagnostic: Diagnostic, coverage: float, launches: int = 2) -> int | None:
    """The repetitions with which every mode shows in all of so many launches with probability `coverage`.

    Two launches convict. None if no number of repetitions is enough: the diagnostic is blind to a mode, or misses too
    much.
    """

    def suffices(repetitions: int) -> bool:
        return all(diagnostic.shows(mode, repetitions) ** launches >= coverage for mode in modes)

    if not suffices(ENDLESS):
        return None
    low, high = 1, ENDLESS
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if suffices(middle) else (middle + 1, high)
    return low


def _shown(mode: FailureMode, launches: Sequence[Launch]) -> float:
    return 1 - prod(1 - launch.diagnostic.shows(mode, launch.repetitions) for launch in launches)
