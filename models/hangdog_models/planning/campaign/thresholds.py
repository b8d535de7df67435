"""What may be tuned in a campaign, with the reason of each default: how sure is sure, and what is worth another launch."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Probabilities unless a comment says otherwise. Raises ValueError for what makes no sense."""

    #: A campaign ends when nobody but the convicted is at fault, as probably as this: the eviction target of a verdict.
    target: float = 0.95
    #: A place is convicted from so probable on. Ten times surer than a campaign must be as a whole: whoever is convicted
    #: leaves the job for days, and one more launch costs minutes.
    sure: float = 0.995
    #: And only after so many failed launches that it took part in: one may be a false alarm, whatever was believed before.
    failures: int = 2
    #: And a machine only where less than this many sound ones would by chance alone have failed as often in as many launches:
    #: the prior may be wrong that there is a fault at all, and of a thousand machines some fail twice by chance. Higher,
    #: and a fault that nobody suspected takes a round less.
    innocent: float = 0.001
    #: Less than this many bits expected of the best round is nothing: the same launches would be repeated for ever.
    worth: float = 0.002
    #: A mode is not repeated beyond the probability of seeing it: what is left is bought dearer elsewhere.
    seen: float = 0.99
    #: Links are looked at in groups of their own when so much suspicion is on them: less is noise of the prior.
    links_suspected: float = 0.05
    #: The largest set offered for eviction without further tests: a pipeline of 8 machines is what ByteRobust over-evicts.
    instead: int = 8

    def __post_init__(self) -> None:
        if not (0 < self.target < 1 and 0 < self.sure < 1 and 0 < self.seen < 1):
            raise ValueError("target, sure and seen are probabilities between 0 and 1")
        if self.failures < 1 or self.instead < 0:
            raise ValueError("nobody is convicted without a failure, and a set has no fewer than no machines")
        if self.innocent <= 0 or self.worth < 0 or not 0 <= self.links_suspected <= 1:
            raise ValueError("innocent is above 0, worth not below it, and links_suspected a probability")


USUAL = Thresholds()
