"""Takes the process table: one pass over /proc that never waits for a process stuck in the kernel.

Reading a command line or an environment needs the target's memory map. A thread that hangs in the kernel may hold its
lock, and then the reader hangs too, unkillably slow for a thread of ours. So what does not change is read once for each
process, and processes with a thread in uninterruptible sleep are read by a child that can be killed.

Nor may it cost much: a machine has thousands of kernel threads, and reading a line of each every two seconds would take
several percent of a core. Every pass lists all processes, so who is new or gone is known at once; of those that are neither
new nor trainers, only a part is read again in each pass, and kernel threads never.
"""

import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hangdog_agent.confinement import confined_children, credentials
from hangdog_agent.confinement.confined_children import Child, ChildLimits
from hangdog_agent.confinement.credentials import CredentialsRefused
from hangdog_agent.confinement.subprocesses import run
from hangdog_agent.discovery import command_line, discover, environ_names, ray_train
from hangdog_agent.discovery.announced import Announced
from hangdog_agent.discovery.command_line import CommandLine
from hangdog_agent.discovery.owners import owner
from hangdog_agent.discovery.siblings import Siblings
from hangdog_agent.procfs import Proc, Stat, parse_arguments, parse_environ
from hangdog_models.owner import UNKNOWN, Owner
from hangdog_models.ranks import Rank
from hangdog_models.stack import Reason

#: Reading a file of /proc takes microseconds; a child that needs this long hangs.
_RISKY_READ_S = 0.5
#: All risky reads of one pass; whoever is not reached is read by a later pass.
_RISKY_PASS_S = 2.0
#: What reads a file of /proc needs for it.
_RISKY = Child(ChildLimits(), capabilities=(confined_children.SYS_PTRACE, confined_children.DAC_READ_SEARCH))
#: A process that could not be read is left alone for so long.
_RETRY_S = 30.0
#: As much of an environment or a command line as procfs.py reads itself.
_MOST_BYTES = 1 << 20
#: Arguments kept of a command line: what tells a program stands at its front.
_MOST_ARGUMENTS = 64
#: What has settled is read again once in so many passes, a minute: it may have become another program by exec.
TURNS = 16
#: An exec usually comes early in a process's life, and whoever is younger is read in every pass.
YOUNG_S = 30.0
#: Whose a trainer is, which may change without an exec, is asked again once in so many passes, and while it is young in each.
OWNER_TURNS = 4
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
#: A log of Ray's that was there is read so often at most until it tells all: its first lines are written within a second.
_LOG_READS = 8
#: The variables that give a process a rank, or a part in a job whose ranks are told otherwise.
_RANKS = environ_names.OWN_RANKS | {"LOCAL_RANK", "NODE_RANK"}


@dataclass(frozen=True, slots=True)
class _ProcessFacts:
    """What a process tells of itself; it changes only with an exec, which changes `image` or `comm`.

    `announced` is what Ray says of it in a log, which was read `log_reads` times, or what its connections tell. `options` is what
    its command line does. `owner` and `container` are the kernel's words of a process that may be a trainer.
    """

    comm: str
    image: int
    python: bool
    arguments: tuple[str, ...]
    environ: dict[str, str]
    permitted: bool
    announced: Announced | None = None
    options: CommandLine = command_line.SILENT
    log_reads: int = 0
    owner: Owner = UNKNOWN
    container: str = ""

    @property
    def ranked(self) -> bool:
        """Whether it may be a trainer, a worker of one, or a launcher."""
        known = self.announced is not None or self.options.rank is not None
        return self.python and (known or not _RANKS.isdisjoint(self.environ))

    @property
    def waits(self) -> bool:
        """Whether Ray may yet have it train, or say more of it."""
        if self.comm != ray_train.WORKER:
            return self.comm == ray_train.IDLE
        known = self.announced is not None and self.announced.world_size > 0
        return not known and self.log_reads < _LOG_READS


@dataclass(slots=True, eq=False)
class _Known:
    """A process as it was last read; once it has settled that may be some passes ago.

    `kernel`: one of the kernel's own threads, which never become anything else. `aside`: neither it nor anybody above it
    may be a trainer, so it can only matter as an ancestor.
    """

    row: discover.Process
    facts: _ProcessFacts | None
    kernel: bool
    settled: bool = False
    aside: bool = False

    @property
    def ranked(self) -> bool:
        return self.facts is not None and self.facts.ranked

    def is_still(self, stat: Stat) -> bool:
        """Whether it is the same process, with the parent and the program that are known: then all else may stay as it is."""
        facts = self.facts
        return (
            facts is not None
            and (self.row.started, self.row.parent) == (stat.started, stat.parent)
            and (facts.comm, facts.image) == (stat.comm, stat.image)
        )


class ProcessTable:
    """The process table of this machine, taken again and again; `names` are environment variables to keep beside the allowed.

    `ray_logs`: whether the logs of Ray's workers are read, which tell their ranks.
    """

    def __init__(
        self,
        proc: Proc,
        names: frozenset[str] = frozenset(),
        stop: threading.Event | None = None,
        ray_logs: bool = True,
    ) -> None:
        self.proc = proc
        self._ray_logs = ray_logs
        self._names = environ_names.ALLOWED | names
        self._stop = stop
        self._known: dict[int, _Known] = {}
        self._passes = 0
        #: Who began later, in ticks after boot, is young.
        self._young = 0.0
        self._avoided: dict[tuple[int, int], float] = {}
        self._siblings = Siblings(proc, environ_names.OWN_RANKS)
        self._named: dict[int, Announced] = {}
        self._lock = threading.Lock()

    def take(self) -> tuple[discover.Process, ...]:
        """All processes now, less those that have to do with no trainer. A zombie keeps what it told while it lived.

        State and CPU time of what is not young may be old ones, but for whether it is a zombie. Rows that did not change
        are the same objects as before.
        """
        with self._lock:
            now = time.monotonic()
            risky_until = now + _RISKY_PASS_S
            self._young = (time.clock_gettime(time.CLOCK_BOOTTIME) - YOUNG_S) * _TICKS_PER_S
            pids = self.proc.pids()
            for gone in self._known.keys() - pids:
                del self._known[gone]
            self._passes += 1
            due = [
                pid
                for pid in pids
                if (known := self._known.get(pid)) is None
                or not known.settled
                or ((pid + self._passes) % TURNS == 0 and not known.kernel)
            ]
            before = {pid: self._known.get(pid) for pid in due}
            for pid in due:
                self._read(pid, now, risky_until)
            for (pid, _), announced in self._siblings.look(known.row for known in self._known.values()).items():
                self._announce(pid, announced)
            for pid in self._named.keys() & self._known.keys():
                self._announce(pid, self._named[pid])
            anew = [
                pid
                for pid in due
                if (known := self._known.get(pid)) is not before[pid] or (known and not known.settled)
            ]
            # whoever is below one that has become a trainer may matter from now on
            self._settle(tuple(self._known) if any(self._became_ranked(pid, before[pid]) for pid in anew) else anew)
            self._avoided = {key: until for key, until in self._avoided.items() if until > now}
            return self._rows()

    def name_ranks(self, pids: Sequence[int]) -> None:
        """From the next pass on, these Python processes are the ranks 0, 1, … of one job, for a person said so."""
        with self._lock:
            self._named = {
                pid: Announced(Rank(at), len(pids), "", source="--pid", presumed=True) for at, pid in enumerate(pids)
            }

    def _announce(self, pid: int, announced: Announced) -> None:
        """Notes a rank that connections tell."""
        facts = self._known[pid].facts
        if facts is None or facts.announced == announced:
            return
        whose, inside = owner(self.proc, pid)
        facts = replace(facts, announced=announced, owner=whose, container=inside)
        row = replace(self._known[pid].row, announced=announced, owner=whose, container=inside)
        self._known[pid] = _Known(row, facts, kernel=False)

    def _became_ranked(self, pid: int, before: _Known | None) -> bool:
        known = self._known.get(pid)
        return known is not None and known.ranked and before is not None and not before.ranked

    def _settle(self, pids: Sequence[int]) -> None:
        for known in (self._known[pid] for pid in pids if pid in self._known):
            above = self._above(known)
            known.settled = known.row.started < self._young and _may_rest(
                known.facts, above[0].facts if above else None
            )
            final = known.facts is not None and not known.facts.waits  # Ray may yet have a young one train
            known.aside = final and not any(each.ranked for each in (known, *above))

    def _rows(self) -> tuple[discover.Process, ...]:
        near = [known for known in self._known.values() if not known.aside]
        above = {each.row.pid: each for known in near if known.ranked for each in self._above(known) if each.aside}
        return tuple(known.row for known in (*near, *above.values()))

    def _above(self, known: _Known) -> list[_Known]:
        """The ancestors, upwards; a table read while processes come and go may even hold a circle."""
        found: list[_Known] = []
        while (parent := self._known.get(known.row.parent)) is not None and parent not in found and parent is not known:
            found.append(parent)
            known = parent
        return found

    def unreadable(self) -> int:
        """How many Python processes of the last pass kept their environment from us: a trainer may be among them."""
        with self._lock:
            reported = [known.facts for known in self._known.values() if known.facts is not None]
            return sum(each.python and not each.permitted for each in reported)

    def _read(self, pid: int, now: float, risky_until: float) -> None:
        """Takes a process as it is now, or notes that it is gone."""
        stat, known = self.proc.stat(pid), self._known.get(pid)
        if stat is None:
            self._known.pop(pid, None)
            return
        if known is not None and known.aside and known.is_still(stat):
            return
        reported = known.facts if known is not None and known.row.started == stat.started else None
        if reported is None or (reported.comm, reported.image) != (stat.comm, stat.image):
            reported = self._ask(stat, reported, now, risky_until) or reported
        if (
            self._ray_logs
            and reported is not None
            and reported.comm == ray_train.WORKER
            and reported.waits
            and time.monotonic() < risky_until
        ):
            announced, there = ray_train.find(self.proc, pid, lambda path: self._beginning(pid, path))
            reported = replace(
                reported, announced=announced or reported.announced, log_reads=reported.log_reads + there
            )
        if reported is not None and reported.ranked and stat.state not in "ZX" and self._asks_owner(stat, reported):
            whose, inside = owner(self.proc, pid)
            if whose.known and (whose, inside) != (reported.owner, reported.container):
                reported = replace(reported, owner=whose, container=inside)
        if known is not None and known.is_still(stat) and reported is known.facts and self._may_stay(known.row, stat):
            return
        self._known[pid] = _Known(_row(stat, reported), reported, stat.kernel)

    def _may_stay(self, row: discover.Process, stat: Stat) -> bool:
        """Whether its row may stay as it was: it lives as it did, and its CPU time counts only where two claim a rank."""
        return self._passes % TURNS != 0 and row.started < self._young and (row.state in "ZX") == (stat.state in "ZX")

    def _asks_owner(self, stat: Stat, reported: _ProcessFacts) -> bool:
        turn = (stat.pid + self._passes) % OWNER_TURNS == 0
        return turn or stat.started >= self._young or not reported.owner.known

    def _ask(self, stat: Stat, before: _ProcessFacts | None, now: float, risky_until: float) -> _ProcessFacts | None:
        """Reads what a process tells of itself; None when it is ending, or hangs, or is left for later."""
        key = (stat.pid, stat.started)
        if stat.state in "ZX" or self._avoided.get(key, now) > now:
            return None
        risky = any(
            (thread := self.proc.stat(stat.pid, tid)) and thread.state == "D" for tid in self.proc.tids(stat.pid)
        )
        if risky and time.monotonic() >= risky_until:
            return None
        environ, cmdline = (
            self._risky(stat.pid, name) if risky else self.proc.raw(stat.pid, name) for name in ("environ", "cmdline")
        )
        if environ is Reason.TIMED_OUT or cmdline is Reason.TIMED_OUT:
            self._avoided[key] = now + _RETRY_S
            return None
        if environ is Reason.EXITED and before is not None:  # on its way out, its memory already gone
            return None
        arguments = parse_arguments(cmdline)
        python = discover.is_python(self.proc.executable(stat.pid), arguments)
        return _ProcessFacts(
            comm=stat.comm,
            image=stat.image,
            python=python,
            arguments=arguments[:_MOST_ARGUMENTS],
            options=command_line.read(arguments) if python else command_line.SILENT,
            environ={} if isinstance(environ, Reason) else parse_environ(environ, self._names),
            permitted=environ is not Reason.NOT_PERMITTED,
        )

    def _beginning(self, pid: int, path: str) -> bytes | None:
        """The beginning of a file that a process has open, read as its user; it may lie on a server that is dead."""
        try:
            who = credentials.of_its_own(pid, os.fspath(self.proc.root))
        except (CredentialsRefused, ProcessLookupError):
            return None
        command = ("head", "-c", str(ray_train.BYTES), path)
        outcome = run(
            command, _RISKY_READ_S, ray_train.BYTES, stop=self._stop, child=confined_children.tool(who, ChildLimits())
        )
        return outcome.stdout if outcome.status == 0 else None

    def _risky(self, pid: int, name: str) -> bytes | Reason:
        path = os.fspath(self.proc.root / str(pid) / name)
        outcome = run(("cat", path), _RISKY_READ_S, _MOST_BYTES, stop=self._stop, child=_RISKY)
        if outcome.status == 0:
            return outcome.stdout
        if outcome.status is None:
            return Reason.TIMED_OUT
        return Reason.NOT_PERMITTED if "Permission denied" in outcome.stderr else Reason.EXITED


def _may_rest(reported: _ProcessFacts | None, above: _ProcessFacts | None) -> bool:
    """Whether most passes may leave a process out: it has no rank, or inherited all it has, as a trainer's workers do."""
    if reported is None or reported.waits:
        return False
    return not reported.ranked or (above is not None and above.ranked and above.environ == reported.environ)


def _row(stat: Stat, reported: _ProcessFacts | None) -> discover.Process:
    return discover.Process(
        pid=stat.pid,
        parent=stat.parent,
        started=stat.started,
        state=stat.state,
        comm=stat.comm,
        python=reported.python if reported else False,
        arguments=reported.arguments if reported else (),
        environ=reported.environ if reported else None,
        cpu_ticks=stat.cpu_ticks,
        announced=reported.announced if reported else None,
        options=reported.options if reported else command_line.SILENT,
        owner=reported.owner if reported else UNKNOWN,
        container=reported.container if reported else "",
    )
