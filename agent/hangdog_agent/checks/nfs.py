"""Checks NFS mounts by the kernel's own statistics: servers that stay silent or slow, requests that queue in the client.

It never touches a mount, because whatever touches a dead one hangs with it: `/proc/<pid>/mountstats` asks the kernel only.
What it finds is about a server that many machines share, so none of it speaks against this machine alone.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from hangdog_agent.checks.check_paths import CheckPaths, text
from hangdog_agent.checks.check_result import CheckKind, CheckResult, Component, Moment, state
from hangdog_agent.checks.settings import CheckSettings
from hangdog_agent.checks.strikes import Strikes
from hangdog_models.findings import Impact

_SOURCE = "NFS"
#: Mounts looked at; a machine full of containers repeats the same few.
_MOST_MOUNTS = 256
#: Operations since the last look below which an average says little.
_MOST_REPORTED = 20
#: Milliseconds a request cannot have taken: the kernel has printed a queueing time of 1.8e19.
_NONSENSE_MS = 3_600_000.0
#: Requests that wait for a slot whenever one is sent, on average, from which the client's slots are worth a note.
_WAITING = 10.0
_WHOLE = re.compile(r"-?\d{1,20}")
#: So many times the server's own time makes the client's queue the bottleneck.
_QUEUE_FACTOR = 4.0


@dataclass(slots=True)
class Mount:
    """One mount's counters since it was mounted.

    `sends` and `receives` of its transports, `backlog` the sum over sends of requests waiting; `operations` has for each
    the number of requests and major time-outs, and milliseconds queued in the client and spent at the server.
    """

    device: str
    folder: str
    sends: int = 0
    receives: int = 0
    backlog: int = 0
    operations: dict[str, tuple[int, int, int, int]] = field(default_factory=dict)


class Nfs:
    """The check; `pids` are processes whose mounts are looked at, trainers in containers for instance."""

    name = "nfs"

    def __init__(
        self, places: CheckPaths, settings: CheckSettings, pids: Callable[[], Iterable[int]] = lambda: ()
    ) -> None:
        self.every_s = settings.nfs_every_s
        self._proc = places.proc
        self._settings = settings
        self._pids = pids
        self._last: dict[str, Mount] = {}
        self._strikes = Strikes(settings.network_strikes, settings.network_window_s)

    def supported(self) -> str:
        return "" if self._mounts() else "no NFS file system is mounted"

    def look(self, moment: Moment) -> tuple[CheckResult, ...]:
        now = self._mounts()
        found: list[CheckResult] = []
        for key, mount in now.items():
            if (last := self._last.get(key)) is not None:
                component = Component(CheckKind.MOUNT, mount.folder)
                for stated, evidence in self._judge(key, last, mount, moment):
                    found.append(state(self.name, _SOURCE, component, stated, moment, (evidence,)))
        self._last = now
        return tuple(found)

    def close(self) -> None:
        pass

    def _mounts(self) -> dict[str, Mount]:
        """NFS mounts by server and folder there; the same one seen by several processes is one."""
        found: dict[str, Mount] = {}
        for pid in ("self", *(str(pid) for pid in self._pids())):
            read = text(self._proc / pid / "mountstats")
            for mount in parse(read) if isinstance(read, str) else ():
                if len(found) < _MOST_MOUNTS:
                    found.setdefault(mount.device, mount)
        return found

    def _judge(
        self, key: str, last: Mount, now: Mount, moment: Moment
    ) -> Iterator[tuple[tuple[str, Impact, str], str]]:
        sent, received = now.sends - last.sends, now.receives - last.receives
        where = f"{now.device} at {now.folder}"
        if sent > 0 and received == 0:
            if self._strikes.strike(f"{key} silent", moment.now):
                words = f"the file server of {where} answers nothing: {sent} requests were sent since the last look"
                yield ("NFS not responding", Impact.SERVICE, words), f"sends {now.sends}, receives {now.receives}"
        elif received > 0:
            self._strikes.heal(f"{key} silent")
        steps = _steps(last, now)
        timeouts = sum(step[1] for step in steps.values())
        if timeouts > 0:
            words = f"{timeouts} requests to {where} ran into a major time-out since the last look"
            yield ("NFS time-outs", Impact.SERVICE, words), _table(steps)
        requests = sum(step[0] for step in steps.values())
        if requests >= _MOST_REPORTED:
            queue, served = (sum(step[place] for step in steps.values()) / requests for place in (2, 3))
            reported = f"a request waits {queue:.0f} ms in this machine and {served:.0f} ms for the server"
            if served >= self._settings.nfs_slow_ms:
                yield ("NFS slow", Impact.SERVICE, f"{where} is slow: {reported}"), _table(steps)
            if queue >= self._settings.nfs_queue_ms and queue >= _QUEUE_FACTOR * served:
                yield ("NFS queueing", Impact.TELLS_NOTHING, f"{where}: {reported}"), _table(steps)
        waiting = (now.backlog - last.backlog) / sent if sent > 0 else 0.0
        if waiting >= _WAITING:
            words = f"{where}: {waiting:.0f} requests wait for a slot whenever one is sent"
            yield ("NFS back-log", Impact.TELLS_NOTHING, words), f"sends {now.sends}, back-log {now.backlog}"


def parse(read: str) -> Iterator[Mount]:
    """The NFS mounts of a `/proc/<pid>/mountstats`; numbers that make no sense are left out."""
    mount: Mount | None = None
    for line in read.splitlines():
        words = line.split()
        if line.startswith("device "):
            if mount is not None:
                yield mount
            fstype = words[words.index("fstype") + 1 : words.index("fstype") + 2] if "fstype" in words else []
            is_nfs = fstype in (["nfs"], ["nfs4"]) and len(words) >= 5
            mount = Mount(words[1], words[4]) if is_nfs else None
        elif mount is not None and words[:1] == ["xprt:"]:
            _transport(mount, words[1:])
        elif mount is not None and len(words) >= 9 and words[0].endswith(":") and words[0][:-1].isupper():
            numbers = _numbers(words[1:9])
            if numbers:
                # requests, transmissions, major time-outs, bytes out, bytes in, ms queued, ms at the server, ms in all
                mount.operations[words[0][:-1]] = numbers[0], numbers[2], numbers[5], numbers[6]
    if mount is not None:
        yield mount


def _transport(mount: Mount, words: list[str]) -> None:
    """`tcp PORT BINDS CONNECTS CONNECTING IDLE SENDS RECEIVES BAD INFLIGHT BACKLOG …`; others lack some at the front."""
    first = {"tcp": 5, "udp": 2, "rdma": 5, "local": 4}.get(words[0] if words else "", 0)
    numbers = _numbers(words[1:])
    if first and numbers and len(numbers) > first + 1:
        mount.sends += numbers[first]
        mount.receives += numbers[first + 1]
        mount.backlog += numbers[first + 4] if len(numbers) > first + 4 else 0


def _numbers(words: list[str]) -> list[int]:
    """All of the words as numbers, an idle time below zero included; nothing where one is none."""
    return [int(word) for word in words] if all(_WHOLE.fullmatch(word) for word in words) else []


def _steps(last: Mount, now: Mount) -> dict[str, tuple[int, int, int, int]]:
    """What each operation added between two looks, without what cannot be."""
    found = {}
    for name, counts in now.operations.items():
        before = last.operations.get(name)
        if before is None:
            continue
        requests, timeouts, queued, served = (a - b for a, b in zip(counts, before, strict=True))
        if requests >= 0 and timeouts >= 0 and 0 <= max(queued, served) <= _NONSENSE_MS * max(1, requests):
            found[name] = requests, timeouts, max(0, queued), max(0, served)
    return found


def _table(steps: dict[str, tuple[int, int, int, int]]) -> str:
    """The busiest operations: requests, ms queued and ms served for each."""
    busy = sorted(steps.items(), key=lambda step: -step[1][0])[:4]
    return "; ".join(f"{name} {n} requests, queued {q} ms, served {s} ms" for name, (n, _, q, s) in busy)
