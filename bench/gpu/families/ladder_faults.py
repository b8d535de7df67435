"""Faults in the process that tests a device, by the seam that the tests of the ladder use, and whether each is convicted.

The device itself stays sound: torch is broken from outside in one process (tests/agent/machine_tests/faults). What is broken
happens on the device: a bit is flipped in its memory, and a kernel really waits there.
"""

import os
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from gpu import environment
from gpu.kit import Measured, Stand
from hangdog_agent.machine_tests.level import Level, LevelOutcome, LevelResult, PartKind
from hangdog_agent.machine_tests.levels.alignment import Alignment
from hangdog_agent.machine_tests.levels.single_device import OneDevice
from hangdog_agent.machine_tests.settings import LevelSettings
from hangdog_agent.machine_tests.torch_engine import Engine, Probe, cleaned

_SEAM = environment.ROOT / "tests" / "agent" / "machine_tests" / "faults"
#: What a test that hangs is given: torch starts within ten seconds.
_HANG_S, _HANG_DRY_S = 20.0, 10.0
_DEADLINE_S = 45.0
#: The sound device is timed so often, for the slow one to be compared with.
_PEERS = 3


@dataclass(frozen=True, slots=True)
class InjectedFault:
    """`name` is the seam's. `found` is how it ought to come out, by the test that finds it: a failure that convicts, or an open end."""

    name: str
    what: str
    level: int
    test: str
    outcome: LevelOutcome = LevelOutcome.FAIL
    deadline_s: float = _DEADLINE_S
    #: Whether a dry run plays it, too; the others go the same way.
    dry: bool = False


_AT_ONCE = (
    InjectedFault("memory", "bit 40 of one word in each piece of memory flips after it is written", 1, "memory", dry=True),
    InjectedFault("product", "bit 4 of one element of each product flips", 1, "gemm"),
    InjectedFault("rare product", "the same in each ninth product only", 1, "gemm"),
    InjectedFault("rare gradient", "the lowest bit of a gradient flips in each third step", 4, "dense step", dry=True),
    InjectedFault("endless product", "a kernel waits for ever before the first product", 1, "device",
                  LevelOutcome.INCONCLUSIVE, _HANG_S, dry=True),
)  # fmt: skip
_SLOW = InjectedFault("slow", "the host holds each product back by a quarter of its time", 1, "speed")


def together(stand: Stand, probe: Probe, settings: LevelSettings) -> Measured:
    """All that are told by bits or by silence: what times they take does not count."""
    small = replace(settings, gemm_size=1024, alignment_repetitions=6, memory_share=0.01)
    chosen = [replace(fault, deadline_s=_HANG_DRY_S) if stand.dry and fault.deadline_s == _HANG_S else fault
              for fault in _AT_ONCE if not stand.dry or fault.dry]  # fmt: skip
    with ThreadPoolExecutor(len(chosen)) as pool:
        ran = list(pool.map(lambda fault: _found(fault, _level(stand, probe, small, fault)), chosen))
    figures = {fault.name: words for fault, (words, _) in zip(chosen, ran, strict=True)}
    return Measured(figures, [why for _, why in ran if why])


def slow(stand: Stand, probe: Probe, settings: LevelSettings, rate: float) -> tuple[str, str]:
    """A device that is a fifth slower than itself was a moment before, at `rate`; nothing else runs meanwhile.

    In a dry run it is compared with twice that, for other programs take the processor's time, too.
    """
    peers = (rate * (2.0 if stand.dry else 1.0),) * _PEERS
    level = _level(stand, probe, settings, _SLOW)
    assert isinstance(level, OneDevice)
    words, why = _found(_SLOW, replace(level, cohort_tflops=peers))
    return f"compared with {peers[0]:.4g} TFLOP/s; {words}", why


def _level(stand: Stand, probe: Probe, settings: LevelSettings, fault: InjectedFault | None) -> Level:
    environ = cleaned(os.environ)
    if fault is not None:
        program = "minigpt" if fault.level == 4 else "one_device"
        path = os.pathsep.join((str(_SEAM), str(environment.ROOT / "bench")))
        environ |= {"PYTHONPATH": path, "HANGDOG_TEST_FAULT": fault.name, "HANGDOG_TEST_VICTIM": program}
    engine = Engine(str(stand.python), environ)
    if fault is not None and fault.level == 4:
        return Alignment(engine, probe, settings)
    return OneDevice(engine, probe, settings)


def _found(fault: InjectedFault, level: Level) -> tuple[str, str]:
    """What came of it, in words; and what is wrong with that."""
    began = time.monotonic()
    results = level.run(fault.deadline_s, threading.Event())
    seconds = time.monotonic() - began
    met = [one for one in results if one.test == fault.test and one.outcome is fault.outcome]
    shown = met or [one for one in results if one.outcome is not LevelOutcome.PASS] or list(results[:1])
    words = "; ".join(f"{one.test} {one.outcome}: {one.message} {list(one.evidence[:2])}" for one in shown[:3])[:600]
    told = f"injected: {fault.what}. {seconds:.1f} s: {words}"
    return told, _wrong(fault, results, met, words)


def _wrong(fault: InjectedFault, results: Sequence[LevelResult], met: Sequence[LevelResult], words: str) -> str:
    convicted = [
        one for result in results for one in result.convicts if one.sort in (PartKind.DEVICE, PartKind.MACHINE)
    ]
    left = [one.message for one in results if one.test == "containment"]
    if left:
        return f"{fault.name}: {left}"
    if not met:
        return f"{fault.name} was not found: {words}"
    if fault.outcome is LevelOutcome.FAIL and not convicted:
        return f"{fault.name} convicts nobody: {words}"
    if fault.outcome is not LevelOutcome.FAIL and convicted:
        return f"{fault.name} convicts {convicted}: one that only does not answer proves nothing"
    return ""
