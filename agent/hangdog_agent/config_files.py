"""Has the configuration files read that trainers name on their command lines, one trainer's for each job, and each once.

Such a name is what anybody may write. So a file is opened as logs are (stalls/progress): by a process with its user's rights, by
way of the trainer's own root and working folder, if it is a regular file; and only sizes are kept of it.
"""

import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from hangdog_agent.discovery import config_sizes
from hangdog_agent.discovery.config_sizes import BYTES, NAME, ConfigSizes
from hangdog_agent.discovery.discover import Key, RankProcesses
from hangdog_agent.stalls.progress.file_reader import FileQuery, Found
from hangdog_agent.stalls.progress.heartbeat_files import Files
from hangdog_models.reading.printable import printable

#: Answers of one file that brought nothing: then it is left alone.
_TRIES = 3
#: Jobs of this machine whose files are read.
_JOBS = 64

_Wish = tuple[Key, str]


class ConfigFiles:
    """The files known so far."""

    def __init__(self, proc: str = "/proc") -> None:
        """`proc` is the folder of the process table."""
        self._files: Files[_Wish] = Files(proc)
        self._known: dict[_Wish, ConfigSizes] = {}
        self._failed: dict[_Wish, int] = {}
        self._lock = threading.Lock()

    def look(self, trainers: Sequence[RankProcesses]) -> Mapping[Key, tuple[ConfigSizes, ...]]:
        """What is known by now, by the first trainer of each job that names files."""
        speaking: dict[str, RankProcesses] = {}
        for trainer in trainers:
            if _paths(trainer) and (trainer.key in speaking or len(speaking) < _JOBS):
                speaking.setdefault(trainer.key, trainer)
        with self._lock:
            self._ask(speaking.values())
            return {one.process.key: tuple(self._of(one)) for one in speaking.values()}

    def close(self) -> None:
        """Ends the processes that read."""
        with self._lock:
            self._files.close()

    def _of(self, trainer: RankProcesses) -> Iterator[ConfigSizes]:
        key, options = trainer.process.key, trainer.process.options
        for path in options.configs:
            if (known := self._known.get((key, path))) is not None:
                yield known
        candidates = [(key, path) for path in options.candidates]
        if any(wish not in self._known and self._failed.get(wish, 0) < _TRIES for wish in candidates):
            return  # there may be another one
        there = [(PurePosixPath(wish[1]), self._known[wish]) for wish in candidates if wish in self._known]
        if len(there) == 1:
            ((file, known),) = there
            yield replace(known, name=printable("/".join(file.parts[-2:]), NAME))
        elif there:
            folders = ", ".join(printable(path.parent.name or ".", NAME) for path, _ in there)
            yield ConfigSizes(
                there[0][1].name, problem=f"there is one in each of {folders}, and the program knows which"
            )

    def _ask(self, speaking: Collection[RankProcesses]) -> None:
        wishes = [(one.process.key, path) for one in speaking for path in _paths(one)]
        self._known = {wish: self._known[wish] for wish in wishes if wish in self._known}
        self._failed = {wish: self._failed[wish] for wish in wishes if wish in self._failed}
        open_ones = [wish for wish in wishes if wish not in self._known and self._failed.get(wish, 0) < _TRIES]
        # one byte more than is read tells that there is more
        queries = {wish: FileQuery(wish[0], path=wish[1], most=BYTES + 1) for wish in open_ones}
        for _, answer in self._files.look(queries):
            for wish, found in answer.items():
                self._take(wish, found)

    def _take(self, wish: _Wish, found: Found | None) -> None:
        if found is None:
            self._failed[wish] = self._failed.get(wish, 0) + 1
        else:
            self._known[wish] = config_sizes.read(wish[1], found.data)


def _paths(trainer: RankProcesses) -> tuple[str, ...]:
    return (*trainer.process.options.configs, *trainer.process.options.candidates)
