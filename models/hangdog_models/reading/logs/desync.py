"""Reads what a rank's log says of other ranks: PyTorch's desync report, and its check of collectives before they run.

The desync report counts operations from 1, the watchdog's `SeqNum` and the flight recorder from 0: `#3` there is 2 here.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from hangdog_models.collectives import CollectiveRecord
from hangdog_models.ranks import MAX_RANK, Rank
from hangdog_models.reading.json_document import int_of, text_of
from hangdog_models.reading.limits import Limits
from hangdog_models.reading.logs.watchdog import operation_of

_TIMED_OUT = re.compile(r"- \[(\d{1,7})\] Timeout at collective: (\w{1,64}), #(\d{1,20})")
_NUMBERS = r"\[([\d, ]{1,4000})\]"
_FINISHED = re.compile(_NUMBERS + r" finished collective #(\d{1,20}), but didn't join collective #\d")
_JOINED = re.compile(_NUMBERS + r" joined but didn't finish collective #(\d{1,20})")
_NEVER = re.compile(r"ranks " + _NUMBERS + r" are the lagging ranks")
_PRINT = re.compile(
    r"Rank (\d{1,7}) is running (?:inconsistent )?collective: CollectiveFingerPrint\("
    r"(?:SequenceNumber=(\d{1,20})(?:, )?)?OpType=(\w{1,64})(?:, TensorShape=\[([\d, ]{0,400})\])?(?:, TensorDtypes=(\w{1,64}))?"
)


@dataclass(frozen=True, slots=True)
class Lag:
    """Ranks (inside their group) that a desync report names: the last operation they finished and joined, from 0.

    -1: none. `operation` and `sequence` are those at which the reporting rank timed out, where the report says it.
    """

    ranks: tuple[Rank, ...]
    finished: int
    joined: int


def timed_out_at(line: str) -> tuple[str, int] | None:
    """The operation and its number, from 0, of the line that opens a desync report."""
    found = _TIMED_OUT.search(line)
    return (found[2], int(found[3]) - 1) if found else None


def lag(line: str) -> Lag | None:
    """Whom a line of a desync report names."""
    if found := _FINISHED.search(line):
        return Lag(ranks_in(found[1]), int(found[2]) - 1, int(found[2]) - 1)
    if found := _JOINED.search(line):
        return Lag(ranks_in(found[1]), int(found[2]) - 2, int(found[2]) - 1)
    found = _NEVER.search(line)
    return Lag(ranks_in(found[1]), -1, -1) if found else None


def fingerprints(line: str, group: str, limits: Limits) -> Iterator[tuple[Rank, CollectiveRecord]]:
    """Each rank (inside its group) that `Detected mismatch between collectives` quotes, with what it was about to run."""
    for found in _PRINT.finditer(line):
        number, sequence, operation, shape, dtype = found.groups()
        if int(number) > MAX_RANK:
            continue
        sizes = [size for size in map(int_of, (shape or "").replace(" ", "").split(",")) if size is not None]
        yield (
            Rank(int(number)),
            CollectiveRecord(
                group=group,
                sequence=int_of(sequence) or 0,
                operation=operation_of(operation),
                done=False,
                input_sizes=(tuple(sizes),) if shape is not None else (),
                dtypes=(text_of(dtype, limits),) if dtype else (),
            ),
        )


def ranks_in(numbers: str) -> tuple[Rank, ...]:
    """The ranks in `3, 7,12`, ascending, without what is none."""
    found = {number for number in map(int_of, numbers.replace(" ", "").split(",")) if number is not None}
    return tuple(Rank(number) for number in sorted(found) if number <= MAX_RANK)
