"""An agent reads less while all trainers here make progress, and as often as it can as soon as one rests or ends."""

import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace

from hangdog_agent.capture.process_capture import Tools
from hangdog_agent.discovery.discover import find
from hangdog_agent.discovery.process_table import ProcessTable
from hangdog_agent.procfs import Proc
from hangdog_agent.stalls.monitor import StallMonitor
from hangdog_agent.stalls.settings import StallSettings
from hangdog_models.rules.ruleset import packaged
from support.fakes import targets

#: Alternates between work and waits, as training does.
TRAINS = 'import time\nprint("ready", flush=True)\nwhile True:\n    sum(range(100000))\n    time.sleep(0.01)'
SETTINGS = StallSettings(beat_s=0.25, calm_beats=3, settle_s=0.5)


def test_calm_ends_with_the_first_rank_that_rests_or_ends(tools: Tools) -> None:
    tools = replace(tools, stop=threading.Event())
    monitor = StallMonitor(tools, packaged(), SETTINGS)
    assert (monitor.calm, monitor.next_s) == (False, 0.25)
    environ = {"RANK": "0", "WORLD_SIZE": "2", "HANGDOG_JOB": "calm"}
    with (
        targets.running(TRAINS, environ=environ, settles=False) as one,
        targets.running(TRAINS, environ={**environ, "RANK": "1"}, settles=False) as two,
    ):
        pids = {one.pid, two.pid}
        members = [member for member in find(ProcessTable(Proc()).take()) if member.process.pid in pids]

        def ticked(is_so: Callable[[], bool]) -> bool:
            time.sleep(SETTINGS.beat_s)
            monitor.tick(members)
            return is_so()

        targets.until(lambda: ticked(lambda: monitor.calm))
        assert monitor.next_s == 0.75
        two.send_signal(signal.SIGSTOP)
        targets.until(lambda: ticked(lambda: not monitor.calm))
        assert monitor.next_s == 0.25
        two.send_signal(signal.SIGCONT)
        targets.until(lambda: ticked(lambda: monitor.calm))
        targets.end(two)
        assert ticked(lambda: not monitor.calm), "who is missing is looked for"
    monitor.close()
