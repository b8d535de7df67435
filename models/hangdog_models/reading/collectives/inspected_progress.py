"""How far a running process's communicators have come, by the end of what NCCL Inspector writes: JSON lines, or Prometheus text.

It writes of operations that completed, so what is in flight is not known. The Prometheus text names no communicator by its
number: it holds means of the last interval and, with `NCCL_INSPECTOR_PROM_DUMP_STATS=1`, how many operations each device completed.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from hangdog_models.ranks import MAX_RANK
from hangdog_models.reading.collectives.inspector import documents, table
from hangdog_models.reading.json_document import int_of, text_of
from hangdog_models.reading.limits import DEFAULTS, Limits

#: What Inspector calls a communicator that has no name.
_NAMELESS = "unknown"
_TOTAL = re.compile(r"(?m)^nccl_(?:collectives|p2p)_total\{[^\n]{0,1024}\} (\d{1,20})$")
#: Functions of NCCL that are counted each by itself; there are ten.
_MOST_KINDS = 32


@dataclass(slots=True)
class CompletedOperations:
    """What one communicator has completed on this process's rank, as far as it was read: `collectives` by function."""

    communicator: int
    name: str
    rank: int
    size: int
    collectives: dict[str, int] = field(default_factory=dict)
    messages: int = 0

    @property
    def count(self) -> int:
        """All of them. Inspector passes over small ones, but NCCL numbers these as well."""
        return sum(self.collectives.values()) + self.messages

    def join(self, later: "CompletedOperations") -> None:
        """Takes what was read later. Counts only grow."""
        for function, number in later.collectives.items():
            if function in self.collectives or len(self.collectives) < _MOST_KINDS:
                self.collectives[function] = max(number, self.collectives.get(function, 0))
        self.messages = max(later.messages, self.messages)


def completed(text: str, limits: Limits = DEFAULTS) -> Iterator[CompletedOperations]:
    """Each operation of a piece of a dump, as how far its communicator has come by it; what cannot be one is left out.

    NCCL numbers the collectives of each function from 0 on, and Inspector the messages of a communicator from 1 on.
    """
    for document in documents(text):
        header = table(document.get("header"))
        collective, message = table(document.get("coll_perf")), table(document.get("p2p_perf"))
        number, rank, size = (
            _hash(text_of(header.get("id"), limits)),
            int_of(header.get("rank")),
            int_of(header.get("n_ranks")),
        )
        function, sequence = text_of(collective.get("coll"), limits), int_of(collective.get("coll_sn"))
        messages = int_of(message.get("p2p_sn"))
        if number is None or rank is None or size is None or not 0 <= rank < size <= MAX_RANK:
            continue
        name = text_of(header.get("comm_name"), limits)
        found = CompletedOperations(number, "" if name == _NAMELESS else name, rank, size)
        if function and sequence is not None and 0 <= sequence < 1 << 63:
            found.collectives[function] = sequence + 1
        elif messages is not None and 0 <= messages < 1 << 63:
            found.messages = messages
        else:
            continue
        yield found


def totals(text: str) -> int | None:
    """Operations that the devices of a process have completed since it began, by Prometheus text; None where it has no totals."""
    found = [int(number) for number in _TOTAL.findall(text)]
    return sum(found) if found else None


def _hash(text: str) -> int | None:
    try:
        number = int(text[:19], 16)
    except ValueError:
        return None
    return number if 0 <= number < 1 << 64 else None
