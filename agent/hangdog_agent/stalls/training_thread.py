"""Finds the thread that trains, in processes whose main thread only waits, such as Ray Train's; its CPU activity counts.

The kernel does not say which it is. So such a process is sampled once, and again when that thread has ended.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from hangdog_agent.capture.process_capture import CapturedProcess
from hangdog_agent.discovery.discover import Key, RankProcesses
from hangdog_agent.procfs import Proc
from hangdog_models.backoff import pause
from hangdog_models.training import training_thread

#: While no thread trains, as before the training function and after it, the next sample comes after so long, then after
#: twice as long, and so on; and at most so rarely. A sample takes 40 ms of a core. Seconds.
AGAIN_S, SELDOM_S = 3.0, 60.0

#: Trainers that are sampled at once.
TakeSamples = Callable[[Sequence[RankProcesses]], Mapping[Key, CapturedProcess]]


@dataclass(slots=True)
class _Found:
    """What is known of one process: `tid` 0 while no thread trains; not looked for again before `due`."""

    tid: int = 0
    due: float = float("-inf")
    tries: int = 0


class Threads:
    """The training threads of trainers that have one beside the main thread. Only one thread may use it."""

    def __init__(self, proc: Proc) -> None:
        self._proc = proc
        self._found: dict[Key, _Found] = {}

    def find(self, trainers: Mapping[Key, RankProcesses], samples: TakeSamples) -> dict[Key, int]:
        """By trainer the id of its training thread, 0 where there is none now; those that train in the main one are absent."""
        now = time.monotonic()
        self._found = {
            key: self._found.get(key) or _Found()
            for key, member in trainers.items()
            if member.process.announced is not None
        }
        for (pid, _), found in self._found.items():
            if found.tid and self._proc.schedstat(pid, found.tid) is None:
                found.tid, found.tries, found.due = 0, 0, now
        sought = [key for key, found in self._found.items() if not found.tid and found.due <= now]
        for key, seen in samples([trainers[key] for key in sought]).items() if sought else ():
            found, thread = self._found[key], training_thread(seen.threads, key[0])
            found.due = now + pause(found.tries, AGAIN_S, SELDOM_S)
            found.tries += 1
            if thread is not None and thread.tid not in (0, key[0]):
                found.tid = thread.tid
        return {key: found.tid for key, found in self._found.items()}
