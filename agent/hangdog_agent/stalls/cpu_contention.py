"""How crowded this machine's cores are: work takes so much longer there, and no longer than that is strange."""

import os
from collections import deque

from hangdog_agent.procfs import Proc

#: Beats it is taken over: as long as the shortest patience with somebody at work.
_BEATS = 8
#: Nobody is borne for longer than this many times: where a fault itself makes the crowd, somebody must look at last.
_MOST = 4.0


class Crowding:
    """The threads that want to run, per core, over the latest beats."""

    def __init__(self, proc: Proc, cores: int | None = None) -> None:
        self._proc = proc
        self._cores = cores or os.cpu_count() or 1
        self._runnable: deque[int] = deque(maxlen=_BEATS)

    def feel(self) -> None:
        """Takes the next beat; where the kernel does not tell, cores are taken to be free."""
        runnable = self._proc.runnable()
        if runnable is not None:
            self._runnable.append(runnable)

    @property
    def factor(self) -> float:
        """So many times longer than on free cores work takes: 1 to 4.

        The emptiest beat counts, and one thread a core is none too many: the work itself (a compilation's own processes)
        fills as many, and must not excuse it.
        """
        return min(_MOST, max(1.0, min(self._runnable, default=0) / self._cores - 1.0))
