"""Tells whose a line of a stack is from what a launcher, a container runtime or a logger put before it."""

import re
from dataclasses import dataclass

from hangdog_models.ranks import MAX_RANK, Rank

#: Characters of a prefix that are looked at: the longest seen, a pod's name with two time stamps, has about 150.
_LONGEST = 400
#: The job's rank as a word: `[rank3]:`, Lightning's `[rank: 3]`, `rank=3 |`; a rank on a machine or in a group is none of the job's.
_RANK = re.compile(
    r"(?<![a-z])(?<!local[-_. ])(?<!node[-_. ])(?<!group[-_. ])(?<!role[-_. ])rank[-_=: ]{0,2}(\d{1,7})(?![\d.])", re.IGNORECASE
)  # fmt: skip
#: Open MPI's `--tag-output`: `[1,3]<stderr>:`, since version 5 `[prterun-host-17@1,3]<stderr>: `.
_MPI = re.compile(r"\[(?:[^\[\]@]{1,128}@)?\d{1,9},(\d{1,7})\]<std(?:out|err|diag)>:")
#: `srun --label`: the number of the task, padded on the left.
_TASK = re.compile(r" {0,7}(\d{1,7}): ?")
#: torchrun's `[role3]:`, where the role is its default, one of its examples, or ends in a colon by a custom of many (`--role $(hostname):`).
_LOCAL = re.compile(
    r"\[(?:default|trainer|worker|[\w.-]{1,128}:)(\d{1,4})\]:|local[-_. ]?rank[-_=: ]{0,2}(\d{1,4})(?!\d)",
    re.IGNORECASE,
)
#: Ray, and vLLM after it: `(RayTrainWorker pid=71, ip=10.0.0.1)`.
_PROCESS = re.compile(r"\([^()]{0,200}\bpid=(\d{1,18})[^()]{0,100}\)")
#: What differs from line to line of one process: dates, times of day, seconds since an epoch or since boot.
_TIMES = re.compile(
    r"\d{4}[-/]\d\d[-/]\d\d[T ]?|\d{1,2}:\d\d:\d\d(?:[.,]\d{1,9})?(?: ?(?:Z\b|[+-]\d\d:?\d\d\b|[AP]M\b))?|\b\d{9,19}(?:[.,]\d{1,9})?\b|\b\d{1,9}\.\d{3,9}\b"
)


@dataclass(frozen=True, slots=True)
class LineOwner:
    """The process a line is of: its rank, else its rank on the machine or its process id, as far as the prefix tells.

    `text` is the prefix without times where no rank is told: equal prefixes are of one process. `task`: the rank is the
    number of a Slurm task, which is one only where each rank is a task of its own.
    """

    rank: Rank | None = None
    task: bool = False
    local: int | None = None
    process: int | None = None
    text: str = ""


#: The owner of lines without any prefix.
NOBODY = LineOwner()


def owner_of(prefix: str) -> LineOwner:
    """Whose a line with this prefix is. A label of `srun` beside a rank on the machine counts machines, not ranks."""
    prefix = prefix.rpartition("\r")[2][-_LONGEST:]  # a progress bar may stand before it
    if not prefix or prefix.isspace():
        return NOBODY
    named = _RANK.search(prefix) or _MPI.search(prefix)
    local = _LOCAL.search(prefix)
    task = None
    if named is None and local is None:
        task = named = _TASK.fullmatch(prefix) or _TASK.match(_TIMES.sub("", prefix).lstrip())
    if named is not None and int(named[1]) <= MAX_RANK:
        return LineOwner(Rank(int(named[1])), task is not None)
    process = _PROCESS.search(prefix)
    return LineOwner(
        local=int(local[1] or local[2]) if local else None,
        process=int(process[1]) if process else None,
        text=" ".join(_TIMES.sub("", prefix).split()),
    )
