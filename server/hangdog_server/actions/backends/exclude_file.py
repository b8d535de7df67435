"""A file of excluded machines, one name a line: for launchers that read one, as torchrun's wrapper in docs/acting.md does."""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hangdog_server.actions.backends.backend import (
    BackendFailed,
    IsolationCase,
    MachineMark,
    Mark,
    left_alone,
    reason_of,
)
from hangdog_server.actions.shared_disk import WITHIN_S, Disk

#: Bytes of the file: 10,000 machines with their reasons are some 2 MiB.
MOST = 8 << 20


class ExcludeFile:
    """One file, on a disk that the job's machines share. Lines of other owners are kept as they are."""

    name = "exclude-file"
    again_s = 0.0

    def __init__(self, path: Path, within_s: float = WITHIN_S) -> None:
        self._path = path
        self._disk = Disk(within_s)

    async def look(self, case: IsolationCase) -> MachineMark:
        """Whether the machine stands in the file, and by whose reason."""
        return _mark_of(await self._held(lambda lines: lines), case.machine)

    async def mark(self, case: IsolationCase) -> None:
        """Adds the machine, unless it is there."""

        def add(lines: list[str]) -> list[str]:
            state = _mark_of(lines, case.machine)
            if state.mark is Mark.ANOTHERS:
                raise left_alone(str(self._path), case.machine, state)
            return lines if state.mark is Mark.OURS else [*lines, f"{_name(case.machine)}  # {case.reason}"]

        await self._held(add)

    async def unmark(self, case: IsolationCase) -> None:
        """Removes our line of this incident."""

        def remove(lines: list[str]) -> list[str]:
            state = _mark_of(lines, case.machine)
            if state.mark is Mark.ANOTHERS:
                raise left_alone(str(self._path), case.machine, state)
            ours = state.mark is Mark.OURS and state.incident == case.incident
            return [line for line in lines if not (ours and _split(line)[0] == case.machine)]

        await self._held(remove)

    async def close(self) -> None:
        """Holds nothing."""

    async def _held(self, change: Callable[[list[str]], list[str]]) -> list[str]:
        """Changes the lines, nobody else's between; who reads sees all of it or nothing."""

        def work() -> list[str]:
            with _locked(self._path):
                before = self._read()
                after = change(before)
                if after != before:
                    self._write(after)
                return after

        try:
            return await self._disk.do(work)
        except TimeoutError:
            hint = "is its disk there? ls it by hand; and who holds its lock?"
            raise BackendFailed(f"{self._path} does not answer", hint, again=True, code="backend-unreachable") from None
        except OSError as error:
            what = f"{self._path} cannot be changed: {error.strerror}"
            raise BackendFailed(what, "check its folder, owner and disk", again=True, code="unwritable-file") from error

    def _read(self) -> list[str]:
        try:
            with self._path.open("rb") as file:
                content = file.read(MOST + 1)
        except FileNotFoundError:
            return []
        if len(content) > MOST:
            raise BackendFailed(
                f"{self._path} is larger than {MOST >> 20} MiB", "is it the right file?", code="too-large"
            )
        return content.decode("utf-8", "surrogateescape").splitlines()

    def _write(self, lines: list[str]) -> None:
        new = self._path.with_name(f".{self._path.name}.new")
        try:
            with new.open("wb") as file:
                file.write("".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape"))
                os.fchmod(file.fileno(), self._path.stat().st_mode & 0o777 if self._path.exists() else 0o644)
                file.flush()
                os.fsync(file.fileno())
            new.replace(self._path)
        except OSError:
            new.unlink(missing_ok=True)  # half a file takes room on a disk that has none
            raise


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.with_name(f".{path.name}.lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _mark_of(lines: list[str], machine: str) -> MachineMark:
    for line in lines:
        name, reason = _split(line)
        if name == machine:
            return reason_of(reason)
    return MachineMark(Mark.NONE)


def _split(line: str) -> tuple[str, str]:
    name, _, reason = line.partition("#")
    return name.strip(), reason.strip()


def _name(machine: str) -> str:
    if not machine or machine.startswith("#") or machine.split() != [machine] or "#" in machine:
        raise BackendFailed(
            f"{machine[:60]!r} cannot be the name of a machine in this file",
            "see the agent's --machine",
            code="wrong-machine-name",
        )
    return machine
