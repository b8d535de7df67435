"""The line to the server: what is said when, what an order is answered with, and how it comes back after a loss."""

import asyncio
import math
import random
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hangdog_agent.capture.process_capture import Tools
from hangdog_agent.capture.pyspy import PySpy
from hangdog_agent.capture.settings import CaptureSettings
from hangdog_agent.connection.link import comparable_signs
from hangdog_agent.connection.session import backoff, within
from hangdog_agent.connection.settings import LinkSettings
from hangdog_agent.discovery.watch import Watch
from hangdog_agent.stalls.monitor import StallMonitor
from hangdog_models.findings import Finding, Impact
from hangdog_models.planning.slowdown import Slowdown, StepPace
from hangdog_models.ranks import Rank
from hangdog_models.stack import Reason
from hangdog_models.stall_timeouts import Doing, Sign
from hangdog_proto.codec import dedup, findings
from hangdog_proto.codec.piece_cache import PieceCache
from hangdog_proto.codec.traces import unpack
from hangdog_proto.generated import hangdog_pb2 as pb
from support.fakes import targets
from support.fakes.targets import WAIT, running
from support.servers.far_end import ALERT, ENVIRON, PATIENCE_S, QUICK, Line, Server, linked, reached


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with Server() as server:
        yield server


@pytest.fixture
def stoppable(tools: Tools) -> Tools:
    """Without rings and dumps: to see that there are none takes a child, and in how many messages a look is sent is told here."""
    return replace(tools, stop=threading.Event(), settings=replace(tools.settings, profiler_ring=0, recorder_pipe=0))


async def test_it_says_who_it_is_and_what_is_here(server: Server, stoppable: Tools) -> None:
    async with linked(server, stoppable):
        line = await server.line()
        hello = await line.hear("hello")
        assert (hello.machine, hello.version) == ("gpu-a17", "1.2.3")
        assert (hello.boot, hello.serial) == ("b00t", "S/N 7")
        assert list((await line.hear("presence")).jobs) == []
        with running(WAIT, environ=ENVIRON):
            (job,) = (await line.hear("presence")).jobs
            assert (job.job, list(job.ranks), job.world_size, job.topology) == ("linked", [3], 8, "tp=8")
        assert list((await line.hear("presence")).jobs) == []


async def test_light_looks_come_no_faster_than_the_settings_say(server: Server, stoppable: Tools) -> None:
    loop = asyncio.get_running_loop()
    with running(WAIT, environ=ENVIRON):
        async with linked(server, stoppable, replace(QUICK, light_s=1.0)):
            line = await server.line()
            for name in "abc":  # at once, by whoever asks
                line.outbox.put_nowait(pb.ToAgent(capture=pb.CaptureOrder(order=name, job="linked", light=True)))
            answers, times = [], []
            for _ in range(3):
                answers.append(await line.hear("captured"))
                times.append(loop.time())
            assert [answer.order for answer in answers] == ["a", "b", "c"] and all(answer.last for answer in answers)
            assert times[2] - times[0] > 1.2, "begun a second apart each, though a look takes a while"


def test_signs_are_said_again_when_cores_are_free_again_and_not_for_every_second() -> None:
    def signs(seconds: float, crowding: float) -> dict[str, dict[Rank, Sign]]:
        return {"j": {Rank(2): Sign(Doing.COMPILING, seconds, crowding=crowding)}}

    crowded = comparable_signs(signs(5.0, 1.9))
    assert crowded != comparable_signs(signs(5.0, 1.0)), "the server would be patient for twice as long"
    assert crowded == comparable_signs(signs(6.0, 1.95))


async def test_it_is_heard_of_again_and_again(stoppable: Tools) -> None:
    async with Server(heartbeat_s=0.1) as server, linked(server, stoppable):
        line, beats = await server.line(), 0
        await line.hear("presence")
        async with asyncio.timeout(PATIENCE_S):
            while beats < 3:
                beats += (await line.heard.get()).WhichOneof("body") is None


async def test_it_follows_the_pace_it_is_told_and_whatever_it_says_is_a_sign_of_life(stoppable: Tools) -> None:
    loop = asyncio.get_running_loop()
    async with Server(heartbeat_s=60.0) as server, linked(server, stoppable):
        line = await server.line()
        assert (await line.hear("hello")).paced
        await line.hear("presence")
        line.outbox.put_nowait(pb.ToAgent(heartbeat_interval=pb.HeartbeatInterval(heartbeat_s=1.0)))
        async with asyncio.timeout(PATIENCE_S):
            while (await line.heard.get()).WhichOneof("body") is not None:
                pass
        order = pb.CaptureOrder(order="o", job="nobody's", rounds=1)
        began, heard_at = loop.time(), -math.inf
        while loop.time() - began < 2.5:
            line.outbox.put_nowait(pb.ToAgent(capture=order))
            async with asyncio.timeout(PATIENCE_S):
                while (await line.heard.get()).WhichOneof("body") != "captured":
                    assert loop.time() - heard_at > 0.5, "an answer just before is sign of life enough"
            heard_at = loop.time()


async def test_looks_travel_together_to_a_server_that_knows_it(stoppable: Tools) -> None:
    async with Server(digests=True, together=True) as server, linked(server, stoppable):
        line = await server.line()
        with running(WAIT, environ=ENVIRON):
            line.outbox.put_nowait(pb.ToAgent(capture=pb.CaptureOrder(order="o", job="linked", rounds=3)))
            messages = [await line.hear("captured"), await line.hear("captured")]
            line.outbox.put_nowait(
                pb.ToAgent(capture=pb.CaptureOrder(order="p", job="linked", rounds=3, together=True))
            )
            whole = await line.hear("captured")
        assert [before.round for before in whole.before] == [0, 1] and whole.round == 2 and whole.last
        assert [[*(before.round for before in m.before), m.round] for m in messages] == [[0], [1, 2]]
        assert messages[1].last
        (before,) = messages[1].before
        assert before.HasField("capture") or before.cpu_s


async def test_an_order_is_answered_look_by_look(server: Server, stoppable: Tools) -> None:
    loop = asyncio.get_running_loop()
    with running(WAIT, environ=ENVIRON) as target:
        async with linked(server, stoppable):
            line = await server.line()
            line.order("a", rounds=3, interval_s=0.3)
            ordered = loop.time()
            for number in range(3):
                answer = await line.hear("captured")
                assert (answer.order, answer.round, answer.last) == ("a", number, number == 2)
                (trace,) = unpack(answer.capture)
                assert (trace.rank, trace.role, trace.pid, trace.missing) == (3, "trainer", target.pid, None)
                assert any("stuck_here" in frame.function for thread in trace.threads for frame in thread.frames)
            assert loop.time() - ordered >= 0.6, "looks begin an interval apart"


async def test_a_server_that_knows_digests_is_sent_them_and_told_what_it_asks_for(stoppable: Tools) -> None:
    server = Server(digests=True)
    async with server, linked(server, stoppable):
        with running(WAIT, environ=ENVIRON):
            line, dictionary = await server.line(), PieceCache()
            await line.hear("presence")
            line.order("digested", rounds=2)
            first, second = await line.hear("captured"), await line.hear("captured")
            assert (
                not first.capture.traces
                and second.ByteSize() - sum(len(one) + 2 for one in second.capture.addresses) < 320
            )
            while lacking := dictionary.missing(first.capture) | dictionary.missing(second.capture):
                line.outbox.put_nowait(
                    pb.ToAgent(missing_pieces=pb.MissingPieces(digests=b"".join(lacking) + bytes(16)))
                )
                pieces = await line.hear("pieces")
                assert pieces.gone == bytes(16)
                dictionary.add(pieces.pieces)
            for captured in (first, second):
                (trace,) = dedup.unpack(captured.capture, dictionary)
                assert trace.rank == 3 and trace.threads[0].tid == trace.pid
                assert "stuck_here" in [frame.function for frame in trace.threads[0].frames]


async def test_an_order_for_a_job_that_is_not_here(server: Server, stoppable: Tools) -> None:
    async with linked(server, stoppable):
        line = await server.line()
        line.order("b", job="elsewhere", rounds=5, interval_s=60.0)
        answer = await line.hear("captured")
        assert (answer.order, answer.round, answer.last, len(answer.capture.traces)) == ("b", 0, True, 0)


async def test_a_rank_that_ended_since_it_was_announced_is_answered_for(server: Server, stoppable: Tools) -> None:
    async with linked(server, stoppable):
        line = await server.line()
        with running(WAIT, environ=ENVIRON) as target:
            while not (await line.hear("presence")).jobs:
                pass
            targets.end(target)
            line.order("c")
            (trace,) = unpack((await line.hear("captured")).capture)
        assert trace.missing is not None
        assert trace.missing.reason is Reason.EXITED


async def test_two_orders_at_once_are_both_answered(server: Server, stoppable: Tools) -> None:
    with running(WAIT, environ=ENVIRON):
        async with linked(server, stoppable):
            line = await server.line()
            line.order("a", rounds=2, interval_s=0.2)
            line.order("b", rounds=2, interval_s=0.2)
            answers = [await line.hear("captured") for _ in range(4)]
            assert sorted((answer.order, answer.round) for answer in answers) == [
                ("a", 0),
                ("a", 1),
                ("b", 0),
                ("b", 1),
            ]


async def test_a_hostile_order_is_brought_within_bounds(server: Server, stoppable: Tools) -> None:
    settings = replace(QUICK, rounds=2, interval_s=0.05)
    with running(WAIT, environ=ENVIRON):
        async with linked(server, stoppable, settings):
            line = await server.line()
            for name, interval_s in (("a", float("inf")), ("b", float("nan")), ("c", -1.0)):
                line.order(name, rounds=4_000_000_000, interval_s=interval_s)
                answers = [await line.hear("captured") for _ in range(2)]
                assert [answer.last for answer in answers] == [False, True]


async def test_it_waits_for_a_server_that_is_not_there_yet(stoppable: Tools) -> None:
    async with Server() as server:
        await server.stop()
        async with linked(server, stoppable):
            await asyncio.sleep(0.1)
            await server.start()
            await (await server.line()).hear("hello")


@pytest.mark.parametrize("gracefully", [True, False])
async def test_it_comes_back_after_a_loss(server: Server, stoppable: Tools, gracefully: bool) -> None:
    async with linked(server, stoppable):
        line = await server.line()
        await line.hear("presence")
        if gracefully:
            line.outbox.put_nowait(None)
        else:
            await server.stop()
            await server.start()
        again = await server.line()
        assert (await again.hear("hello")).machine == "gpu-a17"
        assert list((await again.hear("presence")).jobs) == []


async def test_stopping_in_the_middle_of_a_look_kills_the_tool(
    server: Server, stoppable: Tools, tmp_path: Path
) -> None:
    fake = tmp_path / "py-spy"
    fake.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\nexec sleep 60\n")
    fake.chmod(0o755)
    settings = CaptureSettings(nonblocking_s=30.0, look_s=60.0)
    with running(WAIT, environ=ENVIRON):
        async with linked(server, replace(stoppable, pyspy=PySpy((str(fake),)), settings=settings)):
            line = await server.line()
            line.order("a")
            await reached(lambda: (tmp_path / "started").exists())
        # `linked` has waited for the link's end; that no thread and no child is left is checked after every test


def test_back_off_doubles_up_to_its_bound_and_is_drawn_evenly_below() -> None:
    settings = LinkSettings(backoff_first_s=0.5, backoff_most_s=30.0)
    highest = [backoff(failures, settings, lambda low, high: high) for failures in (0, 1, 2, 5, 6, 7, 10_000)]
    assert highest == [0.5, 1.0, 2.0, 16.0, 30.0, 30.0, 30.0]
    drawn = [backoff(20, settings, random.Random(seed).uniform) for seed in range(200)]
    assert min(drawn) < 3.0
    assert max(drawn) > 27.0


def test_numbers_from_the_wire_are_brought_within_bounds() -> None:
    values = [float("nan"), float("-inf"), -1.0, 0.5, 2.0, float("inf")]
    assert [within(value, 0.1, 1.0) for value in values] == [0.1, 0.1, 0.1, 0.5, 1.0, 1.0]


async def test_a_standstill_is_told_and_so_is_its_end(server: Server, stoppable: Tools) -> None:
    async with linked(server, stoppable):
        line = await server.line()
        with running(WAIT, environ=ENVIRON):
            signs = [sign async for sign in overdue(line)]
            assert [(sign.rank, sign.doing) for sign in signs] == [(3, "still")]
            assert signs[0].seconds >= ALERT.patience_s
        while any(job.signs for job in (await line.hear("stall_report")).jobs):
            pass


async def test_a_slower_job_is_told_again_and_again_and_so_is_its_end(
    stoppable: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, lasts, tick = Slowdown(0.5, 0.75, 80.0), threading.Event(), StallMonitor.tick

    def slowed(monitor: StallMonitor, *members: Any) -> Any:
        signs = tick(monitor, *members)
        monitor.slowdowns = dict.fromkeys(monitor._jobs, slow) if lasts.is_set() else {}
        return signs

    monkeypatch.setattr(StallMonitor, "tick", slowed)
    lasts.set()
    async with Server(heartbeat_s=0.2) as server, linked(server, stoppable):
        line = await server.line()
        with running(WAIT, environ=ENVIRON):
            for _ in range(3):
                (job,) = (await line.hear("slow_report")).jobs
                assert (job.job, job.usual_s, job.step_s, job.seconds) == ("linked", 0.5, 0.75, 80.0)
                assert job.HasField("owner")
            lasts.clear()
            while (await line.hear("slow_report")).jobs:
                pass


async def test_a_heartbeat_tells_how_the_steps_go_on_while_they_are_timed(
    stoppable: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    pace, lasts, tick = StepPace(2.5, 1.0), threading.Event(), StallMonitor.tick

    def paced(monitor: StallMonitor, *members: Any) -> Any:
        signs = tick(monitor, *members)
        monitor.paces = dict.fromkeys(monitor._jobs, pace) if lasts.is_set() else {}
        return signs

    monkeypatch.setattr(StallMonitor, "tick", paced)
    lasts.set()
    async with Server(heartbeat_s=0.2) as server, linked(server, stoppable):
        line = await server.line()
        with running(WAIT, environ=ENVIRON):
            for _ in range(2):
                (job,) = (await line.hear("step_report")).jobs
                assert (job.job, job.step_s, job.age_s) == ("linked", 2.5, 1.0) and job.HasField("owner")


async def overdue(line: Line) -> AsyncIterator[pb.Sign]:
    """The signs of the first pulse in which somebody is overdue."""
    while not (signs := [sign for job in (await line.hear("stall_report")).jobs for sign in job.signs if sign.overdue]):
        pass
    for sign in signs:
        yield sign


async def test_the_server_may_have_it_look_closer(server: Server, stoppable: Tools) -> None:
    blind = replace(ALERT, suspicious_s=1000.0)
    async with linked(server, stoppable, alert=blind):
        line = await server.line()
        with running(WAIT, environ=ENVIRON):
            while not (await line.hear("presence")).jobs:
                pass
            line.outbox.put_nowait(pb.ToAgent(recheck=pb.Recheck(job="linked", seconds=1e9)))
            while not (job := (await line.hear("stall_report")).jobs[0]).signs:
                assert list(job.moving) == [3], "it was seen to move before"
            assert (job.job, [sign.rank for sign in job.signs]) == ("linked", [3])


async def test_what_the_checks_found_travels_with_the_last_look(server: Server, stoppable: Tools) -> None:
    lost = Finding("NVML", "GPU lost", Impact.CONVICTS, "GPU 3 is lost", "gpu-a17", device="0000:4b:00", at_s=5.0)
    with running(WAIT, environ=ENVIRON):
        async with linked(server, stoppable, findings=(lost,)):
            line = await server.line()
            line.order("a", rounds=2, interval_s=0.1)
            looks = [(await line.hear("captured")).capture for _ in range(2)]
    assert not looks[0].findings
    assert findings.unpack(looks[1].findings, "gpu-a17") == (lost,)


async def test_a_bug_in_one_scan_or_pulse_does_not_make_it_blind(
    server: Server, stoppable: Tools, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for kind, name in ((Watch, "see"), (StallMonitor, "tick")):
        monkeypatch.setattr(kind, name, failing_once(getattr(kind, name)))
    async with linked(server, stoppable):
        line = await server.line()
        with running(WAIT, environ=ENVIRON):
            while not (await line.hear("presence")).jobs:
                pass
            assert [sign.rank async for sign in overdue(line)] == [3]
    assert sum(record.exc_info is not None for record in caplog.records) == 2


def failing_once(work: Callable[..., Any]) -> Callable[..., Any]:
    left = iter((True,))

    def played(*arguments: Any) -> Any:
        if next(left, False):
            raise ValueError("a bug")
        return work(*arguments)

    return played
