"""The border between the wire's ends of trainers and ours; what an agent says is read suspiciously."""

import math
from collections.abc import Iterable

from hangdog_models.exits import Exit
from hangdog_models.ranks import MAX_RANK, Rank
from hangdog_proto.generated import hangdog_pb2 as pb

#: Ends of one machine that are sent and read: as many as it may announce ranks.
MOST = 4096
#: No end comes later after the first one than a report waits for, nor has a process run for longer than a year. Seconds.
_LATEST_S, _LONGEST_S = 600.0, 366 * 86400.0
#: The highest signal, and exit code.
_SIGNALS, _CODES = 64, 255


def pack(exits: Iterable[Exit], first_s: float) -> list[pb.Exit]:
    """Writes the ends of trainers, the first of which was at `first_s` on their clock."""
    packed = []
    for one, _ in zip(exits, range(MOST), strict=False):
        written = pb.Exit(rank=one.rank, after_s=max(0.0, one.at_s - first_s), oom=one.oom, ran_s=one.ran_s)
        if one.status is not None:
            written.status = one.status
        packed.append(written)
    return packed


def own(packed: Iterable[pb.Exit], ranks: Iterable[Rank], began: float) -> list[pb.Exit]:
    """Those that may be true of a machine with these ranks, each once, dated from when the first ended (`began`)."""
    left = set(ranks)
    kept = []
    for one, _ in zip(packed, range(MOST), strict=False):
        if one.rank in left and 0 <= one.after_s <= _LATEST_S and -_SIGNALS <= one.status <= _CODES:
            left.discard(Rank(one.rank))
            one.at_s = began + one.after_s
            kept.append(one)
    return kept


def unpack(packed: Iterable[pb.Exit]) -> tuple[Exit, ...]:
    """Reads what the server has dated (`own`); an impossible one is left out."""
    return tuple(
        Exit(
            Rank(one.rank),
            one.status if one.HasField("status") else None,
            one.at_s,
            one.oom,
            one.ran_s if math.isfinite(one.ran_s) and 0 <= one.ran_s <= _LONGEST_S else 0.0,
        )
        for one, _ in zip(packed, range(MOST), strict=False)
        if one.rank <= MAX_RANK and math.isfinite(one.at_s)
    )
