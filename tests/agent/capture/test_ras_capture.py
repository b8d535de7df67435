"""NCCL RAS over a real socket, played: one that answers as each version does, and ones that are silent, slow or strange."""

import os
import shutil
import socket
import subprocess
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hangdog.demo.conductor import free_port
from hangdog_agent.capture import ras
from hangdog_agent.capture.process_capture import Tools
from hangdog_agent.capture.ras import RasTimeouts, report
from hangdog_agent.capture.settings import CaptureSettings
from hangdog_agent.discovery.discover import ProcessRole, RankProcesses
from hangdog_models.collectives import RasStatus
from hangdog_models.ranks import Rank
from hangdog_models.reading.collectives.library_counters import ras_report
from hangdog_models.stack import Missing, Reason
from hangdog_proto.codec.collectives import Statement
from support.fakes import targets
from support.fakes.dumper import own_job
from support.fakes.played_ras import JSON, TEXT, Played, Say, served

#: Long enough for everything that is played, on a busy machine too.
LONG = RasTimeouts(greeting_s=5.0, whole_s=20.0)
#: For what never comes.
SHORT = RasTimeouts(greeting_s=0.3, whole_s=1.0)


def ask(port: int | str, patience: RasTimeouts = LONG, stop: threading.Event | None = None) -> Statement:
    address = port if isinstance(port, str) else f"localhost:{port}"
    process = replace(targets.row(os.getpid()), environ={"NCCL_RAS_ADDR": address})
    tools = Tools(
        targets.proc, Missing(Reason.TOOL_MISSING, "none needed"), CaptureSettings(), stop or threading.Event()
    )
    began = time.monotonic()
    told = report(RankProcesses("job", Rank(0), ProcessRole.TRAINER, process), tools, patience)
    assert time.monotonic() - began < patience.whole_s + 1.0
    assert told.rank is None
    return told


def words(told: Statement) -> tuple[Reason, str]:
    assert told.missing is not None and not told.data
    return told.missing.reason, told.missing.message


def test_the_json_of_a_new_version_malformed_as_it_is() -> None:
    with served() as (port, asked):
        told = ask(port)
    assert told.data == JSON
    assert asked == ["CLIENT PROTOCOL 2", "TIMEOUT 3", "SET FORMAT json", "VERBOSE STATUS"]
    read = ras_report(told.data)
    assert [(member.pid, member.status) for member in read.lost] == [(77, RasStatus.UNRESPONSIVE)]


def test_the_text_of_a_version_that_has_no_json() -> None:
    with served(json=False) as (port, _):
        told = ask(port)
    assert told.data == TEXT
    assert [communicator.size for communicator in ras_report(told.data).communicators] == [2]


def test_a_version_that_says_nothing_to_what_it_does_not_know() -> None:
    def answer(self: Played, line: str) -> bytes | None:
        return None if line.startswith("SET") else Played.answer(self, line)

    with served(json=False, answer=answer) as (port, _):
        assert ask(port, replace(LONG, greeting_s=0.5)).data == TEXT


def test_a_report_that_comes_in_pieces() -> None:
    pause = threading.Event()

    def status(self: Played, say: Say) -> None:
        for at in range(0, len(JSON), 40):
            say(JSON[at : at + 40])
            pause.wait(0.005)

    with served(status=status) as (port, _):
        assert ask(port).data == JSON


def test_nobody_listens() -> None:
    reason, said = words(ask(free_port()))
    assert reason is Reason.NO_EVIDENCE
    assert "nobody listens" in said


def test_one_that_takes_connections_and_says_nothing() -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(16)
        reason, said = words(ask(listening.getsockname()[1], SHORT))
    assert reason is Reason.TIMED_OUT
    assert said.startswith(("silent in 3", "silent in 4"))


def test_a_silent_process_is_passed_over_for_one_that_answers() -> None:
    """Two listen on one port, as two ranks do; the first is stopped, and the kernel gives it half of the connections."""
    with socket.socket() as stopped, socket.socket() as other:
        for each in (stopped, other):
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            each.bind(("127.0.0.1", 0) if each is stopped else stopped.getsockname())
            each.listen(16)
        asked: list[str] = []
        over = threading.Event()

        def answer() -> None:
            other.settimeout(0.02)
            while not over.is_set():
                with suppress(TimeoutError):
                    line, where = other.accept()
                    line.settimeout(5.0)
                    type("Changed", (Played,), {"asked": asked})(line, where, None)
                    line.close()

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            for _ in range(6):
                assert ask(stopped.getsockname()[1], RasTimeouts(greeting_s=0.4, whole_s=20.0)).data == JSON
        finally:
            over.set()
            thread.join()


def test_one_that_never_ends() -> None:
    def trickle(self: Played, say: Say) -> None:
        with suppress(OSError):
            while True:
                say(b"x")
                pause.wait(0.05)

    pause = threading.Event()
    with served(status=trickle) as (port, _):
        reason, said = words(ask(port, SHORT))
    assert reason is Reason.TIMED_OUT and said.startswith("its report ") and said.endswith(" 1 s")


def test_one_that_floods(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ras, "MOST_BYTES", 1 << 20)

    def flood(self: Played, say: Say) -> None:
        with suppress(OSError):
            while True:
                say(b"x" * (1 << 16))

    with served(status=flood) as (port, _):
        reason, said = words(ask(port))
    assert reason is Reason.TOOL_FAILED and "longer than 1048576 " in said


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            {"greeting": b"HTTP/1.1 400 Bad Request\r\n"},
            "what answers there is no NCCL RAS: 'HTTP/1.1 400 Bad Request'",
        ),
        ({"greeting": b"\x1b]0;evil\x07" * 300}, "what answers there is no NCCL RAS: '"),
        ({"status": lambda self, say: None}, "it ended the conversation without a report"),
    ],
)
def test_what_is_no_ras(changed: dict[str, Any], said: str) -> None:
    with served(**changed) as (port, _):
        reason, told = words(ask(port))
    assert reason is Reason.TOOL_FAILED
    assert told.startswith(said) and told.isprintable()


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("localhost", "names no port"),
        ("localhost:99999", "names no port"),
        ("metadata.internal:80", "names are not looked up"),
        ("192.0.2.1:80", "nobody listens at port 80: Cannot assign requested address"),
    ],
)
def test_an_environment_sends_nobody_to_other_machines(address: str, said: str) -> None:
    assert said in words(ask(address, SHORT))[1]


def test_addresses_of_this_machine() -> None:
    with served() as (port, _):
        for address in (f"127.0.0.1:{port}", f"0.0.0.0:{port}"):
            assert ask(address).data == JSON


def test_stopping_the_agent_ends_it_early() -> None:
    stop = threading.Event()
    asked = threading.Event()

    def hang(self: Played, say: Say) -> None:
        asked.set()
        self.rfile.read(1)

    def stop_when_asked() -> None:
        asked.wait(10.0)
        stop.set()

    with served(status=hang) as (port, _):
        stopper = threading.Thread(target=stop_when_asked)
        stopper.start()
        began = time.monotonic()
        assert "stopped" in words(ask(port, LONG, stop))[1]
        assert time.monotonic() - began < 5.0
        stopper.join()


#: A RAS in a network of its own, whose loopback it takes up first; it says its port.
APART = """
import fcntl, os, socket, struct, sys
with socket.socket() as line:
    fcntl.ioctl(line, 0x8914, struct.pack("16sH14x", b"lo", 0x41))  # SIOCSIFFLAGS: up, running
listening = socket.create_server(("127.0.0.1", 28028))
os.write(1, b"ready\\n")
line, _ = listening.accept()
with line.makefile("rwb", 0) as talk:
    for answer in (b"SERVER PROTOCOL 2\\n", b"OK\\n", b"OK\\n", sys.argv[1].encode()):
        talk.readline()
        talk.write(answer)
line.close()
os.read(0, 1)
"""


def test_trainers_with_a_network_of_their_own() -> None:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("needs root and unshare, to make a network")
    ours = Path("/proc/self/ns/net").readlink()
    with targets.running(APART, JSON.decode(), environ=own_job(), command=("unshare", "--net")) as process:
        tools = Tools(targets.proc, Missing(Reason.TOOL_MISSING, "none needed"), CaptureSettings())
        told = report(RankProcesses("job", Rank(0), ProcessRole.TRAINER, targets.row(process)), tools, LONG)
    assert told.data == JSON
    # Python joins a thread a moment before the kernel has ended it.
    until = time.monotonic() + 10.0
    while networks_of_our_threads() != {ours}:
        assert time.monotonic() < until
        time.sleep(0.01)


def networks_of_our_threads() -> set[Path]:
    networks = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):
            networks.add((task / "ns/net").readlink())
    return networks


def test_nothing_is_said_to_another_user_s_server() -> None:
    """Anybody may name a port in its environment; on this machine another user may listen there."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to listen as another user")
    serve = "import os, socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); "
    serve += "s.settimeout(60); s.accept()[0].close(); print('connected', flush=True)"
    call = ("setpriv", "--reuid=40001", "--regid=40001", "--clear-groups", "/usr/bin/python3", "-c", serve)
    with subprocess.Popen(call, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        reason, said = words(ask(port))
        assert reason is Reason.NOT_PERMITTED and f"port {port}" in said
        server.kill()
        assert "connected" not in server.stdout.read()
