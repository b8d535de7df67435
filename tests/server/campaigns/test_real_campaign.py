"""Campaigns from the command line to the verdict: a real server, real agents, real tests on the CPU, one machine that is broken."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

import pytest

from hangdog_models.errors import ServerUnreachable
from hangdog_proto.client.campaigns import CampaignClient
from support.fakes import ladder

pytestmark = [pytest.mark.slow, pytest.mark.timeout(ladder.PATIENCE_S)]

FAULTS = Path(ladder.__file__).parents[2] / "agent" / "machine_tests" / "faults"
#: Enough to see, in a second or two of one core; nothing here is about speed.
SMALL = ("memory_bytes=8388608", "gemm_size_cpu=192", "gemm_repetitions=5", "speed_repetitions=5", "speed_drop_cpu=0.99",
         "pair_drop_cpu=0.999")  # fmt: skip


@contextmanager
def process(log: IO[bytes], *arguments: str, **environ: str) -> Iterator[subprocess.Popen[bytes]]:
    """A program of ours, which is told to end afterwards."""
    command = [sys.executable, "-m", *arguments]
    with subprocess.Popen(command, env={**os.environ, **environ}, stdout=log, stderr=log) as running:
        try:
            yield running
        finally:
            running.terminate()


@contextmanager
def server(folder: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    with (folder / "server.log").open("ab") as log:
        where = ("--listen", f"127.0.0.1:{port}", "--store", str(folder / "s.db"))
        with process(log, "hangdog", "server", *where) as running:
            yield running


@contextmanager
def agents(folder: Path, port: int, names: Sequence[str], fault: str, victim: str, *more: str) -> Iterator[None]:
    """One for each name; in the processes of the last one's tests whose command line holds `victim`, torch has a fault.

    `more` are further options of all of them but the first.
    """
    broken = {"PYTHONPATH": str(FAULTS), "HANGDOG_TEST_FAULT": fault, "HANGDOG_TEST_VICTIM": victim} if fault else {}
    sets = [word for one in SMALL for word in ("--set", f"diagnose.{one}")]
    with ExitStack() as stack:
        log = stack.enter_context((folder / "agents.log").open("ab"))
        for name in names:
            called = (
                "--server",
                f"127.0.0.1:{port}",
                "--machine",
                name,
                "--match-env",
                f"NOBODY_HAS={os.getpid()}",
                *sets,
                "--set",
                "diagnose_abandon_s=600",  # a server may take minutes to start where the machine has much else to do
                *(more if name != names[0] else ()),
            )
            environ = broken if name == names[-1] else {}
            stack.enter_context(process(log, "hangdog_agent.main", *called, **environ))
        until(lambda: connected(port) == set(names))
        yield


def connected(port: int) -> set[str]:
    with CampaignClient(f"127.0.0.1:{port}") as client:
        try:
            return {line.name for line in client.machines() if line.connected}
        except ServerUnreachable:
            return set()


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 200  # a machine with ten times as much to do as it can is slow, not broken
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


def asked_of(port: int, *args: str) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        "-m",
        "hangdog",
        "test",
        args[0],
        "--server",
        f"127.0.0.1:{port}",
        "--format",
        "json",
        *args[1:],
    ]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def said(asked: subprocess.Popen[str], words: str) -> str:
    """The line of progress that holds these words, once it has come."""
    assert asked.stderr is not None
    return next(line for line in asked.stderr if words in line)


def free() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def test_a_machine_that_computes_wrong_is_convicted_though_the_server_is_killed_in_the_middle(tmp_path: Path) -> None:
    port = free()
    with ExitStack() as stack:
        first = stack.enter_context(server(tmp_path, port))
        until(lambda: (tmp_path / "server.log").read_bytes().count(b"listening on") == 1)
        stack.enter_context(agents(tmp_path, port, ("m0", "m1"), "product", "one_device"))
        with asked_of(port, "run", "--machines", "m0,m1", "--level", "1", "--budget", "5m") as asked:
            name = said(asked, "campaign").split()[1]
            said(asked, "round 1")
            first.kill()
            assert "asking again" in said(asked, "no server answers")
            asked.kill()  # it would wait for minutes, and go on by itself (test_waiting_commands.py)
        with server(tmp_path, port):
            until(lambda: connected(port) == {"m0", "m1"})
            with asked_of(port, "follow", name) as followed:
                report, progress = followed.communicate()
    document = json.loads(report)
    assert followed.returncode == 1, progress
    assert (document["campaign"], [one["machine"] for one in document["convicted"]]) == (name, ["m1"]), progress
    assert document["launches"][0]["launch"] == 0 and all(
        one["result"] != "inconclusive" for one in document["launches"]
    )
    assert all("products of float32" in words for words in document["convicted"][0]["because"])


def test_ctrl_c_ends_the_tests_of_a_group_and_tells_what_was_found(tmp_path: Path) -> None:
    port = free()
    with server(tmp_path, port):
        until(lambda: (tmp_path / "server.log").read_bytes().count(b"listening on") == 1)
        with (
            agents(tmp_path, port, ("m0", "m1"), "damaged transfer", "programs.pairs"),
            asked_of(port, "run", "--machines", "m0,m1", "--level", "3", "--budget", "5m", "--why", "a hang") as asked,
        ):
            line = said(asked, "between machines: ")
            assert line.startswith(
                "m0, m1: between machines: fail: integrity: data arrives wrong: m0 with m1: from m1 to m0"
            )
            asked.send_signal(signal.SIGINT)
            report, progress = asked.communicate()
            document = json.loads(report)
            assert asked.returncode == 130, progress
            assert (document["verdict"], document["why"]) == ("inconclusive", "a hang")
            assert document["because"] == "aborted by the server's user"
            with CampaignClient(f"127.0.0.1:{port}") as client:
                assert [one.state for one in client.campaigns()] == ["aborted"]


@pytest.mark.timeout(3 * ladder.PATIENCE_S)
def test_replays_cross_at_the_machine_that_computes_other_bits_though_the_server_is_killed_between_phases(
    tmp_path: Path,
) -> None:
    port, names = free(), ("m0", "m1", "m2", "m3")
    with ExitStack() as stack:
        first = stack.enter_context(server(tmp_path, port))
        until(lambda: (tmp_path / "server.log").read_bytes().count(b"listening on") == 1)
        stack.enter_context(agents(tmp_path, port, names, "gradient", "group_training"))
        with asked_of(port, "run", "--machines", ",".join(names), "--level", "5", "--budget", "10m") as asked:
            name = said(asked, "campaign").split()[1]
            said(asked, "round 2: phase 2 of 3, strides")
            first.kill()
            said(asked, "no server answers")
            asked.kill()
        with server(tmp_path, port):
            until(lambda: connected(port) == {*names})
            with asked_of(port, "follow", name) as followed:
                report, progress = followed.communicate()
    document = json.loads(report)
    assert followed.returncode == 1, progress
    assert [one["machine"] for one in document["convicted"]] == ["m3"], progress
    assert document["replay"]["phases"] == ["neighbours", "strides", "diagonals"], progress
    assert document["replay"]["crossed"] == ["m3"], progress
    assert {one["result"] for one in document["launches"]} == {"pass", "fail"}, progress
    assert all("differs on rank 1" in words for words in document["convicted"][0]["because"]), progress
    assert [one["launch"] for one in document["launches"]] == [*range(6)], "nothing ran twice"


@pytest.mark.timeout(3 * ladder.PATIENCE_S)
def test_a_job_s_own_program_is_replayed_where_the_machine_knows_it_by_name_and_nowhere_else(tmp_path: Path) -> None:
    program, ran = tmp_path / "reproduce.py", tmp_path / "ran"
    program.write_text(
        "import os, socket, sys, time\n"
        f"open({str(ran)!r}, 'a').write(' '.join(sys.argv[1:]) + '\\n')\n"
        "where = (os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT']))\n"
        "if os.environ['RANK'] == '0':\n"
        "    socket.create_server(where).accept()\n"
        "else:\n"
        "    while True:\n"
        "        try:\n"
        "            sys.exit(socket.create_connection(where).close())\n"
        "        except ConnectionRefusedError:\n"
        "            time.sleep(0.05)\n"
    )
    replays = tmp_path / "replays.toml"
    replays.write_text(f"[tests.replay]\nllama = [{sys.executable!r}, {str(program)!r}, 'a; b']\n")
    port, names = free(), ("m0", "m1", "m2", "m3", "m4")
    with server(tmp_path, port):
        until(lambda: (tmp_path / "server.log").read_bytes().count(b"listening on") == 1)
        with (
            agents(tmp_path, port, names, "", "", "--replays", str(replays)),
            asked_of(
                port, "run", "--machines", ",".join(names), "--level", "5", "--replay", "llama", "--budget", "10m"
            ) as asked,
        ):
            report, progress = asked.communicate()
    document = json.loads(report)
    assert (asked.returncode, document["verdict"]) == (2, "inconclusive"), progress
    (silent,) = document["untested"]
    assert silent["machine"] == "m0" and "this agent's settings name no replay 'llama'" in silent["why"]
    assert {one["machine"] for one in document["not_convicted"]} == {"m1", "m2", "m3", "m4"}, progress
    assert set(ran.read_text().splitlines()) == {"a; b"}, "its words as they stand in the file, by no shell"
