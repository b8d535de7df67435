"""Asks holders: starts the one of this machine, puts a shard into two, lists what one has, fetches a shard back."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from hangdog.backup.shard_memory import MOST_SHARDS, Shard
from hangdog.backup.wire import (
    KEY,
    BackupFailed,
    Frame,
    Seal,
    fill,
    greet,
    local_address,
    number,
    receive,
    send,
    spread,
    text,
)
from hangdog_models.ranks import MAX_RANK

#: A machine that is there accepts within a round trip; one that is gone never does. Seconds.
_CONNECT_S = 10.0
#: A Python that imports nothing but its own library starts in a tenth of this, also on a busy machine. Seconds.
_START_S = 60.0
#: What a holder needs of a trainer's environment: with RANK and its like an agent would take it for a trainer.
_ENVIRONMENT = ("PATH", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "LANG", KEY)


@dataclass(frozen=True, slots=True)
class Membership:
    """What all that is said in one job shares."""

    key: bytes
    job: str


@dataclass(frozen=True, slots=True)
class Inventory:
    """What one holder has, and the address that other machines reach it at."""

    address: str
    shards: tuple[Shard, ...]


def start(member: Membership, machine: str, host: str, memory: int, idle_s: float) -> None:
    """Starts this machine's holder where it does not run; raises BackupFailed where it cannot."""
    options = [
        "--job",
        member.job,
        "--machine",
        machine,
        "--host",
        host,
        "--memory",
        str(memory),
        "--idle",
        str(idle_s),
    ]
    environ = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ} | {KEY: member.key.decode()}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "hangdog.backup.holder", *options],
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=_START_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise BackupFailed(f"the holder did not start within {_START_S:.0f} s", code="no-backup-holder") from None
    if done.returncode:
        reason = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise BackupFailed(f"the holder does not start: {reason[:200]}", code="no-backup-holder")


def near(member: Membership, machine: str) -> socket.socket:
    """A connection to the holder of this machine."""
    return _greeted(socket.socket(socket.AF_UNIX), local_address(member.key, member.job, machine), member)


def far(member: Membership, address: str) -> socket.socket:
    """A connection to the holder at HOST:PORT."""
    host, _, port = address.rpartition(":")
    return _greeted(socket.socket(socket.AF_INET), (host, int(port)), member)


def inventory(line: socket.socket) -> Inventory:
    answer = _asked(line, {"do": "list"})
    listed = answer.get("shards")
    if not isinstance(listed, list) or len(listed) > MOST_SHARDS:
        raise BackupFailed("it lists no shards, or too many", code="damaged-message")
    return Inventory(text(answer, "address"), tuple(shard_of(one) for one in listed))


def put(
    lines: Sequence[socket.socket], member: Membership, shard: Shard, body: memoryview, keep: str, limit_s: float
) -> None:
    """Puts a shard into all these holders; returns when each has compared its digest."""
    frame = {"do": "put", "rank": shard.rank, "copy": shard.copy, "step": shard.step, "world": shard.world}
    for line in lines:
        _asked(line, frame | {"size": shard.size, "keep": keep, "limit_s": int(limit_s)})
    seal = Seal(member.key, member.job, shard.rank, shard.copy, shard.size)
    spread(lines, body, time.monotonic() + limit_s, seal)
    for line in lines:
        send(line, {"digest": seal.digest()})
    for line in lines:
        _error(receive(line))


def fetch(line: socket.socket, member: Membership, shard: Shard, limit_s: float) -> bytearray:
    """A shard's bytes, compared with its digest; raises BackupFailed where they are not that shard's."""
    answer = _asked(line, {"do": "get", "rank": shard.rank, "copy": shard.copy})
    if number(answer, "size") != shard.size:
        raise BackupFailed(f"it has {answer['size']} bytes, and listed {shard.size}", code="damaged-backup")
    body = bytearray(shard.size)
    seal = Seal(member.key, member.job, shard.rank, shard.copy, shard.size)
    fill(line, memoryview(body), time.monotonic() + limit_s, seal)
    if seal.digest() != shard.digest:
        raise BackupFailed("the bytes are not those of the digest", code="damaged-backup")
    return body


def end(line: socket.socket) -> None:
    _asked(line, {"do": "end"})


def opened(stack: ExitStack, member: Membership, machine: str, address: str) -> list[socket.socket]:
    """Connections to this machine's holder and to a peer's."""
    return [stack.enter_context(near(member, machine)), stack.enter_context(far(member, address))]


def shard_of(listed: object) -> Shard:
    """A shard as a holder lists it; raises BackupFailed where it is none."""
    if not isinstance(listed, dict):
        raise BackupFailed("it lists what is no shard", code="damaged-message")
    return Shard(
        number(listed, "rank", MAX_RANK),
        text(listed, "copy", 64),
        number(listed, "step"),
        number(listed, "world", MAX_RANK),
        number(listed, "size"),
        text(listed, "digest", 64),
    )


def _greeted(line: socket.socket, address: str | tuple[str, int], member: Membership) -> socket.socket:
    try:
        line.settimeout(_CONNECT_S)
        line.connect(address)
        greet(line, member.key, member.job)
    except BaseException:
        line.close()
        raise
    return line


def _asked(line: socket.socket, frame: Frame) -> Frame:
    send(line, frame)
    return _error(receive(line))


def _error(answer: Frame) -> Frame:
    if "error" in answer:
        raise BackupFailed(text(answer, "error", 1 << 10), code="backup-failed")
    return answer
