"""Orders to test the machine: obeyed beside no job and one at a time, ended when nobody wants it, and answered however the line fares."""

import asyncio
import json
import math
import os
import re
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from hangdog_agent.capture.process_capture import Tools
from hangdog_agent.discovery.watch import LocalJob
from hangdog_agent.machine_tests.ordered_tests import REPETITIONS, Kit, OrderedTest, repeated, written
from hangdog_agent.machine_tests.remote_tests import Jobs, RemoteTests, wanted
from hangdog_agent.machine_tests.rendezvous import Rendezvous
from hangdog_agent.machine_tests.settings import RemoteTestSettings
from hangdog_agent.machine_tests.torch_engine import Engine
from hangdog_agent.settings import chosen
from hangdog_models.errors import WrongUse
from hangdog_proto.generated import hangdog_pb2 as pb
from support.fakes.targets import WAIT, running
from support.refused import refused
from support.servers.far_end import ENVIRON, Line, Server, linked, reached

#: A Python as the levels see it, whose tests never end, or say nothing of use at once; each writes down that it lives.
SCRIPT = """#!/bin/sh
case "$4" in
  *.list_devices) echo '{"found": {"torch": "played", "accelerators": 0}}' ;;
  *) echo $$ >>"%s"; %s ;;
esac
"""


@dataclass(frozen=True)
class Bench:
    """What tests the machine, and which of its processes began."""

    folder: Path
    settings: RemoteTestSettings = field(default_factory=RemoteTestSettings)
    replays: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def made(self, does: str = "exec sleep 600") -> Callable[[Jobs], RemoteTests]:
        python = self.folder / "python"
        python.write_text(SCRIPT % (self.folder / "pids", does))
        python.chmod(0o755)
        return lambda jobs: RemoteTests(
            self.settings, jobs, lambda: Kit(Engine(str(python), dict(os.environ))), self.replays
        )

    @property
    def began(self) -> list[int]:
        pids = self.folder / "pids"
        return [int(line) for line in pids.read_text().splitlines()] if pids.exists() else []

    def nobody_lives(self) -> bool:
        return not any(Path(f"/proc/{pid}").exists() for pid in self.began)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with Server() as server:
        yield server


@pytest.fixture
def stoppable(tools: Tools) -> Tools:
    return replace(tools, stop=threading.Event())


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def order(launch: str = "c-0", **more: Any) -> pb.ToAgent:
    asked: dict[str, Any] = {"levels": [1], "repetitions": 1, "deadline_s": 60.0, "members": ["gpu-a17"], **more}
    return pb.ToAgent(diagnose=pb.Diagnose(launch=launch, **asked))


async def told(line: Line) -> pb.Diagnosed:
    found: pb.Diagnosed = await line.hear("diagnosed")
    return found


async def begun(server: Server, bench: Bench, **more: Any) -> Line:
    """A line on which a test is under way."""
    line = await server.line()
    line.outbox.put_nowait(order(**more))
    await reached(lambda: len(bench.began) == 1)
    return line


async def test_who_has_no_way_to_test_never_says_that_it_has(server: Server, stoppable: Tools, bench: Bench) -> None:
    async with linked(server, stoppable):
        assert not (await (await server.line()).hear("hello")).diagnoses
    async with linked(server, stoppable, remote_tests=bench.made()):
        assert (await (await server.line()).hear("hello")).diagnoses


async def test_the_names_of_replays_are_told_and_nothing_else_of_them(
    server: Server, stoppable: Tools, bench: Bench
) -> None:
    knows = replace(bench, replays={"llama": ("/opt/llama/secret.py", "--key"), "mixtral": ("/bin/true",)})
    async with linked(server, stoppable, remote_tests=knows.made()):
        hello = await (await server.line()).hear("hello")
        assert list(hello.replays) == ["llama", "mixtral"] and "secret" not in str(hello)
    shut = replace(knows, settings=RemoteTestSettings(diagnose=0))
    async with linked(server, stoppable, remote_tests=shut.made()):
        hello = await (await server.line()).hear("hello")
        assert not hello.diagnoses and not hello.replays, "an agent that tests is awaited in its place"


async def test_a_report_comes_back_and_is_kept_for_who_asks_again(
    server: Server, stoppable: Tools, bench: Bench
) -> None:
    async with linked(server, stoppable, remote_tests=bench.made("echo broken >&2; exit 3")):
        line = await server.line()
        line.outbox.put_nowait(order())
        first = await told(line)
        document = json.loads(first.report)
        assert (document["schema"], document["machine"], document["parts"]) == ("hangdog.diagnosis/1", "gpu-a17", {})
        (result,) = next(level for level in document["levels"] if level["name"] == "one device")["results"]
        assert result["outcome"] == "inconclusive" and "status 3" in result["says"]
        await server.stop()
        await server.start()
        line = await server.line()
        line.outbox.put_nowait(order())
        assert (await told(line)).report == first.report and len(bench.began) == 1, "nothing is done twice"


async def test_nothing_is_tested_beside_a_job(server: Server, stoppable: Tools, bench: Bench) -> None:
    with running(WAIT, environ=ENVIRON):
        async with linked(server, stoppable, remote_tests=bench.made()):
            line = await server.line()
            while not (await line.hear("presence")).jobs:  # a process that has just begun may not be read yet
                pass
            line.outbox.put_nowait(order())
            refused = (await told(line)).refused
            assert "job linked runs" in refused and "1 rank" in refused
            assert not bench.began


async def test_a_job_that_begins_ends_the_test(server: Server, stoppable: Tools, bench: Bench) -> None:
    async with linked(server, stoppable, remote_tests=bench.made()):
        line = await begun(server, bench)
        with running(WAIT, environ=ENVIRON):
            assert "job linked began" in (await told(line)).refused
            assert bench.nobody_lives()


async def test_one_at_a_time_and_an_abort_ends_it_with_all_it_started(
    server: Server, stoppable: Tools, bench: Bench
) -> None:
    async with linked(server, stoppable, remote_tests=bench.made("sleep 600 & setsid sleep 600 & sleep 600")):
        line = await begun(server, bench)
        line.outbox.put_nowait(order("d-0"))
        assert re.match(r"launch c-0 .*tested", (await told(line)).refused)
        line.outbox.put_nowait(order())
        line.outbox.put_nowait(pb.ToAgent(abort=pb.Abort(launch="another")))
        line.outbox.put_nowait(pb.ToAgent(abort=pb.Abort(launch="c-0")))
        line.outbox.put_nowait(order("d-1"))  # at once, as a campaign does whose partner died
        answer = await told(line)
        assert answer.launch == "c-0" and "aborted" in answer.refused
        assert not Path(f"/proc/{bench.began[0]}").exists()
        await reached(lambda: len(bench.began) == 2)
        line.outbox.put_nowait(order("d-2"))
        assert re.match(r"launch d-1 .*tested", (await told(line)).refused)


async def test_a_server_that_is_not_back_in_time_wants_nothing_any_more(
    server: Server, stoppable: Tools, bench: Bench
) -> None:
    impatient = replace(bench, settings=replace(bench.settings, diagnose_abandon_s=0.3))
    async with linked(server, stoppable, remote_tests=impatient.made()):
        await begun(server, bench)
        await server.stop()
        await reached(bench.nobody_lives)
        await server.start()
        line = await server.line()
        line.outbox.put_nowait(order())
        refused = (await told(line)).refused
        assert "no server" in refused and refused.endswith(" 0.3 s")


async def test_a_server_that_is_back_in_time_is_told_as_if_nothing_had_been(
    server: Server, stoppable: Tools, bench: Bench
) -> None:
    async with linked(server, stoppable, remote_tests=bench.made()):
        line = await begun(server, bench, members=["gpu-a17", "gpu-a18"], levels=[3], addresses=["127.0.0.1"])
        first = await told(line)
        host, _, port = first.meet.partition(":")
        assert host == "127.0.0.1" and 0 < int(port) < 65_536
        await server.stop()
        await server.start()
        line = await server.line()
        line.outbox.put_nowait(order(members=["gpu-a17", "gpu-a18"], levels=[3]))
        assert (await told(line)).meet == first.meet
        assert len(bench.began) == 1


async def test_a_server_that_was_away_for_a_moment_still_wants_what_it_ordered(bench: Bench) -> None:
    said: list[pb.Diagnosed] = []

    async def say(message: pb.FromAgent) -> None:
        said.append(message.diagnosed)

    async def none() -> tuple[LocalJob, ...]:
        return ()

    diagnosing = replace(bench, settings=replace(bench.settings, diagnose_abandon_s=0.05)).made()(none)
    diagnosing.connected(say)
    await diagnosing.take(order().diagnose, "127.0.0.1:7411")
    await reached(lambda: len(bench.began) == 1)
    diagnosing.lost()
    diagnosing.connected(say)
    await asyncio.sleep(0.1)  # by now it would have been ended
    await diagnosing.close()
    (answer,) = said
    assert "agent is stopped" in answer.refused and bench.nobody_lives()


async def test_an_agent_that_is_stopped_ends_its_tests_first(server: Server, stoppable: Tools, bench: Bench) -> None:
    async with linked(server, stoppable, remote_tests=bench.made("sleep 600 & sleep 600")):
        await begun(server, bench)
    assert bench.nobody_lives()


@pytest.mark.parametrize(
    ("asked", "code", "value"),
    [
        ({"levels": [0]}, "unknown-choice", "1, 2, 3, 4, 5; it requested [0]"),
        ({"levels": [5], "replay": "llama"}, "no-such-replay", "'llama'"),
        ({"levels": [1, 9]}, "unknown-choice", "[1, 9]"),
        ({"levels": []}, "unknown-choice", "[]"),
        ({"members": []}, "wrong-test-group", "a group of 0 has no member 0"),
        ({"member": 1}, "wrong-test-group", "a group of 1 has no member 1"),
        ({"members": ["x"] * 257}, "wrong-test-group", "a group of 257"),
        ({"members": ["a", "b"], "member": 1}, "wrong-test-group", "member 0"),
        ({"members": ["a", "b"], "meet": "; rm -rf /"}, "wrong-test-group", "HOST:PORT"),
        ({"deadline_s": math.nan}, "out-of-range", "nan s"),
        ({"deadline_s": 4.0}, "out-of-range", "4 s"),
    ],
)
def test_what_may_not_be_ordered_is_refused_with_the_reason(asked: dict[str, Any], code: str, value: str) -> None:
    with pytest.raises(WrongUse) as caught:
        wanted(order(**asked).diagnose, RemoteTestSettings(), {})
    assert caught.value.code == code and value in str(caught.value)


def test_an_owner_may_forbid_all_of_it_and_bounds_what_is_obeyed() -> None:
    with refused("machine-tests-disabled"):
        wanted(order().diagnose, RemoteTestSettings(diagnose=0), {})
    asked = wanted(order(deadline_s=1e9).diagnose, RemoteTestSettings(), {})
    assert asked == OrderedTest((1,), 1, 3600.0, ("gpu-a17",), 0)
    settings = chosen(["diagnose.memory_bytes=4096", "diagnose_processes=2"])
    assert (settings.levels.memory_bytes, settings.remote_tests.diagnose_processes) == (4096, 2)
    assert repeated(settings.levels, 10**9).gemm_repetitions == REPETITIONS * settings.levels.gemm_repetitions


def test_a_report_that_is_too_long_goes_without_its_digests() -> None:
    document = {"levels": [{"results": [{"test": "dense", "digests": {str(at): "f" * 64 for at in range(9000)}}]}]}
    assert json.loads(written(document)) == {"levels": [{"results": [{"test": "dense", "digests": {}}]}]}


def test_a_group_meets_where_others_can_reach_it() -> None:
    meeting = Rendezvous(["127.0.0.1", "no address"], "127.0.0.1:7411")
    assert meeting.at.startswith("127.0.0.1:")
    meeting.release()
    with pytest.raises(WrongUse, match=r"nowhere\.invalid") as caught:
        Rendezvous([], "nowhere.invalid:7411")
    assert caught.value.code == "unreachable-machine"
