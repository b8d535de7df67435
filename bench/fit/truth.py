"""Which explanations of a case say what is true of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hangdog_models.topology import Topology
from hangdog_models.verdict import Kind
from worlds.score import named_ranks

_NOBODY = frozenset({Kind.NONE, Kind.UNDETERMINED})


@dataclass(frozen=True, slots=True)
class Truth:
    """The kinds of explanation that are right, and the machines that a right one blames; without any it blames whom it likes.

    A rank whose machine is unknown is written `rank 3`.
    """

    kinds: frozenset[Kind]
    guilty: frozenset[str]

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


def wanted(want: Mapping[str, Any], topology: Topology) -> Truth:
    """The truth of a case, by the keys of its `expected.toml`."""
    guilty = set(want.get("must_include_machines", []))
    for key in ("must_include_ranks", "must_include_any_ranks"):
        guilty |= {topology.machine(rank) or f"rank {rank}" for rank in named_ranks(want.get(key, ""))}
    return Truth(frozenset(Kind(kind) for kind in want["verdict"]), frozenset(guilty))
