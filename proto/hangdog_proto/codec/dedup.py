"""Captures by digests: the agent packs processes that look the same together, the server unpacks them with its dictionary.

`unpack(pack(traces))` gives the same traces back as traces.py does, in another order, and with `tids=False` without the ids of
threads. What does not fit the short form goes in the long one, in the same message.
"""

import math
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import cast

from msgspec import structs

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.progress.device_readings import DeviceReadings
from hangdog_models.ranks import MAX_RANK, Rank
from hangdog_models.stack import Frame, Missing, ProcessState, ProcessTrace, Thread
from hangdog_proto.codec import traces as codec
from hangdog_proto.codec.piece_cache import RECORD, PieceCache, PieceStacks, count_threads
from hangdog_proto.codec.pieces import UINT32, KernelView, PieceContent, SharedThread, digest, packed, split, text
from hangdog_proto.generated import hangdog_pb2 as pb

#: Pieces and bytes an agent keeps for a server that may ask for them: of the looks of some minutes, where a machine's stacks
#: have some two thousand.
MOST_PIECES, MOST_BYTES = 1 << 16, 16 << 20
#: An id less its pid fits the wire.
_TID = 1 << 62
#: What stands for the readings of a device of which there are none.
_UNSEEN = DeviceReadings(0, 0, 0)


class Packer:
    """Packs the looks of one agent and keeps the pieces that they name; looks and questions may come from several threads."""

    def __init__(self, most_pieces: int = MOST_PIECES, most_bytes: int = MOST_BYTES) -> None:
        self._most = most_pieces, most_bytes
        self._pieces: OrderedDict[bytes, bytes] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def pack(self, traces: Iterable[ProcessTrace]) -> pb.Capture:
        """Writes traces as one message that names what others may have told before."""
        names: dict[PieceContent, bytes] = {}
        groups: dict[tuple[bytes, bytes, str, Missing | None], _ProcessNumbers] = {}
        long: list[ProcessTrace] = []
        for trace in traces:
            if not _fits_short_form(trace):
                long.append(trace)
                continue
            with self._lock:
                threads = b"".join(self._record(thread, names) for thread in trace.threads)
                face = self._name(_kernel_view(trace.state), names) if trace.state is not None else b""
            groups.setdefault((threads, face, text(trace.role), trace.missing), _ProcessNumbers()).add(trace)
        capture = codec.pack(long)
        for (threads, face, role, missing), group in groups.items():
            alike = capture.alike.add(
                threads=threads,
                face=face,
                role=role,
                ranks=group.ranks,
                pids=group.pids,
                cpu_s=group.cpu_s,
                tids=group.tids,
                ran_s=group.ran_s if max(group.ran_s, default=-1) >= 0 else (),
                wakes=group.wakes if max(group.wakes, default=-1) >= 0 else (),
                steps=group.steps if max(group.steps, default=-1) >= 0 else (),
                devices=map(codec.packed_device, group.devices)
                if any(one is not _UNSEEN for one in group.devices)
                else (),
            )
            if missing is not None:
                alike.missing.CopyFrom(pb.Missing(reason=str(missing.reason), message=text(missing.message)))
        return capture

    def find(self, digests: bytes, most: int) -> Iterator[pb.Pieces]:
        """What digests stand for, in messages of some `most` bytes (0: one message)."""
        found, size = pb.Pieces(), 0
        for name in split(digests):
            with self._lock:
                piece = self._pieces.get(name)
            if piece is None:
                found.gone += name
                continue
            if most and size and size + len(piece) > most:
                yield found
                found, size = pb.Pieces(), 0
            found.pieces.append(pb.Piece.FromString(piece))
            size += len(piece) + 8
        yield found

    def _record(self, thread: Thread, names: dict[PieceContent, bytes]) -> bytes:
        frames = b"".join(self._name(frame, names) for frame in thread.frames)
        name = self._name(SharedThread(thread.name or "", frames), names)
        return name + bytes((codec.tri(thread.active) | codec.tri(thread.gil) << 2,))

    def _name(self, noun: PieceContent, names: dict[PieceContent, bytes]) -> bytes:
        name = names.get(noun)
        if name is None:
            known = structs.replace(noun, line=0) if isinstance(noun, Frame) and not 0 <= noun.line <= UINT32 else noun
            name = names[noun] = digest(known)
            if name not in self._pieces:
                self._keep(name, packed(known).SerializeToString())
            self._pieces.move_to_end(name)
        return name

    def _keep(self, name: bytes, piece: bytes) -> None:
        self._pieces[name] = piece
        self._bytes += len(piece)
        while len(self._pieces) > self._most[0] or self._bytes > self._most[1]:
            self._bytes -= len(self._pieces.popitem(last=False)[1])


@dataclass(slots=True)
class _ProcessNumbers:
    """What the processes of one group have for themselves."""

    ranks: list[int] = field(default_factory=list)
    pids: list[int] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    tids: list[int] = field(default_factory=list)
    ran_s: list[float] = field(default_factory=list)
    wakes: list[int] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    devices: list[DeviceReadings] = field(default_factory=list)

    def add(self, trace: ProcessTrace) -> None:
        pid = trace.pid or 0
        self.ranks.append(trace.rank)
        self.pids.append(pid)
        if trace.state is not None:
            self.cpu_s.append(-1.0 if trace.state.cpu_s is None else trace.state.cpu_s)
            self.ran_s.append(-1.0 if trace.state.ran_s is None else trace.state.ran_s)
            self.wakes.append(-1 if trace.state.wakes is None else trace.state.wakes)
            self.steps.append(-1 if trace.state.steps is None else trace.state.steps)
            self.devices.append(trace.state.device or _UNSEEN)
        self.tids += (thread.tid - pid for thread in trace.threads)


def unpack(
    capture: pb.Capture, dictionary: PieceCache, bounds: codec.TraceLimits = codec.LIMITS, tids: bool = True
) -> tuple[ProcessTrace, ...]:
    """Reads what a `Packer` wrote; raises UnreadableEvidence on anything out of range, over `bounds` or not told.

    With `tids=False` processes that look the same share their threads, which then have no ids (0).
    """
    groups = capture.alike
    traces = codec.unpack(capture, bounds) if capture.traces or capture.frames or capture.stacks else ()
    if not groups:
        return traces
    found = list(traces)
    named_bytes, walked, threads = 0, 0, 0
    for group in groups:
        ranks, written = cast("list[Rank]", list(group.ranks)), group.threads
        size = len(ranks)
        named_bytes += len(written)
        if named_bytes > bounds.threads * RECORD:
            raise UnreadableEvidence(
                f"capture message names {count_threads(capture)} threads, the bound is {bounds.threads}",
                code="too-many",
            )
        if len(found) + size > bounds.processes:
            raise UnreadableEvidence(f"capture message holds more than {bounds.processes} processes", code="too-many")
        if len(written) % RECORD:
            raise UnreadableEvidence("capture message holds a part of a thread", code="damaged-message")
        stacks = dictionary.stacks(written)
        walked += stacks.frames * size
        threads += len(stacks.threads) * size
        if walked > bounds.frames or threads > bounds.threads:
            raise UnreadableEvidence(
                f"capture message holds {threads} threads with {walked} frames, which is too many", code="too-many"
            )
        found += _traces(group, ranks, stacks, dictionary, bounds, tids)
    return tuple(found)


def _traces(
    group: pb.Alike,
    ranks: list[Rank],
    stacks: PieceStacks,
    dictionary: PieceCache,
    bounds: codec.TraceLimits,
    tids: bool,
) -> list[ProcessTrace]:
    pids, cpu_s, ids, name = list(group.pids), list(group.cpu_s), group.tids, group.face
    size, each = len(ranks), len(stacks.threads)
    face = dictionary.kernel_view(name) if name else None
    ran_s, wakes, steps = list(group.ran_s), list(group.wakes), list(group.steps)
    counts: tuple[Sequence[object], ...] = (ran_s, wakes, steps, group.devices)
    counts_fit = len(cpu_s) == size * bool(face) and all(len(some) in (0, len(cpu_s)) for some in counts)
    if len(pids) != size or not counts_fit or len(ids) not in (0, size * each):
        raise UnreadableEvidence("capture message holds lists that do not go together", code="damaged-message")
    if ranks and max(ranks) > MAX_RANK:
        raise UnreadableEvidence(
            f"capture message names rank {max(ranks)}, the highest allowed is {MAX_RANK}", code="out-of-range"
        )
    if not group.role:
        raise UnreadableEvidence("capture message holds processes without a role", code="damaged-message")
    if not all(map(math.isfinite, cpu_s)) or not all(map(math.isfinite, ran_s)):
        raise UnreadableEvidence("capture message gives CPU seconds that are no number", code="not-a-number")
    role, missing = codec.bounded(group.role, bounds), _missing(group, bounds)
    states: Sequence[ProcessState | None] = (
        _states(face, pids, cpu_s, (ran_s, wakes, steps), group.devices) if face is not None else (None,) * size
    )
    pids_or_none = [pid or None for pid in pids]
    threads: Iterable[tuple[Thread, ...]] = repeat(stacks.threads)
    if tids and each and ids:
        threads = [_with_tids(stacks.threads, pid, ids[at * each : (at + 1) * each]) for at, pid in enumerate(pids)]
    # as many of each as there are ranks, which was seen to above: a loop would take half as long again
    return list(map(ProcessTrace, ranks, repeat(role), pids_or_none, threads, states, repeat(missing)))


def _states(
    view: KernelView,
    pids: Sequence[int],
    cpu_s: Sequence[float],
    counts: tuple[list[float], list[int], list[int]],
    devices: Sequence[pb.DeviceReadings],
) -> list[ProcessState]:
    spent = codec.known(cpu_s)
    ran, woken, stepped = (codec.known(count) or repeat(None) for count in counts)
    state, wchan, syscall = repeat(view.state), repeat(view.wchan), repeat(view.syscall)
    comm, cmdline = repeat(view.comm), repeat(view.cmdline)
    seen: Iterable[DeviceReadings | None] = map(codec.device, devices) if devices else repeat(None)
    return list(map(ProcessState, pids, state, wchan, syscall, spent, comm, cmdline, ran, woken, stepped, seen))


def _with_tids(threads: Sequence[Thread], pid: int, ids: Sequence[int]) -> tuple[Thread, ...]:
    return tuple(
        Thread(thread.name, max(0, pid + offset), thread.frames, thread.active, thread.gil)
        for thread, offset in zip(threads, ids, strict=True)
    )


def _missing(group: pb.Alike, bounds: codec.TraceLimits) -> Missing | None:
    return codec.missing(group.missing, bounds) if group.HasField("missing") else None


def _kernel_view(state: ProcessState) -> KernelView:
    return KernelView(text(state.state), text(state.wchan), text(state.syscall), text(state.comm), text(state.cmdline))


def _fits_short_form(trace: ProcessTrace) -> bool:
    """Whether the short form can tell all of it, its main thread included where no thread is named so."""
    main_known = len(trace.threads) < 2 or any(thread.name == "MainThread" for thread in trace.threads)
    if not main_known and any(thread.tid == trace.pid for thread in trace.threads):
        return False
    pid, state = trace.pid or 0, trace.state
    if not 0 <= pid <= UINT32 or not all(0 <= thread.tid < _TID for thread in trace.threads):
        return False
    return state is None or (
        state.pid == pid and all(_counts(count) for count in (state.cpu_s, state.ran_s, state.wakes, state.steps))
    )


def _counts(count: float | None) -> bool:
    return count is None or (0 <= count < _TID and math.isfinite(count))
