"""Run-hours made of recordings: seconds of training and of phases in an order drawn by chance, phases stretched to minutes."""

import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from healthy.recording import Process, Recording

TRAINING = "training"
#: Between two phases a job trains for so long, drawn evenly. Seconds.
TRAINS_S = (60.0, 360.0)
#: A phase of a job usually lasts so long at least, drawn evenly by order of magnitude (seconds), and each time so many times
#: that. The longest is told: PyTorch's own watchdog ends a job whose ranks wait for ten minutes.
SHORTEST_S, LONGEST_S, VARIES = 20.0, 200.0, (0.7, 1.5)
#: After the begin of a phase others are still on their way to where they wait, so that this part is not repeated. Seconds.
SETTLED_S = 4


@dataclass(frozen=True, slots=True)
class Second:
    """One second of a recording: that which ends with beat number `beat`. `phase` is what the job does in it."""

    recording: "Playable"
    beat: int
    phase: str


class Playable:
    """A recording that is ready to be played."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.name = recording.phase
        self.doers = recording.doers
        self.trainers = recording.trainers()
        self.count = min(len(recording.runnable), *(len(beats) for beats in recording.beats.values()))
        self._nearest: dict[int, list[int]] = {}
        self._helpers_io: dict[int, list[int]] = {}

    @cached_property
    def repeated(self) -> tuple[int, int]:
        """The first and the last beat of the part that is repeated: the middle of the phase."""
        first = next(
            (at for at in range(1, self.count) if self._at(at - 1) >= self.recording.begins + SETTLED_S), self.count - 2
        )
        last = max((at for at in range(self.count) if self._at(at) <= self.recording.ends), default=self.count - 1)
        return (first, last) if self.name != TRAINING else (2, self.count - 1)

    def look(self, rank: int, beat: int) -> int:
        """The number of the look at a rank's trainer that was taken nearest to a beat."""
        if rank not in self._nearest:
            self._nearest[rank] = list(nearest(self.trainers[rank], [one.at for one in self.recording.beats[rank]]))
        return self._nearest[rank][beat]

    def helpers_io(self, rank: int, beat: int) -> int:
        """Bytes that the workers of a rank's data loader moved in the second before a beat.

        They were looked at every few seconds: what they moved in between is spread evenly.
        """
        if rank not in self._helpers_io:
            workers = [
                one for one in self.recording.processes if one.rank == rank and one.role.startswith("dataloader")
            ]
            beats = self.recording.beats[rank]
            self._helpers_io[rank] = [
                0,
                *(sum(map(int, self._moved(workers, at))) for at in pairwise(b.at for b in beats)),
            ]
        return self._helpers_io[rank][beat]

    def _moved(self, workers: Iterable[Process], between: tuple[float, float]) -> Iterator[float]:
        began, ended = between
        for worker in workers:
            for before, after in pairwise(worker.looks):
                shared = min(ended, after.at) - max(began, before.at)
                if shared > 0 and before.io is not None and after.io is not None:
                    yield (after.io - before.io) * shared / (after.at - before.at)

    def played(self, lasts_s: float) -> Iterator[Second]:
        """The training before it, the phase for so long, and what was recorded after it."""
        first, last = self.repeated
        for beat in range(1, first):
            yield Second(self, beat, self.name if self._at(beat) > self.recording.begins else TRAINING)
        for second in range(int(lasts_s)):
            yield Second(self, first + second % (last - first + 1), self.name)
        for beat in range(last + 1, self.count):
            yield Second(self, beat, self.name if self._at(beat) <= self.recording.ends else TRAINING)

    def _at(self, beat: int) -> float:
        return self.recording.beats[0][beat].at


def nearest(process: Process, moments: list[float]) -> Iterator[int]:
    """For each moment, ascending, the number of the look that was taken nearest to it."""
    at, looks = 0, process.looks
    for moment in moments:
        while at + 1 < len(looks) and abs(looks[at + 1].at - moment) <= abs(looks[at].at - moment):
            at += 1
        yield at


def habits(playable: Mapping[str, Playable], chance: random.Random, longest_s: float = LONGEST_S) -> dict[str, float]:
    """How long each phase of one job usually lasts: an evaluation is about as long as the one before."""
    most = longest_s / SHORTEST_S
    return {name: SHORTEST_S * most ** chance.random() for name in playable if name != TRAINING}


def life(playable: Mapping[str, Playable], usual: Mapping[str, float], chance: random.Random) -> Iterator[Second]:
    """One run of a job, from a start to its restart: training and every phase once, in an order drawn by chance."""
    phases = list(usual)
    chance.shuffle(phases)
    yield from trained(playable[TRAINING], chance.uniform(*TRAINS_S))
    for phase in phases:
        yield from playable[phase].played(usual[phase] * chance.uniform(*VARIES))
        yield from trained(playable[TRAINING], chance.uniform(*TRAINS_S))


def trained(training: Playable, lasts_s: float) -> Iterator[Second]:
    """Training for so long."""
    first, last = training.repeated
    for second in range(int(lasts_s)):
        yield Second(training, first + second % (last - first + 1), TRAINING)
