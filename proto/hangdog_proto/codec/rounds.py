"""Looks that travel together: most looks at a job that stands still show what the one before showed, but for the seconds of CPU."""

import math
from collections.abc import Iterable, Iterator, Sequence

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.stack import ProcessState, ProcessTrace
from hangdog_proto.generated import hangdog_pb2 as pb

#: Looks that may stand before another one in its message: more than an agent keeps back, and few enough to be unfolded.
MOST_EARLIER = 16


def same_cpu_seconds(before: pb.Capture, after: pb.Capture) -> list[float] | None:
    """The CPU seconds of a look that shows what the one `after` it shows, but for these; None where more differs.

    What comes with the last look only, statements and findings, counts for nothing.
    """
    if len(before.alike) != len(after.alike):
        return None
    probe = pb.Capture(frames=after.frames, stacks=after.stacks, traces=after.traces, alike=after.alike)
    for group, earlier in zip(probe.alike, before.alike, strict=True):
        group.cpu_s[:] = earlier.cpu_s
    return [cpu_s for group in before.alike for cpu_s in group.cpu_s] if probe == before else None


def rebuilt(after: pb.Capture, cpu_s: Sequence[float]) -> pb.Capture:
    """The look that `same` found to be as the one `after` it; raises UnreadableEvidence when the CPU seconds do not fit."""
    if len(cpu_s) != sum(len(group.cpu_s) for group in after.alike):
        raise UnreadableEvidence("a look before gives CPU seconds of other processes than the look behind it")
    capture, at = pb.Capture(), 0
    capture.CopyFrom(after)
    capture.ClearField("statements")
    capture.ClearField("findings")
    for group in capture.alike:
        own = group.cpu_s
        size = len(own)
        own[:] = cpu_s[at : at + size]
        at += size
    return capture


def pack_earlier(number: int, earlier_rounds: Iterable[pb.Before]) -> bytes:
    """What is kept beside the look of round `number` of those before it that show what it shows, but for their CPU seconds."""
    return pb.Captured(round=number, before=earlier_rounds).SerializeToString()


def count(beside: bytes | None) -> int:
    """How many looks are kept beside another one."""
    return len(pb.Captured.FromString(beside).before) if beside else 0


def unpack_rounds(number: int, packed: bytes, beside: bytes) -> Iterator[tuple[int, bytes]]:
    """The looks that are kept as one under a number, its own last, each as if it had come alone; `beside` is from `kept`."""
    answer, after = pb.Captured.FromString(beside), pb.Capture.FromString(packed)
    first = number - answer.round  # an incident may number its looks on from others that it left
    for before in answer.before:
        yield first + before.round, rebuilt(after, before.cpu_s).SerializeToString()
    yield number, packed


def rebuilt_traces(
    traces: Sequence[ProcessTrace], after: pb.Capture, cpu_s: Sequence[float]
) -> tuple[ProcessTrace, ...]:
    """The traces of the look that `same` found, from those of the look `after` it, of which they share all they can.

    Raises UnreadableEvidence when the CPU seconds do not fit.
    """
    if not all(map(math.isfinite, cpu_s)):
        raise UnreadableEvidence("capture message gives CPU seconds that are no number")
    found = list(traces)
    with_state = [at for at in range(len(after.traces), len(traces)) if traces[at].state is not None]
    if len(with_state) != len(cpu_s):
        raise UnreadableEvidence("a look before gives CPU seconds of other processes than the look behind it")
    for at, seconds in zip(with_state, cpu_s, strict=True):
        trace, spent = traces[at], None if seconds < 0 else seconds
        state = trace.state
        if state is not None and state.cpu_s != spent:
            state = ProcessState(state.pid, state.state, state.wchan, state.syscall, spent, state.comm, state.cmdline)
            found[at] = ProcessTrace(trace.rank, trace.role, trace.pid, trace.threads, state, trace.missing)
    return tuple(found)
