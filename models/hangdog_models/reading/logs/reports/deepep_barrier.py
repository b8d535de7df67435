"""Reads the time-outs of DeepEP's barrier inside a machine: each rank prints a line for each of its peers, and what is left to come.

A value above 0 is that of a peer who has not arrived. The numbers are those of the group on one machine, and no ranks of the job.
"""

import re
from dataclasses import dataclass, field

from hangdog_models.findings import Finding, Impact
from hangdog_models.ranks import Rank, format_ranks

HINT = "DeepEP timeout check failed"
CODE = "DeepEP time-out"
_SLOT = re.compile(
    r"DeepEP timeout check failed: rank = (\d{1,4}), (?:thread|peer) = (\d{1,4}), value = (-?\d{1,10})(?!\d)"
)
#: Numbers that are kept: a machine has no more GPUs.
_MOST = 256


@dataclass(slots=True)
class DeepepBarrier:
    """Who waited, and whom of its peers each lacks."""

    lacking: dict[int, set[int]] = field(default_factory=dict)

    def take(self, line: str) -> bool:
        """Notes a line; true if it is one of the barrier."""
        found = _SLOT.search(line) if HINT in line else None
        if found is None:
            return False
        rank, peer, value = int(found[1]), int(found[2]), int(found[3])
        if max(rank, peer) < _MOST:
            lacks = self.lacking.setdefault(rank, set())
            lacks.update({peer} if value > 0 else ())
        return True

    def findings(self, source: str) -> list[Finding]:
        """Those who waited are victims; those whom they lack are told, unless these waited as well."""
        if not self.lacking:
            return []
        lacked = set.union(*self.lacking.values()) - self.lacking.keys()
        what = f"{_named(set(self.lacking))} waited in vain in a barrier of DeepEP"
        if lacked:
            what += f" for {_named(lacked)}: look there first"
        return [Finding(source, CODE, Impact.VICTIM, f"{what} (numbers of the group on one machine)")]


def _named(numbers: set[int]) -> str:
    return f"rank{'' if len(numbers) == 1 else 's'} {format_ranks(sorted(map(Rank, numbers)))}"
