"""What can be run on the machines of a stopped job: its cost, its errors, and its outcome."""

from dataclasses import dataclass, replace
from enum import StrEnum
from math import inf

from hangdog_models.planning.campaign.fault import FailureMode

#: The least error rate of any diagnostic: a posterior of exactly 0 or 1 could never be corrected.
UNERRING = 1e-6

#: A diagnostic is given up on a machine after so many launches without an answer that only this machine explains. Once
#: is a mishap.
GIVEN_UP = 2


class LaunchResult(StrEnum):
    """How a launch ended. A launch that could not run, or did not answer in time, is inconclusive, never a failure."""

    PASS = "pass"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """A kind of test. A launch of it runs on `least` to `most` machines, a whole `multiple` of them.

    - `seconds`: the time of one repetition; `setup_s` is added once a launch.
    - `price`: the cost of a launch beside its time, in seconds that the whole job waits; 0 if only time counts.
    - `miss`: the probability that a launch passes although a fault showed.
    - `false_alarm`: the probability that it fails without a fault, whatever its repetitions.
    - `network`: machines communicate in it. Only then links and switches are tested.
    - `blind`: failure modes that it never shows.
    """

    name: str
    seconds: float
    setup_s: float = 0.0
    price: float = 0.0
    miss: float = 0.05
    false_alarm: float = 0.02
    least: int = 1
    most: int = 1
    multiple: int = 1
    network: bool = False
    blind: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.seconds <= 0 or self.setup_s < 0 or self.price < 0:
            raise ValueError(f"{self.name}: a repetition takes time, and nothing costs less than nothing")
        if not (0 <= self.miss < 1 and 0 <= self.false_alarm < 1):
            raise ValueError(f"{self.name}: miss and false_alarm are probabilities below 1")
        if (
            not 1 <= self.least <= self.most
            or self.multiple < 1
            or self.most // self.multiple * self.multiple < self.least
        ):
            raise ValueError(
                f"{self.name}: no group has {self.least} to {self.most} machines, a multiple of {self.multiple}"
            )

    def takes_s(self, repetitions: int) -> float:
        """The time of a launch, in seconds."""
        return self.setup_s + repetitions * self.seconds

    def shows(self, mode: FailureMode, repetitions: int) -> float:
        """The probability that a launch fails because of a fault of this mode in its group."""
        if mode.name in self.blind:
            return 0.0
        return min((1 - self.miss) * mode.seen_in(repetitions), 1 - UNERRING)

    @property
    def alarm(self) -> float:
        """The false-alarm rate used in computations: at least UNERRING."""
        return max(self.false_alarm, UNERRING)


@dataclass(frozen=True, slots=True)
class Launch:
    """One run of a diagnostic on a group of machines."""

    diagnostic: Diagnostic
    machines: tuple[str, ...]
    repetitions: int = 1

    @property
    def seconds(self) -> float:
        return self.diagnostic.takes_s(self.repetitions)


@dataclass(frozen=True, slots=True)
class LaunchOutcome:
    """How one launch ended; `reason` is for people, above all if it was inconclusive."""

    launch: Launch
    result: LaunchResult
    reason: str = ""


@dataclass(frozen=True, slots=True)
class CampaignRound:
    """Launches on disjoint groups, to be run at once; `bits` is their expected information."""

    launches: tuple[Launch, ...]
    bits: float
    reason: str

    @property
    def seconds(self) -> float:
        return max(launch.seconds for launch in self.launches)


@dataclass(frozen=True, slots=True)
class LaunchBudget:
    """What a campaign may still spend: seconds, launches, rounds, and how many launches may run at once."""

    seconds: float = inf
    launches: int = 1_000_000
    rounds: int = 1_000
    parallel: int = 1_000_000

    def after(self, spent: CampaignRound) -> "LaunchBudget":
        """What is left after this round."""
        return replace(
            self,
            seconds=self.seconds - spent.seconds,
            launches=self.launches - len(spent.launches),
            rounds=self.rounds - 1,
        )
