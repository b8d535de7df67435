"""Puts the ends of a job's trainers together: one fall of a job, once those who follow the first one have ended, too.

`now` is of `time.monotonic`; nothing here waits or reads.
"""

from collections.abc import Iterable, KeysView, Mapping, Sequence
from dataclasses import dataclass, field

from hangdog_agent.discovery.discover import Key, ProcessRole, RankProcesses
from hangdog_agent.discovery.watch import LocalJob
from hangdog_agent.exits.exit_watch import ProcessExit

#: Once all have ended, the launcher has so long to say what it saw, and the kernel's log to be read. Seconds.
LAST_WORDS_S = 1.5
#: Processes of which it is remembered that they ended, for the process table tells of them until it is taken again.
_DEAD = 4096


@dataclass(frozen=True, slots=True)
class Fall:
    """Trainers of one job that ended near to each other, of all that ran; `launcher_s` is when SIGKILL ended its launcher."""

    job: LocalJob
    trainers: Mapping[Key, RankProcesses]
    ended: Mapping[Key, ProcessExit]
    launcher_s: float | None = None


@dataclass(slots=True)
class _Life:
    """One start of a job here, as far as it is known."""

    job: LocalJob
    trainers: dict[Key, RankProcesses]
    ended: dict[Key, ProcessExit] = field(default_factory=dict)
    missed: frozenset[Key] = frozenset()


@dataclass(slots=True)
class CrashMonitor:
    """The jobs of this machine. A fall is told `settle_s` after its first end, or soon after its last one."""

    settle_s: float
    _runs: dict[str, _Life] = field(default_factory=dict)
    _dead: dict[Key, None] = field(default_factory=dict)
    _launchers: dict[Key, float] = field(default_factory=dict)

    def see(self, members: Sequence[RankProcesses], here: Iterable[LocalJob]) -> None:
        """Takes in who runs; while a job falls, who is started anew is of its next life.

        Who is not among them any more may have ended just now, and is kept until its end should be known.
        """
        jobs = {job.key: job for job in here}
        found: dict[str, dict[Key, RankProcesses]] = {}
        for member in members:
            if member.kind is ProcessRole.TRAINER and member.process.key not in self._dead:
                found.setdefault(member.key, {})[member.process.key] = member
        for name, trainers in found.items():
            life = self._runs.get(name)
            if name in jobs and life is None:
                self._runs[name] = _Life(jobs[name], trainers)
        for name, life in list(self._runs.items()):
            if life.ended:
                continue
            trainers = found.get(name, {})
            missed = {key: member for key, member in life.trainers.items() if key not in trainers}
            kept = {key: member for key, member in missed.items() if key not in life.missed and key not in self._dead}
            if not trainers and not kept:
                del self._runs[name]
            else:
                stated = life.job if kept else jobs.get(name, life.job)
                self._runs[name] = _Life(stated, {**kept, **trainers}, missed=frozenset(kept))

    def end(self, ended: Iterable[ProcessExit]) -> None:
        """Takes in who ended: trainers, and what had started them."""
        for one in ended:
            life = next((life for life in self._runs.values() if one.key in life.trainers), None)
            if life is not None:
                life.ended.setdefault(one.key, one)
            elif one.status == -9:
                self._launchers = dict([*self._launchers.items(), (one.key, one.at)][-_DEAD:])
            self._dead = dict([*self._dead.items(), (one.key, None)][-_DEAD:])

    def dead(self) -> KeysView[Key]:
        """Those whose end is known: nobody need wait for them again while their parents let them lie."""
        return self._dead.keys()

    def falling(self) -> dict[Key, RankProcesses]:
        """The trainers that ended and are not told of yet."""
        return {key: life.trainers[key] for life in self._runs.values() for key in life.ended}

    def fallen(self, now: float) -> list[Fall]:
        """The falls that are complete."""
        found = []
        for name, life in list(self._runs.items()):
            if not life.ended:
                continue
            times = [one.at for one in life.ended.values()]
            all_of_them = life.ended.keys() >= life.trainers.keys() and now - max(times) >= LAST_WORDS_S
            if all_of_them or now - min(times) >= self.settle_s:
                del self._runs[name]
                parents = {member.process.parent for member in life.trainers.values()}
                killed = [at for (pid, _), at in self._launchers.items() if pid in parents]
                found.append(Fall(life.job, life.trainers, life.ended, max(killed, default=None)))
        return found

    def ignore(self, fall: Fall) -> None:
        """Those that a crash left are its crowd: their ends are no crash of their own."""
        self._dead |= dict.fromkeys(fall.trainers)
