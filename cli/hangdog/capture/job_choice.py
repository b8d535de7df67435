"""Which of the jobs that run here is captured, and which of its ranks."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from hangdog_agent.discovery.discover import RankProcesses
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
    """A job of this machine, and the ranks of it that are meant, ascending."""

    job: LocalJob
    ranks: tuple[Rank, ...]

    def holds(self, member: RankProcesses) -> bool:
        """Whether a process belongs to what is meant."""
        return member.key == self.job.key and member.rank in self.ranks


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
        raise WrongUse(what, f"these do: {named([one.key for one in here])}")
    ranks: tuple[Rank, ...] = ()
    if pids:
        meant = _of_processes(members, pids)
        fitting = [one for one in fitting if one.key in {member.key for member in meant}]
        ranks = tuple(sorted({member.rank for member in meant}))
    if len(fitting) != 1:
        listed = "; ".join(f"{printable(one.key, 80)} (ranks {format_ranks(one.ranks)})" for one in fitting)
        what = f"{counted(len(fitting), 'job')} of this machine fit: {listed}" if fitting else "no job fits"
        raise WrongUse(what, "name one with --job")
    return JobChoice(fitting[0], ranks or fitting[0].ranks)


def _of_processes(members: Sequence[RankProcesses], pids: Collection[int]) -> list[RankProcesses]:
    meant = [member for member in members if member.process.pid in pids]
    lacking = sorted(set(pids) - {member.process.pid for member in meant})
    if lacking:
        what = f"no training process here owns {counted(len(lacking), 'process', 'processes')}"
        raise WrongUse(f"{what} {', '.join(map(str, lacking))}", _LISTED)
    if len({member.key for member in meant}) > 1:
        raise WrongUse("these processes belong to different jobs", _LISTED)
    return meant


def _nothing(hidden: int) -> UnreadableEvidence:
    if hidden:
        kept = counted(hidden, "Python process keeps its environment", "Python processes keep their environment")
        return UnreadableEvidence(f"no training process found here, but {kept} from you", RIGHTS)
    return UnreadableEvidence(
        "no training process found here",
        "ranks are found by RANK, a launcher's variables, command lines and connections; `hangdog doctor` says what is seen",
    )
