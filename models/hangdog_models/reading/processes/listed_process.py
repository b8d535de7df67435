"""One process as a table, or a look into `/proc`, shows it."""

import re
from dataclasses import dataclass

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.ranks import MAX_RANK, Rank
from hangdog_models.reading.limits import Limits
from hangdog_models.stack import ProcessState

#: How launchers give a program its rank on the machine (torch.distributed.launch before 2.0, DeepSpeed), and how `ps e`
#: and `ps auxe` show the environment behind the command.
_LOCAL = re.compile(r"(?:^|\s)(?:--local[-_]rank[= ]|LOCAL_RANK=)(\d{1,4})(?=\s|$)")
_RANK = re.compile(r"(?:^|\s)RANK=(\d{1,7})(?=\s|$)")


@dataclass(frozen=True, slots=True)
class ListedProcess:
    """What is known of one process. `parent` is None where the table has no such column.

    `rank` and `local` are the job's rank and that on the machine, where its command or environment tells them. `asked`:
    somebody asked for this process, and not for all of a machine.
    """

    state: ProcessState
    parent: int | None = None
    rank: Rank | None = None
    local: int | None = None
    asked: bool = False


def listed(state: ProcessState, parent: int | None = None) -> ListedProcess:
    """The process with the ranks that its command tells."""
    local, rank = _LOCAL.search(state.cmdline), _RANK.search(state.cmdline)
    known = Rank(int(rank[1])) if rank and int(rank[1]) <= MAX_RANK else None
    return ListedProcess(state, parent, known, int(local[1]) if local else None)


def check_processes(count: int, limits: Limits) -> None:
    """Raises UnreadableEvidence when one text has more processes than the limit of threads."""
    if count > limits.threads:
        raise UnreadableEvidence(f"more than {limits.threads} processes (limit threads)", code="too-many")
