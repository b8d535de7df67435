"""The other worlds that are there, each judged by the shipped table beside ByteRobust's aggregation.

Which numbers would be fitted without a world is another question, which bench/fit answers.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from accuracy.figures import mean
from fit.judged import by_peer, judge
from hangdog_models.rules.likelihoods import packaged
from worlds.case import Case, of_folder, recorded

#: Recorded gloo jobs and public incidents, which lie beside the repository where somebody has put them there.
CORPUS = Path(__file__).resolve().parents[3] / "shared" / "corpus"
TITLE = "other worlds, by the shipped table (by one that is fitted without each: bench/fit)"
HEADS = [
    "world", "cases", "right", "first suspect", "evicts an innocent", "gap", "said >= 0.99 and true",
    "P right", "P evicts an innocent",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class World:
    """How a world is judged; shares run from 0 to 1, None where nobody is to be found. `innocent` counts the cases in which
    somebody is evicted who is not to be. `gap`: how far the probability of who is named lies from how often it is that one.

    `sure`: of all that is named with 0.99 or more, how many are guilty, and how many there are.
    """

    name: str
    cases: int
    right: float
    first: float | None
    innocent: int
    gap: float
    sure: tuple[float, int]
    peer_right: float
    peer_innocent: int

    def cells(self) -> list[str]:
        true, sure = self.sure
        return [
            self.name,
            str(self.cases),
            f"{self.right:.1%}",
            "-" if self.first is None else f"{self.first:.1%}",
            str(self.innocent),
            f"{self.gap:.3f}",
            f"{true:.0f} of {sure}",
            f"{self.peer_right:.1%}",
            str(self.peer_innocent),
        ]


def judged(folders: Sequence[tuple[str, Path]]) -> Iterator[World]:
    """Each world that is there and has cases: the recordings, the corpus, and the folders given, those of one name together."""
    known = [("corpus", CORPUS)] if CORPUS.is_dir() else []
    of: dict[str, list[Case]] = {"frameworks": list(recorded())}
    for name, folder in (*known, *folders):
        of.setdefault(name, []).extend(of_folder(folder, name))
    return (_world(name, cases) for name, cases in of.items() if cases)


def _world(name: str, cases: Sequence[Case]) -> World:
    found = judge(cases, packaged())
    right, innocent = by_peer(cases)
    said = found.calibrations["who"]
    return World(
        name,
        len(cases),
        sum(one.right for one in found.results) / len(cases),
        mean(one.first for one in found.results if one.first is not None),
        sum(one.innocent for one in found.results),
        said.gap,
        said.sure,
        right / len(cases),
        innocent,
    )
