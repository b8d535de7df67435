"""CPU and memory of an agent that has nothing to do, and where the CPU goes."""

import statistics
import time
from collections.abc import Callable

from hangdog_agent.capture.process_capture import Tools
from hangdog_agent.capture.settings import CaptureSettings
from hangdog_agent.discovery.discover import find
from hangdog_agent.discovery.process_table import ProcessTable
from hangdog_agent.procfs import Proc
from hangdog_agent.stalls.monitor import StallMonitor
from hangdog_agent.stalls.settings import StallSettings
from hangdog_models.rules.ruleset import packaged
from hangdog_models.stack import Missing, Reason
from overhead.stage import MARK, CpuUsed, cpu_s, memory_mib, met, rank_environ, stage

#: The bounds: of one core, and in MiB.
MOST_CPU, MOST_RSS = 0.005, 80
#: Stand-ins: those of a machine with 8 GPUs.
TRAINERS, WORKERS = 8, 8
#: More processes that have nothing to do with training: none, and as many as a machine with 200 cores has kernel threads.
#: These cannot be made, so the more expensive sleepers stand for them: kernel threads are listed, but never read again.
STRANGERS = (0, 2000)
#: Until the agent has read everybody's environment, knows all pulses, and new processes are no news any more. Seconds.
SETTLE_S = 45.0
#: CPU is read so often: the kernel counts it in hundredths of a second. Seconds.
WINDOW_S = 10.0
#: Stand-ins that other work keeps from running would be sampled, as trainers are that stand still: that is no idleness.
UNSUSPICIOUS = ("--set", "suspicious_s=36000")
#: How often each part is measured by itself.
TIMES = 20

STAND_IN = """
import ctypes, os, signal, sys, time
for _ in range(int(sys.argv[1])):
    if os.fork() == 0:
        ctypes.CDLL(None).prctl(15, b"pt_data_worker")  # PR_SET_NAME
        signal.pause()
os.write(1, b"ready\\n")
while True:
    sum(range(20000))
    time.sleep(0.05)
"""
#: Sleeping processes that have nothing to do with a job, as kernel threads have not.
SLEEPERS = """
import os, sys
many = 'for i in $(seq "$1"); do sleep 3600 & done; echo ready; wait'
os.execve("/bin/sh", ["sh", "-c", many, "sh", sys.argv[1]], {})
"""


def idle(windows: int) -> None:
    """Prints a row for each number of strangers; CPU in shares of one core, over `windows` windows."""
    print(
        f"\nidle: {TRAINERS} trainers and {TRAINERS * WORKERS} loader workers (stand-ins), {windows} windows of {WINDOW_S:g} s;"
        " CPU of one core, on average: of the agent, of its readers of files, of tools; CPU of one scan, find, pulse"
    )
    print(
        "  processes    agent  readers     both      max    tools   RSS MiB   peak      a scan     find  a pulse   bounds"
    )
    for number in STRANGERS:
        with stage() as here:
            here.start("strangers", "-c", SLEEPERS, str(number), says="ready")
            for rank in range(TRAINERS):
                here.start(f"rank-{rank}", "-c", STAND_IN, str(WORKERS), says="ready", **rank_environ(rank, TRAINERS))
            agent = here.agent(*UNSUSPICIOUS)
            time.sleep(SETTLE_S)
            used = [window(agent.pid) for _ in range(windows)]
            own, readers, tools = (statistics.fmean(part) for part in zip(*used, strict=True))
            most = max(one.own + one.readers for one in used)
            rss, peak = memory_mib(agent.pid, "VmRSS"), memory_mib(agent.pid, "VmHWM")
            scan, finding, pulse = parts()
            print(
                f"  {len(Proc().pids()):9} {own:8.3%} {readers:8.3%} {own + readers:8.3%} {most:8.3%} {tools:8.3%}"
                f"   {rss:7.1f} {peak:6.1f}   {1000 * scan:6.2f} ms {1000 * finding:5.2f} ms {1000 * pulse:5.2f} ms"
                f"   {MOST_CPU:.1%} {met(own + readers < MOST_CPU)}, {MOST_RSS} MiB {met(peak < MOST_RSS)}",
                flush=True,
            )


def window(pid: int) -> CpuUsed:
    """What is used in one of them, as shares of a core."""
    before, began = cpu_s(pid), time.monotonic()
    time.sleep(WINDOW_S)
    after, took = cpu_s(pid), time.monotonic() - began
    return CpuUsed(*((now - then) / took for now, then in zip(after, before, strict=True)))


def parts() -> tuple[float, float, float]:
    """CPU seconds of one scan of the process table, of finding the members in it, and of one reading of all pulses."""
    proc = Proc()
    census = ProcessTable(proc, frozenset({MARK[0]}))
    rows = census.take()
    members = find(rows, MARK)
    untouched = Tools(proc, Missing(Reason.TOOL_MISSING, "nobody is to be glanced at"), CaptureSettings())
    vigil = StallMonitor(untouched, packaged(), StallSettings())
    return _cost(census.take), _cost(lambda: find(rows, MARK)), _cost(lambda: vigil.tick(members))


def _cost(work: Callable[[], object]) -> float:
    began = time.process_time()
    for _ in range(TIMES):
        work()
    return (time.process_time() - began) / TIMES
