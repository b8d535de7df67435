"""An agent of one machine as a program: it sees the trainers whose environment has NAME=VALUE, and the GPUs of this process's NVML.

`hangdog-agent --match-env` makes no checks, for of several agents on one host none knows whose machine it is. Here one does.
"""

import asyncio
import contextlib
import signal
import sys
import threading
import time

from hangdog_agent.capture import pyspy
from hangdog_agent.capture.process_capture import Tools
from hangdog_agent.checks.check_paths import CheckPaths
from hangdog_agent.checks.check_scheduler import Checks
from hangdog_agent.checks.check_state import Notes
from hangdog_agent.checks.checks_thread import ChecksThread
from hangdog_agent.checks.gpus.gpu import Gpus
from hangdog_agent.checks.settings import CheckSettings
from hangdog_agent.connection.identity import Identity
from hangdog_agent.connection.link import Link
from hangdog_agent.discovery.process_table import ProcessTable
from hangdog_agent.discovery.watch import Watch
from hangdog_agent.procfs import Proc
from hangdog_agent.settings import AgentSettings
from hangdog_agent.stalls.monitor import StallMonitor
from hangdog_models.rules.ruleset import packaged

#: Every second the GPUs are asked for everything.
CHECKS = CheckSettings(gpu_every_s=1.0, gpu_full_s=0.0)


async def serve(address: str, machine: str, name: str, value: str) -> None:
    """Keeps a line to the server until it is told to stop."""
    settings, boot, stop = AgentSettings(), CheckPaths().boot(), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    tools = Tools(Proc(), pyspy.load(), settings.capture, threading.Event())
    watch = Watch(ProcessTable(Proc(), frozenset([name])), (name, value), (), settings.link.forget_s)
    checks = Checks((Gpus(CHECKS, Notes(None, boot)),), CHECKS, boot)
    with contextlib.ExitStack() as stack:
        stack.callback(watch.close)
        keeper = stack.enter_context(ChecksThread(checks, machine, time.monotonic))
        monitor = StallMonitor(tools, packaged(), settings.stalls)
        await Link(Identity(address, machine, "live"), watch, monitor, tools, settings.link, keeper.findings).keep(stop)


if __name__ == "__main__":
    asyncio.run(serve(*sys.argv[1:5]))
