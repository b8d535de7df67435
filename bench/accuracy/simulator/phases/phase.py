"""The nouns of a phase: the steps it goes through again and again, who does it, and how the others wait."""

from dataclasses import dataclass
from enum import StrEnum

from accuracy.simulator.program import frames
from hangdog_models.stack import Frame

#: What an operation of a program is called that is a phase.
PHASE = "phase"


class Who(StrEnum):
    """Which ranks a phase is the work of."""

    FIRST = "rank 0"
    LOCAL = "the first rank of each machine"
    ONE = "some rank"
    ALL = "all ranks"


@dataclass(frozen=True, slots=True)
class Step:
    """One stay at a place: `calls` inside the phase, `seconds` in the mean, and what the kernel says meanwhile.

    `gil`: it holds the interpreter's lock, which much of torch and of tokenizers lets go while C code runs.
    `wakes`: how often a second its thread is put on a processor while it sleeps there. `lines`: over so many lines its innermost
    frame wanders, as in a loop of Python. `native`: C frames below. Who does the work while it waits, and uses the processor for
    `helped` of the time: a helper thread with the frames `beside`, or a process of its own with the role `child`. `unseen`: how
    often, of 1, no stack can be taken there.
    """

    calls: tuple[Frame, ...]
    seconds: float
    state: str = "R"
    wchan: str = "0"
    syscall: str = "running"
    wakes: float = 0.0
    lines: int = 1
    gil: bool = False
    native: tuple[str, ...] = ()
    beside: tuple[Frame, ...] = ()
    child: str = ""
    helped: float = 0.0
    unseen: float = 0.0


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a phase: its steps, over and over, until `share` of the phase (1: its end) is over."""

    share: float
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Phase:
    """A kind of phase. `calls` are its frames under the trainer's own, `seconds` the shortest and the longest.

    `ends`: the frames of a barrier after it, empty where the others go on into the next step of training. `meanwhile`: what the
    other ranks do until it is over, where they do not wait for a collective. `spread`: the quickest of several ranks needs so
    much less than the slowest. `stuck`: ways in which it never ends. `frameworks`: where it is met; everywhere, if empty.
    `service`: something outside of the job is waited for. `start`: it comes before the first step of training.
    """

    name: str
    who: Who
    seconds: tuple[float, float]
    calls: tuple[Frame, ...]
    parts: tuple[Part, ...]
    ends: tuple[Frame, ...] = ()
    meanwhile: tuple[Step, ...] = ()
    spread: float = 0.3
    stuck: tuple[tuple[Step, ...], ...] = ()
    frameworks: tuple[str, ...] = ()
    service: bool = False
    start: bool = False


def runs(seconds: float, *calls: str, lines: int = 1, gil: bool = True, native: tuple[str, ...] = ()) -> Step:
    """It computes."""
    return Step(frames(*calls), seconds, lines=lines, gil=gil, native=native)


def sleeps(
    seconds: float, *calls: str, wakes: float = 0.0, wchan: str = "futex_do_wait", syscall: str = "202", child: str = ""
) -> Step:
    """It sleeps, and is woken `wakes` times a second, once at its end apart. A `child` works for it without a pause."""
    return Step(frames(*calls), seconds, "S", wchan, syscall, wakes, child=child, helped=1.0 if child else 0.0)


#: How often a second a writer is woken that is slowed down while others write, or that waits for a file server.
_PACED = {"balance_dirty_pages": 10.0, "rpc_wait_bit_killable": 20.0, "nfs_wait_on_request": 5.0}


def writes(seconds: float, *calls: str, wchan: str, syscall: str = "1") -> Step:
    """It is in the kernel until a disk or a file server is done, and no tracer may attach to it."""
    return Step(frames(*calls), seconds, "D", wchan, syscall, _PACED.get(wchan, 0.0), unseen=0.5)


def compiling(traced: float) -> tuple[Part, ...]:
    """torch.compile: it traces for this share of the time, and then waits for the compiler it started."""
    return (
        Part(
            traced,
            (
                runs(
                    0.5,
                    "_compile torch/_dynamo/convert_frame.py:819",
                    "run torch/_dynamo/symbolic_convert.py:1051",
                    "step torch/_dynamo/symbolic_convert.py:962",
                    lines=12,
                ),
                runs(
                    0.8,
                    "call_user_compiler torch/_dynamo/output_graph.py:1446",
                    "aot_dispatch_autograd torch/_functorch/_aot_autograd/jit_compile_runtime_wrappers.py:318",
                    lines=9,
                ),
                runs(
                    1.0,
                    "fx_codegen_and_compile torch/_inductor/compile_fx.py:841",
                    "run torch/_inductor/graph.py:807",
                    lines=11,
                ),
            ),
        ),
        Part(
            1.0,
            (
                sleeps(
                    6.0,
                    "compile_to_module torch/_inductor/graph.py:1780",
                    "wait torch/_inductor/async_compile.py:243",
                    "result concurrent/futures/_base.py:451",
                    "wait threading.py:327",
                    child="compile-0",
                ),
                runs(
                    0.2,
                    "compile_to_module torch/_inductor/graph.py:1780",
                    "load_by_key_path torch/_inductor/codecache.py:2790",
                ),
            ),
        ),
    )
