"""What is said between a trainer and a holder: bounded JSON frames, raw bytes beside them, and proofs of a shared key.

Nothing is encrypted: who can read the network of the job reads its gradients, too. Bytes that were changed on their way
are found out by the shard's digest, which nobody can write without the key.
"""

import hashlib
import hmac
import json
import os
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from typing import Any

from hangdog_models.errors import HangdogError, WrongUse

#: The environment variable that the launcher gives to all ranks of one job.
KEY = "HANGDOG_BACKUP_KEY"
#: A key that `openssl rand -hex 16` makes has 32 characters; half of that cannot be guessed over a network.
SHORTEST_KEY = 16
#: A list of what a holder holds: 4,096 shards of 120 bytes each.
LONGEST_FRAME = 1 << 20
#: Before the peer has shown the key it may say little.
LONGEST_GREETING = 1 << 10
#: Bytes sent or read at once: large enough for a fast network, small enough to notice a deadline.
CHUNK = 4 << 20
#: How long the peer may take for a frame that it need not think about. Seconds.
FRAME_S = 30.0

_LENGTH = struct.Struct(">I")
Frame = dict[str, Any]


class BackupFailed(HangdogError):
    """A copy or an answer did not come about: a peer that is dead, slow, without the key, or not what it says."""


def job_key(environ: Mapping[str, str] = os.environ) -> bytes:
    """The job's key from its environment; raises WrongUse where there is none worth the name."""
    key = environ.get(KEY, "")
    if len(key) < SHORTEST_KEY:
        raise WrongUse(
            f"{KEY} has {len(key)} characters",
            f"the launcher gives all ranks the same: {KEY}=$(openssl rand -hex 16)",
            code="weak-job-key",
        )
    return key.encode()


def send(line: socket.socket, frame: Frame) -> None:
    data = json.dumps(frame, separators=(",", ":")).encode()
    line.settimeout(FRAME_S)
    line.sendall(_LENGTH.pack(len(data)) + data)


def receive(line: socket.socket, longest: int = LONGEST_FRAME, limit_s: float | None = FRAME_S) -> Frame:
    """The next frame; raises BackupFailed where it is none, and OSError where none comes in time."""
    deadline = None if limit_s is None else time.monotonic() + limit_s
    (length,) = _LENGTH.unpack(_exactly(line, _LENGTH.size, deadline))
    if length > longest:
        raise BackupFailed(f"a frame of {length} bytes, where {longest} are the most", code="too-large")
    data = _exactly(line, length, time.monotonic() + FRAME_S)
    try:
        frame = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BackupFailed(f"a frame that is no JSON: {error}", code="damaged-message") from None
    if not isinstance(frame, dict):
        raise BackupFailed("a frame that is no JSON object", code="damaged-message")
    return frame


def number(frame: Frame, name: str, most: int = 1 << 62) -> int:
    """A whole number of a frame, from 0 to `most`; raises BackupFailed where it is none."""
    value = frame.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise BackupFailed(f"{name} is no whole number from 0 to {most}", code="damaged-message")
    return value


def text(frame: Frame, name: str, longest: int = 256) -> str:
    value = frame.get(name)
    if not isinstance(value, str) or not value or len(value) > longest:
        raise BackupFailed(f"{name} is no text of 1 to {longest} characters", code="damaged-message")
    return value


def fill(line: socket.socket, room: memoryview, deadline: float, seal: "Seal") -> None:
    """Reads as many bytes as there is room for, and seals them as they come."""
    while room:
        _until(line, deadline)
        got = line.recv_into(room[:CHUNK])
        if not got:
            raise BackupFailed("the connection ended in the middle of a shard", code="connection-lost")
        seal.add(room[:got])
        room = room[got:]


def spread(lines: Sequence[socket.socket], body: memoryview, deadline: float, seal: "Seal | None" = None) -> None:
    """Sends the same bytes to all, piece by piece, and seals them as they go."""
    while body:
        piece, body = body[:CHUNK], body[CHUNK:]
        if seal is not None:
            seal.add(piece)
        for line in lines:
            _until(line, deadline)
            line.sendall(piece)


class Seal:
    """The digest of a shard, which also binds whose it is: it fits no other rank, copy or job, and needs the key."""

    def __init__(self, key: bytes, job: str, rank: int, copy: str, size: int) -> None:
        # processors of machines with GPUs have instructions for SHA-256: twice as fast there as BLAKE2b
        self._hash = hmac.new(key, digestmod=hashlib.sha256)
        self._hash.update(json.dumps([job, rank, copy, size]).encode() + b"\0")

    def add(self, data: memoryview) -> None:
        self._hash.update(data)

    def digest(self) -> str:
        return self._hash.hexdigest()


def admit(line: socket.socket, key: bytes, job: str) -> None:
    """The holder's side of the greeting; raises BackupFailed where the other one does not know the key or is of another job."""
    mine = os.urandom(16).hex()
    send(line, {"nonce": mine})
    answer = receive(line, LONGEST_GREETING)
    if not hmac.compare_digest(text(answer, "proof"), _proof(key, job, "trainer", mine, text(answer, "nonce"))):
        raise BackupFailed("it does not know the key of this job", code="wrong-job-key")
    send(line, {"proof": _proof(key, job, "holder", mine, text(answer, "nonce"))})


def greet(line: socket.socket, key: bytes, job: str) -> None:
    """The trainer's side of the greeting; raises BackupFailed where the holder does not know the key."""
    theirs = text(receive(line, LONGEST_GREETING), "nonce")
    mine = os.urandom(16).hex()
    send(line, {"nonce": mine, "proof": _proof(key, job, "trainer", theirs, mine)})
    answer = receive(line, LONGEST_GREETING)
    if not hmac.compare_digest(text(answer, "proof"), _proof(key, job, "holder", theirs, mine)):
        raise BackupFailed("the holder does not know the key of this job", code="wrong-job-key")


def local_address(key: bytes, job: str, machine: str) -> str:
    """Where the holder of a machine listens for its own trainers: an abstract socket, no file, that ends with it.

    Its name cannot be guessed without the key, so no other user of the machine takes it first.
    """
    return "\0hangdog-backup-" + _proof(key, job, "address", machine, "")[:32]


def _proof(key: bytes, job: str, role: str, theirs: str, mine: str) -> str:
    return hmac.new(key, json.dumps([job, role, theirs, mine]).encode(), hashlib.sha256).hexdigest()


def _exactly(line: socket.socket, count: int, deadline: float | None) -> bytes:
    data = bytearray()
    while len(data) < count:
        _until(line, deadline)
        got = line.recv(count - len(data))
        if not got:
            raise BackupFailed("the connection ended", code="connection-lost")
        data += got
    return bytes(data)


def _until(line: socket.socket, deadline: float | None) -> None:
    left = None if deadline is None else deadline - time.monotonic()
    if left is not None and left <= 0:
        raise BackupFailed("it took too long", code="connection-lost")
    line.settimeout(left)
