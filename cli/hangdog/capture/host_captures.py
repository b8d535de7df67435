"""Has several machines capture themselves, a bounded number at a time, and keeps the archives that come back."""

import base64
import binascii
import os
import re
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from hangdog.capture import bundle_archive
from hangdog.capture.remote_shells import RemoteCall
from hangdog.evidence.packed import zst
from hangdog_agent.confinement.confined_children import Child
from hangdog_agent.confinement.subprocesses import ProcessOutcome, run
from hangdog_models.reading.printable import printable

#: What one machine may send; a bundle of eight ranks packs to some hundred KB, with large flight records to some MB.
_ARCHIVE_BYTES = 256 << 20
#: The user's own programs have all rights of the user, as when they are called by hand: their keys may be anywhere.
_ALL_RIGHTS = Child(capabilities=tuple(range(64)))
#: Exit statuses of a shell that found no such program, or may not run it.
_NO_PROGRAM = {126, 127}


@dataclass(frozen=True, slots=True)
class HostCapture:
    """What came of one host: its archive, or why there is none."""

    host: str
    file: Path | None = None
    problem: str = ""


class HostCaptures:
    """Captures over `call`: `remote` is the command that writes an archive to its stdout, `folder` where they are kept."""

    def __init__(self, call: RemoteCall, remote: Sequence[str], folder: Path, deadline_s: float) -> None:
        self._call, self._remote, self._folder, self._deadline_s = call, tuple(remote), folder, deadline_s
        self._stop = threading.Event()
        self._names: dict[str, str] = {}

    def take(self, hosts: Sequence[str], at_once: int, say: Callable[[HostCapture], None]) -> tuple[HostCapture, ...]:
        """One of each host, in their order; `say` is given each as it comes."""
        for host in hosts:
            plain, used = re.sub(r"[^A-Za-z0-9_.@-]", "_", host), len(self._names)
            self._names[host] = f"{plain}-{used}" if plain in self._names.values() else plain
        found: dict[str, HostCapture] = {}
        with ThreadPoolExecutor(min(at_once, len(hosts)), "hangdog-host") as pool:
            try:
                for done in as_completed([pool.submit(self._one, host) for host in hosts]):
                    found[done.result().host] = done.result()
                    say(done.result())
            except BaseException:
                self._stop.set()
                pool.shutdown(cancel_futures=True)
                raise
        return tuple(found[host] for host in hosts)

    def _one(self, host: str) -> HostCapture:
        command = self._call.command(host, self._remote, self._deadline_s)
        # the environment, too: it says where the keys are and which cluster is meant
        outcome = run(command, self._deadline_s, _ARCHIVE_BYTES, environ=os.environ, stop=self._stop, child=_ALL_RIGHTS)
        data = outcome.stdout
        if self._call.shell.text:
            try:
                data = base64.b64decode(data, validate=False)
            except binascii.Error:
                data = b""
        if not data.startswith(zst.MAGIC) or outcome.status is None:
            return HostCapture(host, problem=self._why(outcome))
        path = self._folder / f"{self._names[host]}.tar.zst"
        with bundle_archive.create(path) as opened:
            opened.write(data)
        return HostCapture(host, path)

    def _why(self, outcome: ProcessOutcome) -> str:
        stated = [line for line in outcome.stderr.splitlines() if line.strip()]
        last = next((line for line in reversed(stated) if line.startswith("hangdog: ")), stated[-1] if stated else "")
        if outcome.status is None:
            why = f"{outcome.why}; {last}" if last else outcome.why
        else:
            why = last or "no word of why"
            why += f" (exit status {outcome.status})" if outcome.status else " (no archive came)"
        if outcome.status in _NO_PROGRAM:
            why += f"; is {self._remote[0]} installed there? --remote says how it is called"
        return printable(why, 300)
