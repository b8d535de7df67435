"""The checkpoint gate: whether every shard of the checkpoint keeps a copy elsewhere when machines are evicted.

The software that copies the shards (torch DCP, NVRx, DLRover, torchft) reports which machines hold which; hangdog only
checks. Without a report, every copy in memory counts as lost with the eviction, and its price is stated. The price is
the age of the last checkpoint outside all machines, times the GPUs that have to train that time again.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.reading.json_document import read_json
from hangdog_models.reading.printable import printable

#: Machines that hold a copy of each shard of the newest checkpoint, by the shard's name.
Copies = Mapping[str, Collection[str]]

#: Longest report on copies, in characters: 100,000 shards.
MOST = 16 << 20
#: Shards named in one sentence, the rest is a number; and characters of such a name, which a checkpointer may choose
#: freely.
_NAMED, _NAME = 8, 120


@dataclass(frozen=True, slots=True)
class Price:
    """What a checkpoint lost from memory costs. `age_s`: the age of the newest one outside all machines; None: unknown."""

    age_s: float | None = None
    gpus: int = 0

    def __str__(self) -> str:
        if self.age_s is None:
            return "nobody said how old the last checkpoint outside the machines is"
        again = f"{self.age_s / 60:.0f} min of training are done again"
        return f"{again}, {self.age_s * self.gpus / 3600:.1f} GPU hours" if self.gpus else again


@dataclass(frozen=True, slots=True)
class CheckpointGate:
    """The machines that may go; empty if every choice loses shards: diagnose first.

    `lost`: the lost shards of each choice.
    """

    machines: tuple[str, ...]
    reasons: tuple[str, ...]
    lost: Mapping[tuple[str, ...], tuple[str, ...]] = field(default_factory=dict)


def read_copies(text: str) -> Copies:
    """Reads a checkpointer's report, JSON: `{"shard": ["machine", ...]}`. Raises UnreadableEvidence."""
    if len(text) > MOST:
        raise UnreadableEvidence(f"it is longer than {MOST >> 20} MiB", code="too-large")
    document = read_json(text)
    if not isinstance(document, dict) or not all(_are_names(holders) for holders in document.values()):
        raise UnreadableEvidence('it is not {"shard": ["machine", ...]}', code="wrong-schema")
    return document


def lost(machines: Iterable[str], copies: Copies) -> tuple[str, ...]:
    """The shards without a copy left if these machines go, in the order of `copies`."""
    gone = frozenset(machines)
    return tuple(shard for shard, holders in copies.items() if gone.issuperset(holders))


def remaining(copies: Copies, out: Collection[str]) -> Copies:
    """The copies without those on machines that are `out` already. Shards without another copy were lost before."""
    return {shard: held for shard, holders in copies.items() if (held := frozenset(holders).difference(out))}


def gate(choices: Sequence[Sequence[str]], copies: Copies | None, price: Price | None = None) -> CheckpointGate:
    """The first of these sets of machines, best first, that takes no shard's last copy with it.

    Without `copies` the best set may go, and the price is stated.
    """
    sets = [tuple(machines) for machines in choices if machines]
    if not sets:
        return CheckpointGate((), ("there is nobody to evict",))
    price = price or Price()
    if copies is None:
        reported = () if price.age_s is None else (f"copies in memory count as lost: {price}",)
        return CheckpointGate(sets[0], ("nobody says who holds copies of the checkpoint", *reported))
    losses = {machines: gone for machines in sets if (gone := lost(machines, copies))}
    because = [f"evicting {', '.join(machines)} would lose {_shards(gone)}" for machines, gone in losses.items()]
    for machines in sets:
        if machines not in losses:
            return CheckpointGate(
                machines, (*because, f"without {', '.join(machines)} every shard keeps a copy"), losses
            )
    hint = f"copy those shards first, or evict nevertheless: {price}"
    return CheckpointGate((), (*because, hint), losses)


def forbids(machines: Iterable[str], out: Collection[str], copies: Copies) -> str:
    """Why these machines may not go together, and which of them may; empty if every shard keeps a copy.

    A copy on a machine that is `out` already does not count, and a shard without another was lost before.
    """
    asked = tuple(dict.fromkeys(machines))
    left = remaining(copies, out)
    risked = {shard: left[shard] for shard in lost(asked, left)}
    if not risked:
        return ""
    fewer = (one for size in (len(asked) - 1, 1) for one in combinations(asked, size) if one)
    may = next((one for one in fewer if not lost(one, risked)), ())
    instead = f", taking {', '.join(may)} alone would not" if may else ""
    return f"taking {', '.join(asked)} would lose {_shards(tuple(risked))}{instead}"


def _are_names(value: object) -> bool:
    return isinstance(value, Collection) and not isinstance(value, str) and all(isinstance(one, str) for one in value)


def _shards(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    reported = ", ".join(printable(name, _NAME) for name in names[:_NAMED])
    return f"the last copy of {'shard' if len(names) == 1 else 'shards'} {reported}{more}"
