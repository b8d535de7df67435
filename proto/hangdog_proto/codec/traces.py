"""The one border between the wire's messages and our nouns: packs traces for the way, and unpacks them suspiciously.

`unpack(pack(traces))` gives the same traces back, but for what the wire cannot tell apart: an empty and an unknown name
of a thread, a line or pid of 0 and an unknown one, text that is no valid UTF-8.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.progress.device_readings import DeviceReadings
from hangdog_models.ranks import MAX_RANK, Rank
from hangdog_models.stack import Frame, Missing, ProcessState, ProcessTrace, Reason, Thread
from hangdog_proto.codec.pieces import UINT32, text
from hangdog_proto.generated import hangdog_pb2 as pb

Count = TypeVar("Count", int, float)

#: The largest number of a uint64 field.
_UINT64 = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class TraceLimits:
    """How much one capture message may hold; an agent is believed to be ours, never to be well."""

    #: A machine holds up to 16 ranks, each with up to about 100 children (data loaders, compile workers).
    processes: int = 4096
    #: All threads of all processes; a trainer has some 100 native threads, its children a handful each.
    threads: int = 1 << 17
    #: Distinct frames and stacks of one message; a machine's real ones number in the thousands.
    distinct: int = 1 << 18
    #: Frames of one stack; Python's default recursion limit is 1,000, and native frames may double it several times.
    depth: int = 16384
    #: Frames of all threads together, counted again wherever a stack is referred to: what diagnosis will walk over.
    frames: int = 1 << 22
    #: Characters of one text; C++ names with their template arguments reach some ten thousand.
    text: int = 1 << 16


LIMITS = TraceLimits()


def pack(traces: Iterable[ProcessTrace]) -> pb.Capture:
    """Writes traces as one message in which every distinct frame and every distinct stack stands once."""
    frames: dict[Frame, int] = {}
    stacks: dict[tuple[int, ...], int] = {}
    capture = pb.Capture()
    for trace in traces:
        packed = capture.traces.add(rank=trace.rank, role=text(trace.role), pid=_number(trace.pid or 0, UINT32))
        for thread in trace.threads:
            indexes = tuple(frames.setdefault(frame, len(frames)) for frame in thread.frames)
            packed.threads.add(
                name=text(thread.name or ""),
                tid=_number(thread.tid, _UINT64),
                stack=stacks.setdefault(indexes, len(stacks)),
                active=tri(thread.active),
                gil=tri(thread.gil),
            )
        if trace.state is not None:
            packed.state.CopyFrom(_packed_state(trace.state))
        if trace.missing is not None:
            packed.missing.CopyFrom(pb.Missing(reason=str(trace.missing.reason), message=text(trace.missing.message)))
    for frame in frames:
        capture.frames.add(
            function=text(frame.function),
            file=text(frame.file),
            line=_number(frame.line, UINT32),
            module=text(frame.module or ""),
            native=frame.module == "",
        )
    for indexes in stacks:
        capture.stacks.add(frames=indexes)
    return capture


def unpack(capture: pb.Capture, bounds: TraceLimits = LIMITS) -> tuple[ProcessTrace, ...]:
    """Reads what `pack` wrote; raises UnreadableEvidence on anything out of range, over `bounds` or unheard of.

    All counts and indexes are checked before the first noun is made. A stack shared by many threads is made once.
    """
    _check_counts(capture, bounds)
    frames = [_frame(frame, bounds) for frame in capture.frames]
    stacks = [tuple(frames[index] for index in stack.frames) for stack in capture.stacks]
    return tuple(_trace(trace, stacks, bounds) for trace in capture.traces)


def _check_counts(capture: pb.Capture, bounds: TraceLimits) -> None:
    _at_most(len(capture.traces), bounds.processes, "processes")
    _at_most(sum(len(trace.threads) for trace in capture.traces), bounds.threads, "threads")
    _at_most(len(capture.frames), bounds.distinct, "distinct frames")
    _at_most(len(capture.stacks), bounds.distinct, "distinct stacks")
    depths = [len(stack.frames) for stack in capture.stacks]
    _at_most(max(depths, default=0), bounds.depth, "frames in one stack")
    _at_most(sum(depths), bounds.frames, "frames in all stacks")
    for stack in capture.stacks:
        _in_table(max(stack.frames, default=-1), len(capture.frames), "frame")
    walked = 0
    for trace in capture.traces:
        for thread in trace.threads:
            _in_table(thread.stack, len(depths), "stack")
            walked += depths[thread.stack]
    _at_most(walked, bounds.frames, "frames of all threads")


def _at_most(count: int, bound: int, what: str) -> None:
    if count > bound:
        raise UnreadableEvidence(f"capture message holds {count} {what}, the bound is {bound}", code="too-many")


def _in_table(index: int, size: int, what: str) -> None:
    if index >= size:
        raise UnreadableEvidence(
            f"capture message refers to {what} {index}, but has only {size}", code="damaged-message"
        )


def _frame(frame: pb.Frame, bounds: TraceLimits) -> Frame:
    module = bounded(frame.module, bounds)
    native = bool(module) or frame.native
    return Frame(bounded(frame.function, bounds), bounded(frame.file, bounds), frame.line, module if native else None)


def _trace(trace: pb.ProcessTrace, stacks: Sequence[tuple[Frame, ...]], bounds: TraceLimits) -> ProcessTrace:
    if trace.rank > MAX_RANK:
        raise UnreadableEvidence(
            f"capture message names rank {trace.rank}, the highest allowed is {MAX_RANK}", code="out-of-range"
        )
    if not trace.role:
        raise UnreadableEvidence(
            f"capture message holds a process of rank {trace.rank} without a role", code="damaged-message"
        )
    return ProcessTrace(
        rank=Rank(trace.rank),
        role=bounded(trace.role, bounds),
        pid=trace.pid or None,
        threads=tuple(_thread(thread, stacks, bounds) for thread in trace.threads),
        state=_state(trace.state, bounds) if trace.HasField("state") else None,
        missing=missing(trace.missing, bounds) if trace.HasField("missing") else None,
    )


def _thread(thread: pb.Thread, stacks: Sequence[tuple[Frame, ...]], bounds: TraceLimits) -> Thread:
    return Thread(
        name=bounded(thread.name, bounds) or None,
        tid=thread.tid,
        frames=stacks[thread.stack],
        active=_known(thread.active),
        gil=_known(thread.gil),
    )


def known(counts: Sequence[Count]) -> list[Count | None]:
    """Counts as they are written in lists, where a negative one is not known."""
    return [None if count < 0 else count for count in counts]


def _packed_state(state: ProcessState) -> pb.ProcessState:
    return pb.ProcessState(
        pid=_number(state.pid, UINT32),
        state=text(state.state),
        wchan=text(state.wchan),
        syscall=text(state.syscall),
        cpu_s=-1.0 if state.cpu_s is None else state.cpu_s,
        comm=text(state.comm),
        cmdline=text(state.cmdline),
        ran_s=state.ran_s,
        wakes=state.wakes,
        steps=state.steps,
        device=packed_device(state.device) if state.device is not None else None,
    )


def _state(state: pb.ProcessState, bounds: TraceLimits) -> ProcessState:
    if not math.isfinite(state.cpu_s) or not math.isfinite(state.ran_s):
        raise UnreadableEvidence(
            f"capture message gives process {state.pid} CPU seconds that are no number", code="not-a-number"
        )
    return ProcessState(
        pid=state.pid,
        state=bounded(state.state, bounds),
        wchan=bounded(state.wchan, bounds),
        syscall=bounded(state.syscall, bounds),
        cpu_s=None if state.cpu_s < 0 else state.cpu_s,
        comm=bounded(state.comm, bounds),
        cmdline=bounded(state.cmdline, bounds),
        ran_s=state.ran_s if state.HasField("ran_s") and state.ran_s >= 0 else None,
        wakes=state.wakes if state.HasField("wakes") else None,
        steps=state.steps if state.HasField("steps") else None,
        device=device(state.device) if state.HasField("device") else None,
    )


def packed_device(readings: DeviceReadings) -> pb.DeviceReadings:
    """Writes what a device was seen to do."""
    return pb.DeviceReadings(
        waiting=_number(readings.waiting, _UINT64), behind=_number(readings.behind, _UINT64),
        sending=_number(readings.sending, _UINT64), communicator=_number(readings.communicator, _UINT64),
        number=_place(readings.number), peer=_place(readings.peer),
    )  # fmt: skip


def device(packed: pb.DeviceReadings) -> DeviceReadings | None:
    """Reads what `packed_device` wrote; None where nothing was seen. Raises UnreadableEvidence on what no rank is."""
    if not (packed.waiting or packed.behind or packed.sending):
        return None
    if not all(-1 <= place <= MAX_RANK for place in (packed.number, packed.peer)):
        raise UnreadableEvidence("capture message names an impossible rank in a communicator", code="out-of-range")
    return DeviceReadings(
        packed.waiting, packed.behind, packed.sending, packed.communicator, packed.number, packed.peer
    )


def _place(place: int) -> int:
    return place if 0 <= place <= MAX_RANK else -1


def missing(missing: pb.Missing, bounds: TraceLimits) -> Missing:
    try:
        return Missing(Reason(missing.reason), bounded(missing.message, bounds))
    except ValueError:
        raise UnreadableEvidence(
            f"capture message gives {missing.reason[:80]!r} as a reason, which is none", code="unknown-kind"
        ) from None


def tri(known: bool | None) -> pb.Tri.ValueType:
    return pb.UNKNOWN if known is None else pb.YES if known else pb.NO


def _known(tri: int) -> bool | None:
    if tri not in (pb.UNKNOWN, pb.YES, pb.NO):
        raise UnreadableEvidence(
            f"capture message answers {tri} where only unknown, yes and no exist", code="unknown-kind"
        )
    return None if tri == pb.UNKNOWN else tri == pb.YES


def bounded(text: str, bounds: TraceLimits) -> str:
    if len(text) > bounds.text:
        raise UnreadableEvidence(
            f"capture message holds a text of {len(text)} characters, the bound is {bounds.text}", code="too-long"
        )
    return text


def _number(number: int, highest: int) -> int:
    """A number the wire accepts; 0, which says unknown, for one that does not fit: a look must not fail over it."""
    return number if 0 <= number <= highest else 0
