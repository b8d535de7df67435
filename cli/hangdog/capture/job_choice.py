"""Which of the jobs that run here is captured, and which of its ranks."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from hangdog_agent.discovery.discover import ProcessRole, RankProcesses
from hangdog_agent.discovery.watch import LocalJob, jobs
from hangdog_models.counts import counted, named
from hangdog_models.errors import UnreadableEvidence, WrongUse
from hangdog_models.ranks import Rank, format_ranks
from hangdog_models.reading.printable import printable

#: What lists all that was found.
_LISTED = "`hangdog capture --dry-run` lists what is found here"
#: What is needed to see, and to read, the processes of others.
RIGHTS = "run it as root (`sudo hangdog capture`), or as the trainers' user with CAP_SYS_PTRACE; `hangdog doctor` says what is in the way"


@dataclass(frozen=True, slots=True)
class JobChoice:
    """A job of this machine, and the ranks of it that are meant, ascending; by which processes, if those were named."""

    job: LocalJob
    ranks: tuple[Rank, ...]
    pids: frozenset[int] = frozenset()

    def of(self, members: Sequence[RankProcesses]) -> list[RankProcesses]:
        """The processes that are meant.

        Where a rank is claimed twice, by what an earlier run left behind, the process that was named is its trainer.
        """
        meant = [member for member in members if member.key == self.job.key and member.rank in self.ranks]
        if not self.pids:
            return meant
        parents = {member.process.pid: member.process.parent for member in meant}
        tops = {pid: _top(pid, parents) for pid in parents}
        named_ = {tops[pid] for pid in self.pids & parents.keys()}
        return [
            replace(member, kind=ProcessRole.TRAINER) if member.process.pid in named_ else member
            for member in meant
            if tops[member.process.pid] in named_
        ]


def _top(pid: int, parents: Mapping[int, int]) -> int:
    """The highest ancestor of a process among these; a table read while processes come and go may hold a circle."""
    seen = {pid}
    while (above := parents[pid]) in parents and above not in seen:
        seen.add(above)
        pid = above
    return pid


def choose(members: Sequence[RankProcesses], job: str = "", pids: Collection[int] = (), hidden: int = 0) -> JobChoice:
    """The one job of this name (empty: of any), narrowed to the ranks of these processes where there are some.

    `hidden`: so many Python processes keep their environment from us. Raises UnreadableEvidence where nothing is found,
    WrongUse where several jobs fit or a process belongs to none.
    """
    here = jobs(members)
    if not here:
        raise _nothing(hidden)
    fitting = [one for one in here if not job or job in (one.name, one.key)]
    if not fitting:
        what = f"no job called {printable(job, 80)} runs here"
        raise WrongUse(what, f"these do: {named([one.key for one in here])}", code="no-such-job")
    ranks: tuple[Rank, ...] = ()
    if pids:
        meant = _of_processes(members, pids)
        fitting = [one for one in fitting if one.key in {member.key for member in meant}]
        ranks = tuple(sorted({member.rank for member in meant}))
    if len(fitting) != 1:
        listed = "; ".join(f"{printable(one.key, 80)} (ranks {format_ranks(one.ranks)})" for one in fitting)
        what = f"{counted(len(fitting), 'job')} of this machine fit: {listed}" if fitting else "no job fits"
        raise WrongUse(what, "name one with --job", code="ambiguous-job")
    chosen = JobChoice(fitting[0], ranks or fitting[0].ranks, frozenset(pids))
    trainers = [one.rank for one in chosen.of(members) if one.kind is ProcessRole.TRAINER] if pids else []
    if twice := sorted({rank for rank in trainers if trainers.count(rank) > 1}):
        what = f"two of these processes claim rank {twice[0]}"
        raise WrongUse(what, f"name one of them; {_LISTED}", code="rank-named-twice")
    return chosen


def _of_processes(members: Sequence[RankProcesses], pids: Collection[int]) -> list[RankProcesses]:
    meant = [member for member in members if member.process.pid in pids]
    lacking = sorted(set(pids) - {member.process.pid for member in meant})
    if lacking:
        what = f"no training process here owns {counted(len(lacking), 'process', 'processes')}"
        raise WrongUse(f"{what} {', '.join(map(str, lacking))}", _LISTED, code="no-such-process")
    if len({member.key for member in meant}) > 1:
        raise WrongUse("these processes belong to different jobs", _LISTED, code="different-jobs")
    return meant


def _nothing(hidden: int) -> UnreadableEvidence:
    if hidden:
        kept = counted(hidden, "Python process keeps its environment", "Python processes keep their environment")
        return UnreadableEvidence(
            f"no training process found here, but {kept} from you", RIGHTS, code="unreadable-processes"
        )
    return UnreadableEvidence(
        "no training process found here",
        "ranks are found by RANK, a launcher's variables, command lines and connections; or name its processes, rank 0 first: --pid PID --pid PID",
        code="no-training-process",
    )
