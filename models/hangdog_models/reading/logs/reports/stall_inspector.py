"""Reads what Horovod's stall inspector says: which ranks have not submitted the tensors that others wait in.

Since 0.19 it lists ranks with what each misses, six names at most in their order (`0: [allreduce.a, allreduce.b ...]`);
before, tensors with the ranks that are missing or, in the oldest form, ready (`a [missing ranks: 1, 3]`).
"""

import itertools
import re
from dataclasses import dataclass, field

from hangdog_models.findings import Finding, Impact
from hangdog_models.ranks import MAX_RANK, Rank, format_ranks
from hangdog_models.reading.json_document import int_of
from hangdog_models.reading.printable import printable

CODE = "stall inspector"
_OPENS = "One or more tensors were submitted to be reduced"
#: What may stand between the sentence and the list. The sentence itself is longer than some loggers' lines.
_HEADS = ("Missing ranks:", "Stalled ranks:", "Stalled ops:", "deadlock.")
_OF_RANK = re.compile(r"\s{0,8}(\d{1,7})(!?): \[(.*)")
_OF_TENSOR = re.compile(r" \[(missing|ready) ranks:([ \d,]{1,6000})\]")
#: The oldest form has all tensors in one line: so many of them are looked at.
_IN_LINE = 256
#: Lines without an entry after which the list is over.
_PATIENCE = 4
#: Entries of one report that are kept; its tensors are counted on.
_MOST = 1 << 14


@dataclass(slots=True)
class StallReport:
    """The last report: `lists` holds the tensors of each rank, those it misses or, where `ready`, those it has submitted.

    `cut` are ranks whose list goes on beyond what was printed. `before` are the tensors of the report before, each with the
    ranks that may have missed it. `lines` are still looked at for entries.
    """

    lines: int = 0
    entries: int = 0
    ready: bool = False
    lists: dict[int, list[str]] = field(default_factory=dict)
    cut: set[int] = field(default_factory=set)
    before: dict[str, set[int]] = field(default_factory=dict)

    def take(self, line: str) -> bool:
        """Notes a line; true if it belongs to a report."""
        if _OPENS in line:
            self._begin()
        elif self.lines:
            self.lines -= 1
        if " ranks:" in line and self._note_tensors(line):
            return True
        if not self.lines:
            return False
        if (entry := _OF_RANK.match(line)) and int(entry[1]) <= MAX_RANK:
            self._note_rank(int(entry[1]), entry[3])
            return True
        return _OPENS in line or any(head in line for head in _HEADS)

    def _begin(self) -> None:
        if self.lists and not self.ready:
            self.before = {name: set(self.cut) for names in self.lists.values() for name in names}
            for rank, names in self.lists.items():
                for name in names:
                    self.before[name].add(rank)
        self.lines, self.entries, self.ready = _PATIENCE, 0, False
        self.lists, self.cut = {}, set()

    def _note_tensors(self, line: str) -> bool:
        """Notes tensors with the ranks behind each; a name ends before its bracket and begins after a blank."""
        begin = 0
        for found in itertools.islice(_OF_TENSOR.finditer(line), _IN_LINE):
            name = line[begin : found.start()].rpartition(" ")[2].rpartition("ops:")[2]
            self._note_tensor(name, found[1] == "ready", found[2])
            begin = found.end()
        return begin > 0

    def _note_tensor(self, name: str, ready: bool, numbers: str) -> None:
        if ready is not self.ready:
            self.lists, self.ready = {}, ready
        for number in map(int_of, numbers.replace(" ", "").split(",")):
            if number is not None and number <= MAX_RANK and self._has_room():
                self.lists.setdefault(number, []).append(name)
        self.lines = _PATIENCE

    def _note_rank(self, number: int, names: str) -> None:
        """A line that ends before its bracket was cut by us or by its logger."""
        whole = names.rstrip().removesuffix("]")
        if whole == names.rstrip() or whole.endswith(" ..."):
            self.cut.add(number)
        if self._has_room():
            self.lists[number] = [name for name in whole.removesuffix(" ...").split(", ") if name]
        self.lines = _PATIENCE

    def _has_room(self) -> bool:
        self.entries += 1
        return self.entries <= _MOST

    def findings(self, source: str) -> list[Finding]:
        """What the last report comes to: sides that wait for each other, or ranks that all others wait for."""
        if not self.lists:
            return []
        first = min(self.lists, key=lambda rank: (-len(self.lists[rank]), rank))
        other = next((rank for rank in sorted(self.lists) if self._crossed(first, rank)), None)
        if other is not None:
            return [self._different(source, first, other)]
        most = [Rank(rank) for rank in sorted(self.lists) if len(self.lists[rank]) == len(self.lists[first])]
        name = printable(self.lists[first][0], 100) if self.lists[first] else "a tensor"
        whose = f"rank{'' if len(most) == 1 else 's'} {format_ranks(most)}"
        if self.ready:
            # ranks number from 0, so those below the last one are there; where they are most, who came is the odd one
            late = tuple(Rank(rank) for rank in range(max(most)) if rank not in self.lists)
            late = late if len(late) < len(most) else ()
            what = f"only {whose} submitted {name}: the stall inspector waited for the others"
            what += f", such as rank{'' if len(late) == 1 else 's'} {format_ranks(late)}" if late else ""
            return [Finding(source, CODE, Impact.VICTIM, what, ranks=late)]
        what = f"other ranks wait in {name}, which {whose} did not submit"
        return [Finding(source, CODE, Impact.VICTIM, what, ranks=tuple(most))]

    def _crossed(self, one: int, other: int) -> bool:
        return self._lacking(one, other) is not None and self._lacking(other, one) is not None

    def _lacking(self, rank: int, other: int) -> str | None:
        """A tensor in the list of `rank` that is surely not in that of `other`.

        Names are listed in their order, and a list may be cut. What a rank had submitted when the report before was written
        it does not miss.
        """
        theirs = set(self.lists[other])
        end = self.lists[other][-1] if other in self.cut and theirs else None
        for name in self.lists[rank] if theirs else ():
            had = name in self.before and other not in self.before[name]
            if name not in theirs and (end is None or name < end or had):
                return name
        return None

    def _different(self, source: str, one: int, other: int) -> Finding:
        first, second = sorted((one, other))
        verb = "submitted" if self.ready else "did not submit"
        sides = [
            f"rank {rank} {verb} {printable(self._lacking(rank, peer) or '', 100)}"
            for rank, peer in ((first, second), (second, first))
        ]
        what = f"ranks are in different operations and wait for each other: {', '.join(sides)}"
        return Finding(source, "mismatched collectives", Impact.PROGRAM, what, ranks=(Rank(first), Rank(second)))
