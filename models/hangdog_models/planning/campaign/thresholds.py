"""The tunable thresholds of a campaign, with the reason of each default."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Probabilities unless a comment says otherwise. Raises ValueError for impossible values."""

    #: A campaign ends when only the convicted are faulty with this probability: the eviction target of a verdict.
    target: float = 0.95
    #: A site is convicted from this probability on. It is ten times surer than a campaign as a whole: a convicted
    #: machine leaves the job for days, and one more launch costs minutes.
    sure: float = 0.995
    #: It must also have taken part in so many failed launches: one may be a false alarm, whatever the prior.
    failures: int = 2
    #: And fewer than so many sound machines may be expected to fail as often by chance. The prior may be wrong that
    #: there is a fault at all, and of a thousand machines some fail twice by chance. A higher value saves a round for
    #: an unsuspected fault.
    innocent: float = 0.001
    #: If the best round is expected to gain fewer bits, the campaign ends: the same launches would be repeated for
    #: ever.
    worth: float = 0.002
    #: A mode is not repeated beyond this probability of seeing it: the rest costs less with other launches.
    seen: float = 0.99
    #: Links get groups of their own from this much suspicion on: less is noise of the prior.
    links_suspected: float = 0.05
    #: The largest set offered for eviction without further tests: ByteRobust over-evicts a pipeline of 8 machines.
    instead: int = 8

    def __post_init__(self) -> None:
        if not (0 < self.target < 1 and 0 < self.sure < 1 and 0 < self.seen < 1):
            raise ValueError("target, sure and seen are probabilities between 0 and 1")
        if self.failures < 1 or self.instead < 0:
            raise ValueError("nobody is convicted without a failure, and a set has no fewer than no machines")
        if self.innocent <= 0 or self.worth < 0 or not 0 <= self.links_suspected <= 1:
            raise ValueError("innocent is above 0, worth not below it, and links_suspected a probability")


USUAL = Thresholds()
