"""Looks that travel together: most looks at a job that stands still show what the one before showed, but for the kernel's counts of work."""

import math
from collections.abc import Iterable, Iterator, Sequence

from msgspec import structs

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.stack import ProcessTrace
from hangdog_proto.codec.traces import known
from hangdog_proto.generated import hangdog_pb2 as pb

#: Looks that may stand before another one in its message: more than an agent keeps back, and few enough to be unfolded.
MOST_EARLIER = 16
#: The lists of a group that count work, which goes on in every process.
COUNTS = ("cpu_s", "ran_s", "wakes", "steps")


def same_but_for_counts(before: pb.Capture, after: pb.Capture) -> pb.Before | None:
    """What the kernel had counted when a look showed what the one `after` it shows, but for that; None where more differs.

    What comes with the last look only, statements and findings, counts for nothing. The round is left open.
    """
    if len(before.alike) != len(after.alike):
        return None
    probe = pb.Capture(frames=after.frames, stacks=after.stacks, traces=after.traces, alike=after.alike)
    for group, earlier in zip(probe.alike, before.alike, strict=True):
        if any(bool(getattr(group, name)) is not bool(getattr(earlier, name)) for name in COUNTS):
            return None  # it is told by the lists of `after` which of them a group has
        for name in COUNTS:
            getattr(group, name)[:] = getattr(earlier, name)
    if probe != before:
        return None
    found = pb.Before()
    for name in COUNTS:
        getattr(found, name).extend(count for group in before.alike for count in getattr(group, name))
    return found


def rebuilt(after: pb.Capture, before: pb.Before) -> pb.Capture:
    """The look that was found to be as the one `after` it; raises UnreadableEvidence when the counts do not fit."""
    _check_fit(after, before)
    capture = pb.Capture()
    capture.CopyFrom(after)
    capture.ClearField("statements")
    capture.ClearField("findings")
    capture.ClearField("addresses")
    for name in COUNTS:
        counts, at = getattr(before, name), 0
        for group in capture.alike:
            own = getattr(group, name)
            size = len(own)
            own[:] = counts[at : at + size]
            at += size
    return capture


def _check_fit(after: pb.Capture, before: pb.Before) -> None:
    for name in COUNTS:
        if len(getattr(before, name)) != sum(len(getattr(group, name)) for group in after.alike):
            raise UnreadableEvidence(
                "an earlier round counts the work of other processes than the round after it", code="damaged-message"
            )
    if not all(map(math.isfinite, before.cpu_s)) or not all(map(math.isfinite, before.ran_s)):
        raise UnreadableEvidence("capture message gives CPU seconds that are no number", code="not-a-number")


def pack_earlier(number: int, earlier_rounds: Iterable[pb.Before]) -> bytes:
    """What is kept beside the look of round `number` of those before it that show what it shows, but for the counts."""
    return pb.Captured(round=number, before=earlier_rounds).SerializeToString()


def count(beside: bytes | None) -> int:
    """How many looks are kept beside another one."""
    return len(pb.Captured.FromString(beside).before) if beside else 0


def unpack_rounds(number: int, packed: bytes, beside: bytes) -> Iterator[tuple[int, bytes]]:
    """The looks that are kept as one under a number, its own last, each as if it had come alone; `beside` is from `kept`."""
    answer, after = pb.Captured.FromString(beside), pb.Capture.FromString(packed)
    first = number - answer.round  # an incident may number its looks on from others that it left
    for before in answer.before:
        yield first + before.round, rebuilt(after, before).SerializeToString()
    yield number, packed


def rebuilt_traces(traces: Sequence[ProcessTrace], after: pb.Capture, before: pb.Before) -> tuple[ProcessTrace, ...]:
    """The traces of the look before, from those of the look `after` it, of which they share all they can.

    Raises UnreadableEvidence when the counts do not fit.
    """
    _check_fit(after, before)
    if len(traces) != len(after.traces) + sum(len(group.ranks) for group in after.alike):
        raise UnreadableEvidence(
            "an earlier round refers to one whose processes are not all known", code="damaged-message"
        )
    found = list(traces)
    at = len(after.traces)
    given = {name: iter(getattr(before, name)) for name in COUNTS}
    for group in after.alike:
        lists = [known([next(given[name]) for _ in getattr(group, name)]) for name in COUNTS]
        columns = [counts or [None] * len(group.cpu_s) for counts in lists]
        for offset, counted in enumerate(zip(*columns, strict=True)):
            trace = found[at + offset]
            state = trace.state
            if state is not None and (state.cpu_s, state.ran_s, state.wakes, state.steps) != counted:
                cpu_s, ran_s, wakes, steps = counted
                state = structs.replace(state, cpu_s=cpu_s, ran_s=ran_s, wakes=wakes, steps=steps)
                found[at + offset] = structs.replace(trace, state=state)
        at += len(group.ranks)
    return tuple(found)
