"""Kernels that end their own process's context: what NVML, the kernel log, the agent's checks and its reading of crashes make of each.

All is the fault of the program, so that no machine may be accused of it. Each trap strikes in a process of its own.
"""

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpu.families import nvml_here
from gpu.families.nvml_here import NvmlHere
from gpu.families.trap_process import TrapProcess
from gpu.kit import Measured, Part, Stand
from hangdog_agent.checks.check_paths import CheckPaths
from hangdog_agent.checks.check_result import CheckResult, CheckVerdict
from hangdog_agent.checks.check_scheduler import Checks
from hangdog_agent.checks.check_state import Notes
from hangdog_agent.checks.gpus.gpu import Gpus
from hangdog_agent.checks.gpus.nvml_client import Sweeper
from hangdog_agent.checks.kernel_log import Kernel
from hangdog_agent.checks.kmsg import Kmsg
from hangdog_agent.checks.settings import CheckSettings
from hangdog_agent.exits import last_words
from hangdog_agent.stalls.progress.logs import LastWords
from hangdog_models.exits import Exit, ending
from hangdog_models.findings import Impact
from hangdog_models.ranks import Rank

_KINDS = ("trap", "stray", "assert")
#: Checks look more often than an agent's, which adds up to 2 s to the kernel log and 10 s to NVML.
_SETTINGS = CheckSettings(kernel_every_s=0.5, gpu_every_s=1.0)
#: Torch is up, a trap has struck, and everybody has told of it, each within so long. Seconds.
_UP_S, _STRIKE_S, _TELL_S = 30.0, 10.0, 3.0
_TURN_S = 0.1
_RECORDS = 200_000
_RANK = Rank(0)
#: What the driver writes of each, and the Xid of the event, in a dry run.
_STAND_INS = {
    "trap": (13, "Graphics Exception: ESR 0x504730=0x107000e 0x504734=0x20 0x504728=0x4c1eb72 0x50472c=0x174"),
    "assert": (43, "Ch 00000008"),
}
_ACCUSES = (Impact.CONVICTS, Impact.RESET, Impact.SUSPECTS)


@dataclass(slots=True)
class Listeners:
    """Everybody who may tell of a trap: NVML's events, the kernel log, and the agent's checks on both."""

    nvml: NvmlHere
    checks: Checks
    gpus: Gpus
    events: TrapProcess
    kmsg: Kmsg
    why_no_log: str = ""
    told: list[tuple[float, CheckResult]] = field(default_factory=list)
    lines: list[tuple[float, str]] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)
    failed: str = ""

    def keep(self) -> None:
        """Until it is over; each result and line with the moment at which it was seen."""
        while not self.over.wait(_TURN_S):
            now = time.monotonic()
            try:
                self.told += [(now, one) for one in self.checks.tick(now, time.time())]  # noqa: TID251 - a bench's clock
                self.lines += [(now, one.text) for one in self.kmsg.records(_RECORDS) if "NVRM" in one.text]
            except Exception as error:  # noqa: BLE001 - a bug in a check is a figure, and the traps are still worth running
                self.failed = f"the checks failed: {type(error).__name__}: {error}"[:300]

    def wait_for_all(self) -> str:
        """Returns when all listen, for an event that nobody waits for is lost; says who does not."""
        heard = self.events.wait_for("listens", _UP_S)
        until = time.monotonic() + _TELL_S
        while not self.gpus.power() and time.monotonic() < until:
            time.sleep(_TURN_S)
        return "listened for" if heard else f"not listened for: {self.events.last()}"

    def since(self, at: float) -> dict[str, Any]:
        """What was told from `at` on, with the seconds after it."""
        events = [one for one in self.events.said() if one.get("at", 0.0) >= at]
        return {
            "events": [f"type {one['type']:#x} data {one['data']} after {one['at'] - at:.2f} s" for one in events],
            "log": [f"{text[:200]} (after {seen - at:.2f} s)" for seen, text in self.lines if seen >= at][:6],
            "checks": [
                f"{one.check}: {one.code} is {one.kind} ({one.finding.impact}) after {seen - at:.1f} s"
                for seen, one in self.told
                if seen >= at
            ],
        }

    def all_told(self, at: float) -> bool:
        """Whether both checks have told of something since, so that waiting on is of no use."""
        return {"gpu", "kernel"} <= {one.check for seen, one in self.told if seen >= at}


def parts(stand: Stand) -> Iterator[Part]:
    yield Part("traps/each", 45.0, measure)


def measure(stand: Stand) -> Measured:
    nvml = nvml_here.here(stand)
    folder = stand.folder("traps")
    kinds = tuple(_STAND_INS) if stand.dry else _KINDS
    dry = ("dry",) if stand.dry else ()
    with contextlib.ExitStack() as stack:
        listeners = stack.enter_context(_listening(stand, nvml))
        trainers = {
            kind: stack.enter_context(
                TrapProcess(
                    (str(stand.python), "-u", "-m", "gpu.trainers.trap", *dry, kind), nvml.environ, folder / kind
                )
            )
            for kind in (*kinds, "sound")
        }
        figures: dict[str, Any] = {}
        if stand.dry:
            figures["stand-ins"] = "torch's words are raised by hand; events and log lines are written by this bench"
        figures["kernel log"] = listeners.why_no_log or str(nvml.kmsg)
        figures["events"] = listeners.wait_for_all()
        wrong = []
        up = {kind: trainer.wait_for("ready", _UP_S) for kind, trainer in trainers.items()}
        wrong += [f"{kind}: torch did not start: {trainers[kind].last()}" for kind, ready in up.items() if not ready]
        for kind in kinds:
            if up[kind]:
                figures[kind], found = _struck(kind, trainers[kind], listeners)
                wrong += [f"{kind}: {words}" for words in found]
        if listeners.failed:
            wrong.append(listeners.failed)
        figures["checks that do not apply"] = dict(listeners.checks.unsupported())
        trainers["sound"].go()
        trainers["sound"].wait(_STRIKE_S)
        figures["a process beside them still computes"] = trainers["sound"].said()[-1:]
        if not any(one.get("sound") for one in trainers["sound"].said()):
            wrong.append(f"a process beside the traps does not compute any more: {trainers['sound'].last()}")
    return Measured(figures, wrong)


def _struck(kind: str, trainer: TrapProcess, listeners: Listeners) -> tuple[dict[str, Any], list[str]]:
    """One trap, and what came of it."""
    went = time.monotonic()
    trainer.go()
    status = trainer.wait(_STRIKE_S)
    broke = next((one["broke"] for one in trainer.said() if "broke" in one), None)
    if listeners.nvml.fake is not None:
        number, words = _STAND_INS[kind]
        listeners.nvml.fake.happen(0, f"8 {number}")
        listeners.nvml.log(f"NVRM: Xid (PCI:0000:1b:00): {number}, pid={trainer.pid}, name=python, {words}")
    until = time.monotonic() + _TELL_S
    while time.monotonic() < until and not listeners.all_told(went):
        time.sleep(_TURN_S)
    figures = {
        "exit status": status if status is not None else "it did not end, and was killed",
        "raised after s": round(broke - went, 2) if broke else "torch raised nothing",
        "torch says": trainer.last(),
        **listeners.since(went),
    }
    wrong = [] if broke else [f"torch raised nothing: {trainer.last()}"]
    for _, one in ((seen, one) for seen, one in listeners.told if seen >= went):
        if one.kind is not CheckVerdict.TELEMETRY:
            wrong.append(f"a check accuses the machine of what a program did: {one.code} is {one.kind}: {one.words}")
    crash, accused = _crash(trainer, status)
    return {**figures, **crash}, wrong + accused


def _crash(trainer: TrapProcess, status: int | None) -> tuple[dict[str, Any], list[str]]:
    """What the agent reads in its last words, and what it takes its end for."""
    key = (trainer.pid, 0)
    logged = last_words.findings(LastWords({frozenset({key}): trainer.errors()}, {}), {key: _RANK}, 1)
    how = ending([Exit(_RANK, status, time.monotonic())], logged)
    figures = {"last words": [f"{one.code} ({one.impact})" for one in logged] or "none known", "ending": str(how)}
    accused = [f"its last words accuse the machine: {one.what}" for one in logged if one.impact in _ACCUSES]
    return figures, accused


@contextlib.contextmanager
def _listening(stand: Stand, nvml: NvmlHere) -> Iterator[Listeners]:
    """Listens from before the first trap on; what stood in the log before is read and left aside."""
    places = CheckPaths(kmsg=nvml.kmsg)
    boot = places.boot()
    gpus = Gpus(_SETTINGS, Notes(None, boot), Sweeper(_SETTINGS, environ=nvml.environ))
    checks = Checks((Kernel(places, _SETTINGS, Notes(None, boot), gpus.at), gpus), _SETTINGS, boot)
    kmsg = Kmsg(nvml.kmsg)
    why = kmsg.open()
    for _ in kmsg.records(_RECORDS):
        pass
    command: Sequence[str] = (str(stand.python), "-u", "-m", "gpu.families.nvml_calls", "events")
    with TrapProcess(command, nvml.environ, stand.folder("events")) as events:
        listeners = Listeners(nvml, checks, gpus, events, kmsg, why)
        thread = threading.Thread(target=listeners.keep, daemon=True)
        thread.start()
        try:
            yield listeners
        finally:
            listeners.over.set()
            thread.join(_STRIKE_S)
            checks.close()
            kmsg.close()
