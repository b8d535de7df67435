"""Names what each process does for its rank: `trainer`, `dataloader-0`, `compile-1`, `checkpoint-0`, `child-2`."""

from collections.abc import Iterable, Sequence

from hangdog_agent.discovery.discover import ProcessRole, RankProcesses
from hangdog_models.stack import TRAINER, Frame, Thread

#: A frame in a file that holds this text tells what a process is for; the first that matches decides.
_FILES = (
    ("utils/data/_utils/worker.py", ProcessRole.DATALOADER),
    ("_inductor/compile_worker/", ProcessRole.COMPILE),
    ("distributed/checkpoint/", ProcessRole.CHECKPOINT),
    ("dist_checkpointing/", ProcessRole.CHECKPOINT),
)
Key = tuple[int, int]


def kind(member: RankProcesses, threads: Sequence[Thread]) -> ProcessRole:
    """What a process is for: by its name and command line as discovered, else by its main thread's own frames."""
    main = next((thread for thread in threads if thread.tid == member.process.pid), None)
    if member.kind is not ProcessRole.CHILD or main is None:
        return member.kind
    files = [frame.file for frame in _own(main.frames)]
    return next((kind for text, kind in _FILES if any(text in file for file in files)), ProcessRole.CHILD)


def _own(frames: Sequence[Frame]) -> Sequence[Frame]:
    """A forked process still shows where its parent stood when it forked; its own frames begin after its bootstrap."""
    for at in reversed(range(len(frames))):
        if frames[at].function.endswith("_bootstrap") and frames[at].file.endswith("multiprocessing/process.py"):
            return frames[at + 1 :]
    return frames


class Roles:
    """Gives every process of a job a role no other of its rank has, and the same one in every look it is asked for."""

    def __init__(self) -> None:
        self._given: dict[Key, tuple[ProcessRole, str]] = {}
        self._taken: dict[tuple[int, ProcessRole], int] = {}

    def assign(self, members: Iterable[tuple[RankProcesses, ProcessRole]]) -> dict[Key, str]:
        """The role of each process by its key, numbered in order of start.

        A role changes only when a mere child turns out to be something better known, or a rank has a new trainer.
        """
        for member, found in sorted(members, key=lambda pair: (pair[0].process.started, pair[0].process.pid)):
            given = self._given.get(member.process.key)
            if given is None or (
                given[0] is not found and (given[0] is ProcessRole.CHILD or ProcessRole.TRAINER in (given[0], found))
            ):
                self._given[member.process.key] = (found, self._next(member.rank, found))
        return {key: role for key, (_, role) in self._given.items()}

    def _next(self, rank: int, found: ProcessRole) -> str:
        if found is ProcessRole.TRAINER:
            return TRAINER
        number = self._taken.get((rank, found), 0)
        self._taken[rank, found] = number + 1
        return f"{found}-{number}"
