"""The border between the wire's wrong numbers and ours; what an agent says is read suspiciously."""

import math
from collections.abc import Container, Iterable, Sequence

from hangdog_models.numbers.wrong_number import Quantity, WrongNumber
from hangdog_models.ranks import MAX_RANK, Rank
from hangdog_models.reading.printable import printable
from hangdog_proto.generated import hangdog_pb2 as pb

#: Numbers of one machine that are sent and read: two of each of 16 ranks, or more where there are no GPUs.
MOST = 128
#: Ranks that one of them names as sound, and characters of a line.
_SOUND, _LINE = 256, 300
#: No number comes later after the first one than a report waits for. Seconds.
_LATEST_S = 600.0
#: No job takes more steps.
_STEPS = 1 << 53
#: What is known here; a newer agent may tell of more.
_QUANTITIES = frozenset(map(str, Quantity))


def pack(numbers: Sequence[WrongNumber]) -> list[pb.WrongNumber]:
    """Writes wrong numbers, the first of them first in time."""
    first_s = min((one.at_s for one in numbers), default=0.0)
    packed = []
    for one in numbers[:MOST]:
        written = pb.WrongNumber(
            quantity=one.quantity,
            value=one.value,
            median=one.median,
            line=one.line.encode("utf-8", "replace").decode("utf-8")[:_LINE],
            after_s=one.at_s - first_s,
            sound=one.sound[:_SOUND],
        )
        if one.rank is not None:
            written.rank = one.rank
        if one.step is not None:
            written.step = one.step
        packed.append(written)
    return packed


def own(packed: Iterable[pb.WrongNumber], ranks: Container[int], began: float) -> list[pb.WrongNumber]:
    """Those that may be true of a machine with these ranks, dated from when the first was wrong (`began`).

    Of a rank of another machine nothing is believed: it is as if the line had named none.
    """
    kept = []
    for one, _ in zip(packed, range(MOST), strict=False):
        if not (math.isfinite(one.median) and math.isfinite(one.after_s) and 0 <= one.after_s <= _LATEST_S):
            continue
        if one.HasField("rank") and one.rank not in ranks:
            one.ClearField("rank")
        one.at_s = began + one.after_s
        one.sound[:] = [rank for rank in one.sound[:_SOUND] if rank in ranks]
        kept.append(one)
    return kept


def unpack(packed: Iterable[pb.WrongNumber]) -> tuple[WrongNumber, ...]:
    """Reads what the server has dated (`own`); an impossible one is left out."""
    return tuple(
        WrongNumber(
            Rank(one.rank) if one.HasField("rank") else None,
            Quantity(one.quantity),
            one.value,
            one.median,
            one.at_s,
            one.step if one.HasField("step") and one.step < _STEPS else None,
            printable(one.line, _LINE),
            tuple(Rank(rank) for rank in one.sound[:_SOUND] if rank <= MAX_RANK),
        )
        for one, _ in zip(packed, range(MOST), strict=False)
        if one.quantity in _QUANTITIES
        and one.rank <= MAX_RANK
        and math.isfinite(one.median)
        and math.isfinite(one.at_s)
    )
