"""Campaigns from the command line to the verdict: a real server, real agents, real tests on the CPU, one machine that is broken."""

import json
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from hangdog.demo.conductor import free_port
from hangdog_proto.client.campaigns import CampaignClient
from support.fakes import ladder
from support.real.campaign_programs import agents, connected, server, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(ladder.PATIENCE_S)]


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


def test_a_machine_that_computes_wrong_is_convicted_though_the_server_is_killed_in_the_middle(tmp_path: Path) -> None:
    port = free_port()
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
            until(lambda: connected(tmp_path) == {"m0", "m1"})
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
    port = free_port()
    with server(tmp_path, port):
        until(lambda: (tmp_path / "server.log").read_bytes().count(b"listening on") == 1)
        with (
            agents(tmp_path, port, ("m0", "m1"), "damaged transfer", "programs.pairs"),
            asked_of(port, "run", "--machines", "m0,m1", "--level", "3", "--budget", "5m", "--why", "a hang") as asked,
        ):
            line = said(asked, "between machines: ")
            assert line.startswith("m0, m1: between machines: fail: ") and "integrity: " in line
            assert ": m0 with m1: from m1 to m0" in line
            asked.send_signal(signal.SIGINT)
            report, progress = asked.communicate()
            document = json.loads(report)
            assert asked.returncode == 130, progress
            assert (document["verdict"], document["why"]) == ("inconclusive", "a hang")
            assert document["because"].startswith("aborted by ") and document["because"].endswith("server's user")
            with CampaignClient(f"127.0.0.1:{port}") as client:
                assert [one.state for one in client.campaigns()] == ["aborted"]


@pytest.mark.timeout(3 * ladder.PATIENCE_S)
def test_replays_cross_at_the_machine_that_computes_other_bits_though_the_server_is_killed_between_phases(
    tmp_path: Path,
) -> None:
    port, names = free_port(), ("m0", "m1", "m2", "m3")
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
            until(lambda: connected(tmp_path) == {*names})
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
    port, names = free_port(), ("m0", "m1", "m2", "m3", "m4")
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
    assert silent["machine"] == "m0" and "no replay 'llama'" in silent["why"]
    assert {one["machine"] for one in document["not_convicted"]} == {"m1", "m2", "m3", "m4"}, progress
    assert set(ran.read_text().splitlines()) == {"a; b"}, "its words as they stand in the file, by no shell"
