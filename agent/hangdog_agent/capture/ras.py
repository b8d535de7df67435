"""Asks NCCL's RAS on this machine for its report: a line-wise protocol on a local TCP port, where one process answers for all.

All ranks of a machine listen on the same port, and the kernel chooses one. A stopped one takes a connection too and says
nothing; so a silent one is given up after a second, and the next connection most likely meets another.
"""

import ctypes
import ipaddress
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from hangdog_agent.capture import listening_sockets
from hangdog_agent.capture.process_capture import Tools
from hangdog_agent.confinement import credentials
from hangdog_agent.confinement.credentials import CredentialsRefused
from hangdog_agent.discovery.discover import RankProcesses
from hangdog_models.reading.printable import printable
from hangdog_models.stack import Missing, Reason
from hangdog_proto.codec.collectives import MOST_BYTES, Statement, StatementKind

#: Where RAS listens unless the job's environment says otherwise.
ADDRESS = "localhost:28028"
_ADDRESS_NAME = "NCCL_RAS_ADDR"
#: An answer's first line is short; a longer one comes from something else.
_LINE_BYTES = 1024
#: How often a wait looks whether the agent is being stopped. Seconds.
_LOOK_UP_S = 0.2
_CLONE_NEWNET = 0x40000000

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RasTimeouts:
    """How long RAS is waited for. Seconds."""

    #: A process that is well takes up the conversation at once.
    greeting_s: float = 1.0
    #: RAS waits so long for processes it cannot reach, 5 s by its own default; whoever is well answers in milliseconds.
    peers_s: int = 3
    #: All of it; RAS may take some seconds longer than it was told to wait.
    whole_s: float = 10.0


class _Silent(Exception):
    """It took the connection and says nothing."""


class _Failed(Exception):
    """Why there is no report."""

    def __init__(self, reason: Reason, words: str) -> None:
        super().__init__(words)
        self.missing = Missing(reason, words)


def report(member: RankProcesses, tools: Tools, patience: RasTimeouts = RasTimeouts()) -> Statement:
    """The report RAS gives at the place that a trainer's environment names; answers within `patience.whole_s` seconds."""
    address = (member.process.environ or {}).get(_ADDRESS_NAME) or ADDRESS
    try:
        places = _places(address)
        _require_own(places[0][1], member, tools)
        with _network(tools.proc.root / str(member.process.pid) / "ns/net") as connect:
            return Statement(StatementKind.RAS, None, _asked(places, connect, patience, tools.stop))
    except _Failed as failed:
        return Statement(StatementKind.RAS, None, missing=failed.missing)


def _require_own(port: int, member: RankProcesses, tools: Tools) -> None:
    """Nothing is said to another user's server, whatever port a trainer names. Raises _Failed."""
    proc, pid = str(tools.proc.root), member.process.pid
    try:
        users, who = listening_sockets.owners(proc, pid, port), credentials.of(pid, proc)
    except CredentialsRefused as error:
        raise _Failed(Reason.NOT_PERMITTED, str(error)) from None
    except OSError:
        raise _Failed(Reason.EXITED, "its process has ended") from None
    if users - {who.uid}:
        raise _Failed(Reason.NOT_PERMITTED, f"another user listens at port {port}, and is not asked")


def _places(address: str) -> list[tuple[str, int]]:
    """Where to connect; a job's environment must not send us anywhere but to this machine."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    if not (port.isascii() and port.isdigit() and 0 < int(port[:6]) < 1 << 16):
        raise _Failed(Reason.TOOL_FAILED, f"{_ADDRESS_NAME} names no port")
    if host == "localhost":
        return [("127.0.0.1", int(port)), ("::1", int(port))]
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        raise _Failed(Reason.TOOL_FAILED, f"{_ADDRESS_NAME} names no address, and names are not looked up") from None
    if ip.is_unspecified:
        ip = ipaddress.ip_address("127.0.0.1" if ip.version == 4 else "::1")
    return [(str(ip), int(port))]


Connect = Callable[[int], socket.socket]


@contextmanager
def _network(namespace: Path) -> Iterator[Connect]:
    """Gives what makes sockets of a family in the trainer's network, which a container may have of its own."""
    try:
        foreign = namespace.readlink() != Path("/proc/self/ns/net").readlink()
    except OSError:
        foreign = False
    if not foreign:
        yield _made
        return
    yield lambda family: _apart(lambda: _made_in(namespace, family))


def _made(family: int) -> socket.socket:
    return socket.socket(family, socket.SOCK_STREAM)


def _made_in(namespace: Path, family: int) -> socket.socket:
    """A socket of another network: it belongs to it whoever uses it later. The thread that runs this stays there."""
    opened = os.open(namespace, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if ctypes.CDLL(None, use_errno=True).setns(opened, _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    finally:
        os.close(opened)
    return _made(family)


def _apart(work: Callable[[], T]) -> T:
    """Runs something in a thread that ends with it."""
    done: list[T] = []
    failed: list[OSError] = []

    def run() -> None:
        try:
            done.append(work())
        except OSError as error:
            failed.append(error)

    thread = threading.Thread(target=run, name="hangdog-network")
    thread.start()
    thread.join()
    if failed:
        words = f"the trainers have a network of their own, and it may not be entered: {failed[0].strerror}"
        raise _Failed(Reason.NOT_PERMITTED, words)
    return done[0]


def _asked(places: list[tuple[str, int]], connect: Connect, patience: RasTimeouts, stop: threading.Event) -> bytes:
    until = time.monotonic() + patience.whole_s
    tried = 0
    while time.monotonic() < until and not stop.is_set():
        with _connected(places, connect, patience.greeting_s) as line:
            tried += 1
            try:
                return _conversed(_Talk(line, stop), patience, until)
            except _Silent:
                continue
            except OSError as error:
                raise _Failed(Reason.TOOL_FAILED, f"it broke off: {error.strerror or error}") from None
    raise _Failed(Reason.TIMED_OUT, f"silent in {tried} connections of {patience.greeting_s:g} s")


def _connected(places: list[tuple[str, int]], connect: Connect, within_s: float) -> socket.socket:
    why = ""
    reason = Reason.NO_EVIDENCE
    for place in places:
        line = connect(socket.AF_INET6 if ":" in place[0] else socket.AF_INET)
        try:
            line.bind((place[0], 0))  # possible only where the address is this machine's
            line.settimeout(within_s)
            line.connect(place)
            return line
        except OSError as error:
            line.close()
            why = why or error.strerror or str(error)
            if isinstance(error, TimeoutError):
                reason = Reason.TIMED_OUT
    raise _Failed(reason, f"nobody listens at port {places[0][1]}: {why}")


def _conversed(talk: "_Talk", patience: RasTimeouts, until: float) -> bytes:
    """The report: JSON where RAS writes it (NCCL 2.28.7 and newer), else its text."""
    greeting = talk.ask("CLIENT PROTOCOL 2", patience.greeting_s)
    if not greeting.startswith(b"SERVER PROTOCOL "):
        raise _Failed(Reason.TOOL_FAILED, f"what answers there is no NCCL RAS: {_shown(greeting)}")
    for request in (f"TIMEOUT {patience.peers_s}", "SET FORMAT json"):
        with suppress(_Silent):  # a version that does not know one says so or nothing, and goes on with its default
            talk.ask(request, patience.greeting_s)
    talk.say("VERBOSE STATUS")
    return talk.rest(until, patience.whole_s)


class _Talk:
    """One conversation; every wait is bounded, and ends when the agent is stopped."""

    def __init__(self, line: socket.socket, stop: threading.Event) -> None:
        self._line = line
        self._stop = stop
        self._read = b""

    def say(self, request: str) -> None:
        self._line.settimeout(_LOOK_UP_S)
        self._line.sendall(request.encode() + b"\n")

    def ask(self, request: str, within_s: float) -> bytes:
        """One line for one request; raises _Silent when none comes."""
        self.say(request)
        until = time.monotonic() + within_s
        while b"\n" not in self._read:
            part = self._part(until)
            self._read += part
            if not part or len(self._read) > _LINE_BYTES:
                raise _Failed(Reason.TOOL_FAILED, f"what answers there is no NCCL RAS: {_shown(self._read)}")
        line, _, self._read = self._read.partition(b"\n")
        return line

    def rest(self, until: float, whole_s: float) -> bytes:
        """Everything up to the end of the stream, which is the end of the report."""
        read = bytearray(self._read)
        while len(read) <= MOST_BYTES:
            try:
                part = self._part(until)
            except _Silent:
                words = f"its report did not end within {whole_s:g} s"
                raise _Failed(Reason.TIMED_OUT, words) from None
            if not part:
                if not read:
                    raise _Failed(Reason.TOOL_FAILED, "it ended the conversation without a report")
                return bytes(read)
            read += part
        raise _Failed(Reason.TOOL_FAILED, f"its report is longer than {MOST_BYTES} bytes")

    def _part(self, until: float) -> bytes:
        while (left := until - time.monotonic()) > 0:
            if self._stop.is_set():
                raise _Failed(Reason.TOOL_FAILED, "the agent is being stopped")
            self._line.settimeout(min(left, _LOOK_UP_S))
            try:
                return self._line.recv(1 << 16)
            except TimeoutError:
                continue
        raise _Silent


def _shown(stated: bytes) -> str:
    return repr(printable(stated[:80].decode("utf-8", "replace"))) if stated else "it said nothing"
