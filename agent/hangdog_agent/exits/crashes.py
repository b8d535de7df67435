"""Tells crashes of this machine's jobs: who ended, in what order, what they logged; nothing of a job that ended well."""

import logging
import os
import secrets
import time
from collections.abc import Callable, Collection, Sequence

from hangdog_agent.discovery.discover import Key, ProcessRole, RankProcesses
from hangdog_agent.discovery.watch import LocalJob
from hangdog_agent.exits import last_words
from hangdog_agent.exits.crash_monitor import CrashMonitor, Fall
from hangdog_agent.exits.crash_report import report
from hangdog_agent.exits.exit_watch import ExitWatch
from hangdog_agent.job_report import JobReport
from hangdog_agent.procfs import Proc
from hangdog_agent.stalls.progress.logs import LastWords
from hangdog_models.backoff import pause
from hangdog_models.exits import Ending, Exit, ending
from hangdog_models.findings import Finding

#: A job that crashes again and again is told of after so long, then after twice as long, and so on; at most so rarely. Seconds.
AGAIN_S, SELDOM_S = 60.0, 3600.0
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")

log = logging.getLogger(__name__)


class Crashes:
    """The crashes of this machine's jobs. Only one thread may `note` and `complete`; `close` it."""

    def __init__(self, proc: Proc, settle_s: float, findings: Callable[[], Sequence[Finding]]) -> None:
        """`findings` says what the checks of this machine have found."""
        self._proc, self._findings = proc, findings
        self._watch = ExitWatch(proc)
        self._monitor = CrashMonitor(settle_s)
        self._reports: dict[str, tuple[int, float]] = {}

    def note(self, members: Sequence[RankProcesses], here: Sequence[LocalJob]) -> dict[Key, RankProcesses]:
        """Takes in who runs and who ended; those whose last words are to be read."""
        self._monitor.end(self._watch.ended())  # before: who ended is not among the members any more
        self._monitor.see(members, here)
        trainers = {one.process.key: one for one in members if one.kind is ProcessRole.TRAINER}
        awaited = {*trainers, *self._launchers(list(trainers.values()))}
        self._watch.follow(awaited - self._monitor.dead())  # who is not reaped would end again and again
        return self._monitor.falling()

    def complete(self, words: Callable[[Collection[Key]], LastWords]) -> list[JobReport]:
        """The crashes that are complete; `words` answers what trainers wrote last."""
        now = time.monotonic()
        found = []
        for fall in self._monitor.fallen(now):
            if (crash := self._judged(fall, words(fall.trainers.keys()), now)) is not None:
                self._monitor.ignore(fall)
                found.append(crash)
        return found

    def close(self) -> None:
        """Waits for no process any more."""
        self._watch.close()

    def _launchers(self, trainers: Sequence[RankProcesses]) -> list[Key]:
        """What started them, where that is no trainer itself."""
        pids = {one.process.parent for one in trainers} - {one.process.pid for one in trainers} - {0, 1}
        stats = (self._proc.stat(pid) for pid in pids)
        return [(stat.pid, stat.started) for stat in stats if stat is not None]

    def _judged(self, fall: Fall, words: LastWords, now: float) -> JobReport | None:
        ranks = {key: member.rank for key, member in fall.trainers.items()}
        logged = last_words.findings(words, ranks, fall.job.world_size)
        booted = time.clock_gettime(time.CLOCK_BOOTTIME) - now
        exits = [
            Exit(ranks[key], one.status, one.at, one.oom, max(0.0, booted + one.at - key[1] / _TICKS_PER_S))
            for key, one in fall.ended.items()
        ]
        how = ending(exits, logged, fall.launcher_s)
        job = fall.job.key
        if how is not Ending.CRASHED:
            log.info("job %s: %d of its ranks here ended: %s", job, len(exits), how)
            return None
        count, before = self._reports.get(job, (0, now - SELDOM_S))
        if now - before >= SELDOM_S:
            count = 0
        elif now - before < pause(count - 1, AGAIN_S, SELDOM_S):
            log.warning("job %s crashed again: repeated crashes are reported rarely", job)
            return None
        self._reports = {name: one for name, one in self._reports.items() if now - one[1] < SELDOM_S} | {
            job: (count + 1, now)
        }
        message = report(fall, exits, logged, self._findings(), secrets.token_hex(8))
        log.warning("job %s crashed: %s", job, message.why)
        return JobReport(fall.job, message, min(one.at_s for one in exits))
