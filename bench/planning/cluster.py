"""A pretend cluster: machines, links and leafs that fail as they should, diagnostics that miss and cry wolf as often as they say."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from hangdog_models.planning.campaign.launch import Diagnostic, Launch, LaunchOutcome, LaunchResult


@dataclass
class Cluster:
    """Faults by where they are, each with the probability that one repetition shows it; and what its use has cost so far.

    `links` are faults between two machines, `leafs` those of a switch by the machines under it.
    """

    seed: int
    machines: Mapping[str, float]
    links: Mapping[frozenset[str], float] = field(default_factory=dict)
    leafs: Mapping[frozenset[str], float] = field(default_factory=dict)
    launches: int = 0
    rounds: int = 0
    seconds: float = 0.0

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)

    def run(self, launches: list[Launch]) -> list[LaunchOutcome]:
        """The outcomes of launches that run at once."""
        self.rounds += 1
        self.launches += len(launches)
        self.seconds += max(launch.seconds for launch in launches)
        return [LaunchOutcome(launch, self._result(launch)) for launch in launches]

    def fails(self, diagnostic: Diagnostic, groups: list[list[str]], repetitions: int = 1) -> list[bool]:
        """Whether each of these groups fails, run at once."""
        outcomes = self.run([Launch(diagnostic, tuple(group), repetitions) for group in groups])
        return [outcome.result is LaunchResult.FAIL for outcome in outcomes]

    def _result(self, launch: Launch) -> LaunchResult:
        group, diagnostic = set(launch.machines), launch.diagnostic
        faults = [shows for name, shows in self.machines.items() if name in group]
        if diagnostic.network and len(group) > 1:
            faults += [shows for ends, shows in self.links.items() if ends <= group]
            faults += [shows for under, shows in self.leafs.items() if under & group]
        seen = [self.rng.random() < (1 - diagnostic.miss) * (1 - (1 - shows) ** launch.repetitions) for shows in faults]
        alarm = self.rng.random() < diagnostic.false_alarm
        return LaunchResult.FAIL if alarm or any(seen) else LaunchResult.PASS
