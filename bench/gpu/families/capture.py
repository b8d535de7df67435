"""Whether a trainer inside a CUDA call is read, how long that takes, and for how long its loop stands still meanwhile."""

import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from gpu.families.looks import Looks, Read, Taken, figures_of, not_permitted, wrong_of
from gpu.families.standing import CallFailed, StandingTrainer
from gpu.kit import Measured, NotHere, Part, Stand
from gpu.trainers.page import Page
from gpu.trainers.turns import NAMES, At
from hangdog_agent.capture import native_stacks, process_capture, pyspy
from hangdog_agent.capture.process_capture import CapturedProcess, Tools
from hangdog_agent.capture.pyspy import PySpy
from hangdog_agent.capture.settings import CaptureSettings
from hangdog_agent.discovery.discover import Process
from hangdog_agent.procfs import Proc
from hangdog_models.stack import Missing, Reason
from overhead.stage import NotStarted, stage

#: The loop notices that a read is over. Seconds.
_AROUND_S = 0.005
#: Where the agent's own deadline for native stacks was too short, one read may take so long: it says how long it takes. Seconds.
LONG_NATIVE_S = 15.0
#: The agent's whole look at one process, with its tries. Seconds.
_WHOLE_S = 4.0
#: What a call must be given to be worth entering. Seconds.
_LEAST_S = 2.0
#: Times that a lost trainer is started again.
_MOST_LOST = 2
#: What torch says once the device has given up the process.
_CONTEXT_LOST = "CUDA error"


@dataclass(frozen=True, slots=True)
class Counts:
    """Reads of each kind in each call, and what they may take in one call, and in all of them with the start. Seconds."""

    nonblocking: int
    blocking: int
    native: int
    call_s: float
    all_s: float


REAL, DRY = Counts(30, 5, 3, 6.0, 82.0), Counts(4, 1, 2, 1.5, 45.0)


def parts(stand: Stand) -> Iterator[Part]:
    yield Part("capture/calls", 50.0 if stand.dry else 105.0, measure)


def measure(stand: Stand) -> Measured:
    spy = pyspy.load()
    if isinstance(spy, Missing):
        raise NotHere(str(spy))
    counts = DRY if stand.dry else REAL
    figures: dict[str, Any] = {"py-spy": spy.version}
    wrong: list[str] = []
    until = time.monotonic() + counts.all_s
    with stage() as here:
        trainer = StandingTrainer(here, stand)
        for at, name in enumerate(NAMES):
            left_s = until - time.monotonic()
            if left_s < _LEAST_S:
                figures[name] = "not reached in time"
                continue
            looks, call_s = Looks(), min(counts.call_s, left_s / (len(NAMES) - at))
            failed = _in_call(trainer, name, partial(_look, trainer, spy, replace(counts, call_s=call_s), looks))
            if not_permitted(looks):
                raise NotHere(str(looks.nonblocking[0].read))
            figures[name] = figures_of(looks, trainer.pid) | {"turns": int(trainer.page[At.TURNS])}
            wrong += [f"{name}: {words}" for words in wrong_of(looks, pauses=not stand.dry)]
            harm = trainer.harm()
            if failed or harm:
                wrong.append(f"{name}: the trainer {' '.join(filter(None, (failed, harm)))}")
            if harm or _CONTEXT_LOST in failed:
                if trainer.lost == _MOST_LOST:
                    break
                try:
                    trainer.again()
                except (NotStarted, OSError, subprocess.SubprocessError) as error:
                    wrong.append(f"{name}: no trainer after it: {error}")
                    break
    return Measured(figures, wrong)


def _in_call(trainer: StandingTrainer, name: str, look: Callable[[], None]) -> str:
    """Looks at the trainer inside a call; answers what went wrong with the trainer or the look, and ends one that stays."""
    try:
        trainer.enter(name)
        look()
        trainer.check()
        failed = ""
    except Exception as error:  # noqa: BLE001 - the other calls are still worth looking at
        failed = f"{error}" if isinstance(error, CallFailed) else f"{type(error).__name__}: {error}"
    try:
        trainer.leave()
    except CallFailed as error:
        trainer.kill()
        failed = f"{failed} {error}".strip()
    return failed


def _look(trainer: StandingTrainer, spy: PySpy, counts: Counts, looks: Looks) -> None:
    """Without stopping it, each time beside a time of the same length alone; then by stopping it; then with native frames."""
    began, pid, page = time.monotonic(), trainer.pid, trainer.page
    settings = replace(CaptureSettings(), native_again_s=0.0)
    tools = Tools(Proc(), spy, settings)
    process = _process(pid)
    for at in range(counts.nonblocking):
        if at and time.monotonic() - began > counts.call_s / 2:
            break
        looks.kernel[_kernel(tools.proc, pid)] += 1
        looks.nonblocking.append(_taken(page, lambda: spy.dump(pid, settings.nonblocking_s, settings)))
        looks.alone.append(_taken(page, partial(_nothing, looks.nonblocking[-1].seconds)).gap)
    looks.whole.append(_taken(page, lambda: _read(process_capture.look(process, tools, time.monotonic() + _WHOLE_S))))
    for at in range(counts.blocking):
        if at and time.monotonic() - began > counts.call_s * 2 / 3:
            break
        looks.blocking.append(_taken(page, lambda: spy.dump(pid, settings.blocking_s, settings, blocking=True)))
    native: Callable[[], Read] = lambda: _read(native_stacks.look(process, tools))
    for at in range(counts.native):
        if at and time.monotonic() - began > counts.call_s:
            break
        looks.native.append(_taken(page, native))
        read = looks.native[-1].read
        if isinstance(read, Missing):  # it gets on, or needs longer than the agent holds anybody
            deadline_s = LONG_NATIVE_S if read.reason is Reason.TIMED_OUT else settings.native_s
            native = partial(spy.dump, pid, deadline_s, settings, blocking=True, native=True)


def _read(seen: CapturedProcess) -> Read:
    return seen.missing or seen.threads


def _nothing(seconds: float) -> Read:
    time.sleep(seconds)
    return ()


def _taken(page: Page, read: Callable[[], Read]) -> Taken:
    page[At.LONGEST] = 0.0
    began = time.perf_counter()
    found = read()
    seconds = time.perf_counter() - began
    time.sleep(_AROUND_S)
    return Taken(seconds, max(page[At.LONGEST], time.perf_counter() - page[At.LAST]), found)


def _process(pid: int) -> Process:
    stat = Proc().stat(pid)
    if stat is None:
        raise CallFailed("is gone")
    return Process(pid, stat.parent, stat.started, stat.state, stat.comm, python=True)


def _kernel(proc: Proc, pid: int) -> str:
    """What the kernel says of the main thread: state, what it sleeps in, system call."""
    stat = proc.stat(pid, pid)
    call = proc.syscall(pid, pid).partition(" ")[0] or "unknown"
    return f"{stat.state if stat else 'gone'} {proc.wchan(pid, pid) or '-'} {call}"
