"""What is true of a case, by the keys of its `expected.toml`: the kinds of cause that it accepts, and who is guilty."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hangdog_models.ranks import Rank, parse_ranks
from hangdog_models.topology import Topology
from hangdog_models.verdict import Kind
from worlds.score import named_ranks

_NOBODY = frozenset({Kind.NONE, Kind.UNDETERMINED})
#: Keys that name ranks. A fifth world writes who did it as `culprit_ranks`, whatever a verdict has to name.
_RANKS = ("must_include_ranks", "must_include_any_ranks", "culprit_ranks")
#: How the words of a truth write ranks: `Rank 0 evaluates`, `rank0-index`, `rank(s) 3,27`.
_IN_WORDS = re.compile(r"\brank(?:s|\(s\))? ?(\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*)", re.IGNORECASE)
_MACHINES = ("must_include_machines", "culprit_machines")


@dataclass(frozen=True, slots=True)
class Truth:
    """The kinds of explanation that are right, and the machines that a right one blames; without any it blames whom it likes.

    A rank whose machine is unknown is written `rank 3`. `any_will_do`: nothing tells one of the guilty from the other, as with the
    ends of a link. `at_work`: whose healthy phase the others wait for, where the words of the truth name its ranks.
    """

    kinds: frozenset[Kind]
    guilty: frozenset[str]
    any_will_do: bool = False
    at_work: frozenset[str] = frozenset()

    def told_by(self, kind: Kind, blamed: frozenset[str], *, together: bool) -> bool:
        """Whether an explanation is true: `blamed` are the machines it blames, all of a group where they are so `together`.

        That nothing is stuck, and that who it is was not seen, are one answer: nobody is named.
        """
        if kind in _NOBODY:
            return bool(self.kinds & _NOBODY)
        if kind not in self.kinds:
            return False
        if not self.guilty:
            return True
        if together or kind is Kind.DEPENDENCY:
            return self.guilty <= blamed
        return bool(blamed) and blamed <= self.guilty

    def names(self, named: frozenset[str]) -> bool:
        """Whether who is named is guilty: each of them, or a group that holds all who are."""
        if self.any_will_do and named & self.guilty:
            return True
        return bool(named) and (named <= self.guilty or self.guilty <= named)


def wanted(want: Mapping[str, Any], topology: Topology) -> Truth:
    """The truth of a case."""
    kinds = frozenset(Kind(kind) for kind in want["verdict"])
    guilty = {machine for key in _MACHINES for machine in want.get(key, ())}
    for key in _RANKS:
        guilty |= _on(named_ranks(want.get(key, "")), topology)
    words = _IN_WORDS.findall(want.get("ground_truth", "")) if Kind.NONE in kinds and not guilty else ()
    at_work = {rank for ranks in words for rank in parse_ranks(ranks)}
    if len(at_work) >= topology.world_size:
        at_work = set()  # a phase of all ranks: nobody waits for one of them
    any_will_do = bool(want.get("must_include_any_ranks"))
    return Truth(kinds, frozenset(guilty), any_will_do, frozenset(_on(at_work, topology)))


def _on(ranks: Iterable[Rank], topology: Topology) -> set[str]:
    return {topology.machine(rank) or f"rank {rank}" for rank in ranks}
