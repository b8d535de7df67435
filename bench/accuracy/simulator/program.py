"""What the host of one rank does in order: a program is a list of operations, each with the frames it is issued under."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from typing import NamedTuple

from hangdog_models.stack import Frame

C10D = "torch/distributed/distributed_c10d.py"


class Code(IntEnum):
    """What an operation does to the host and to the device."""

    HOST = 0  # the host works by itself
    KERNEL = 1  # launches kernels and goes on
    COLLECTIVE = 2  # launches a collective on a process group
    P2P = 3  # launches a batch of sends and receives
    WAIT = 4  # waits for an operation launched earlier, by its handle
    READ = 5  # reads a value back: the host waits for the stream that computes
    SYNC = 6  # torch.cuda.synchronize: the host waits for all streams
    STALL = 7  # never goes on: a fault
    END = 8  # the program is over


class Mode(IntEnum):
    """Who waits for a collective."""

    ASYNC = 0  # nobody until its handle is waited for
    SYNC = 1  # the computing stream (NCCL), the host (gloo, or NCCL in blocking mode)
    HOST = 2  # the host, always: `barrier`, object collectives, CPU tensors


@dataclass(frozen=True, slots=True, eq=False)  # one object is one place: compared by identity
class Place:
    """Frames, outermost first. In backward `autograd` are those of the thread that runs it, and `main` only waits."""

    main: tuple[Frame, ...]
    autograd: tuple[Frame, ...] | None = None


class Op(NamedTuple):
    """One operation. `kind`: of a collective its name, of host work what it is; `peers`: (offset in group, send?, tag).

    `size` counts elements, `amount` kernels, `seconds` is the device's (or host's) time for it. Where what a member gets, or
    sends, depends on how often its experts are asked, `gets` or `sends` is the mean of it, and `size` holds for the other way.
    """

    code: Code
    place: Place
    seconds: float = 0.0
    slot: str = ""
    kind: str = ""
    size: int = 0
    dtype: str = "BFloat16"
    mode: Mode = Mode.SYNC
    handle: str = ""
    amount: int = 0
    peers: tuple[tuple[int, bool, str], ...] = ()
    gets: int = 0
    sends: int = 0


@cache
def frame(call: str) -> Frame:
    """`function file:line` as a frame."""
    function, _, place = call.rpartition(" ")
    file, _, line = place.rpartition(":")
    return Frame(function, file, int(line))


def frames(*calls: str) -> tuple[Frame, ...]:
    return tuple(frame(call) for call in calls)


#: How torch 2.4 enters an operation: py-spy shows the logging wrapper above each of them.
_WRAPPER = "wrapper torch/distributed/c10d_logger.py:83"
_LINES = {
    "all_reduce": 2501,
    "broadcast": 2208,
    "all_gather_into_tensor": 3108,
    "reduce_scatter_tensor": 3540,
    "all_to_all_single": 3790,
    "barrier": 3943,
    "batch_isend_irecv": 2317,
    "all_gather_object": 2660,
    "gather_object": 2783,
    "broadcast_object_list": 2891,
    "all_gather": 3007,
    "send": 2009,
    "recv": 2044,
    "monitored_barrier": 4008,
}


#: Pieces in which long host work is written down, so that two looks a second apart may see different ones.
_PARTS = 10
#: What Python shows while torch.compile works, torch 2.4.
_COMPILING = (
    ("_compile torch/_dynamo/convert_frame.py:819", "run torch/_dynamo/symbolic_convert.py:1051", "step torch/_dynamo/symbolic_convert.py:962"),
    ("call_user_compiler torch/_dynamo/output_graph.py:1446", "aot_dispatch_autograd torch/_functorch/_aot_autograd/jit_compile_runtime_wrappers.py:318"),
    ("fx_codegen_and_compile torch/_inductor/compile_fx.py:841", "run torch/_inductor/graph.py:807"),
    ("compile_to_module torch/_inductor/graph.py:1780", "codegen torch/_inductor/scheduler.py:2600"),
    ("wait torch/_inductor/async_compile.py:243", "result concurrent/futures/_base.py:451", "wait threading.py:320"),
)  # fmt: skip


class Writer:
    """Writes a program: `inside` opens frames, the other methods add operations under the frames that are open."""

    def __init__(self, slots: frozenset[str]) -> None:
        """`slots`: the process groups the rank has; operations on others are left out, as frameworks do."""
        self.ops: list[Op] = []
        self.marks: list[int] = []
        self._slots = slots
        self._main: tuple[Frame, ...] = ()
        self._autograd: tuple[Frame, ...] | None = None
        self._places: dict[tuple[tuple[Frame, ...], tuple[Frame, ...] | None], Place] = {}

    @contextmanager
    def inside(self, *calls: str) -> Iterator[None]:
        main, autograd = self._main, self._autograd
        if autograd is None:
            self._main = main + frames(*calls)
        else:
            self._autograd = autograd + frames(*calls)
        yield
        self._main, self._autograd = main, autograd

    @contextmanager
    def autograd(self) -> Iterator[None]:
        """The thread that runs backward while the main thread waits in the frames open now."""
        self._autograd = ()
        yield
        self._autograd = None

    def place(self, *calls: str) -> Place:
        more = frames(*calls)
        key = (self._main, self._autograd + more) if self._autograd is not None else (self._main + more, None)
        return self._places.setdefault(key, Place(*key))

    def mark(self) -> None:
        """A training step begins here."""
        self.marks.append(len(self.ops))

    def host(self, kind: str, seconds: float, *calls: str) -> None:
        self.ops.append(Op(Code.HOST, self.place(*calls), seconds, kind=kind))

    def saves(self, seconds: float, *calls: str) -> None:
        """Writes a checkpoint: by turns a tensor comes over from the device and goes to the file."""
        for _ in range(_PARTS):
            self.host("copy", 0.3 * seconds / _PARTS, *calls, "cpu torch/storage.py:267")
            self.host("save", 0.7 * seconds / _PARTS, *calls)

    def compiles(self, seconds: float, *calls: str) -> None:
        """Compiles a model: tracing, differentiating, lowering, writing kernels, waiting for the compiler processes."""
        for part in range(_PARTS):
            self.host("compile", seconds / _PARTS, *calls, *_COMPILING[part % len(_COMPILING)])

    def kernels(self, amount: int, seconds: float, *calls: str) -> None:
        self.ops.append(Op(Code.KERNEL, self.place(*calls), seconds, amount=amount))

    def collective(
        self, slot: str, kind: str, size: int, seconds: float = 2e-4, *, mode: Mode = Mode.SYNC, handle: str = "",
        dtype: str = "BFloat16", native: bool = False, gets: int = 0, sends: int = 0,
    ) -> None:  # fmt: skip
        """`native`: issued by C++, so that Python shows the frames open now and nothing of the operation."""
        if slot in self._slots:
            door = () if native else (_WRAPPER, f"{kind} {C10D}:{_LINES[kind]}")
            op = Op(
                Code.COLLECTIVE,
                self.place(*door),
                seconds,
                slot,
                kind,
                size,
                dtype,
                mode,
                handle,
                gets=gets,
                sends=sends,
            )
            self.ops.append(op)

    def p2p(self, slot: str, peers: tuple[tuple[int, bool, str], ...], size: int, handle: str = "") -> None:
        if slot in self._slots and peers:
            place = self.place(f"batch_isend_irecv {C10D}:{_LINES['batch_isend_irecv']}")
            self.ops.append(Op(Code.P2P, place, 3e-4, slot, size=size, peers=peers, handle=handle, mode=Mode.ASYNC))

    def wait(self, handle: str, *calls: str) -> None:
        self.ops.append(Op(Code.WAIT, self.place(*calls), handle=handle))

    def read(self, *calls: str) -> None:
        """`.item()`: a C call, so Python shows the caller as the innermost frame (real-stacks.md section 2)."""
        self.ops.append(Op(Code.READ, self.place(*calls)))

    def synchronize(self) -> None:
        self.ops.append(Op(Code.SYNC, self.place("synchronize torch/cuda/__init__.py:892")))

    def finished(self) -> tuple[Op, ...]:
        return (*self.ops, Op(Code.END, self.place()))
