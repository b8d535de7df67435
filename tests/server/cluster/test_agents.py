"""Agents at the server's door: who is let in, who is not and why, and what is remembered of those that left."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from hangdog_models.errors import WrongUse
from hangdog_models.findings import Finding, Impact
from hangdog_models.ranks import Rank
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_server.cluster.connection import LINE
from hangdog_server.cluster.fleet import Fleet
from hangdog_server.protocol.commands import CaptureCommand
from hangdog_server.protocol.jobs import AnnouncedJob
from hangdog_server.settings import ServerSettings
from support.servers.cast import PATIENT, QUICK, Stage, stage
from support.worded import names

SETTINGS = ServerSettings()


def local(*ranks: int, world: int = 4) -> dict[str, AnnouncedJob]:
    return {"llama": AnnouncedJob("llama", tuple(Rank(rank) for rank in ranks), world)}


async def refusal(on: Stage, *said: dict[str, object]) -> tuple[str, str]:
    """Says these to the server as an agent; how it ends the stream."""
    async with on.agent("a") as agent:
        for body in said:
            await agent.say(**body)
        status, words = await agent.end()
        assert status is grpc.StatusCode.INVALID_ARGUMENT
        return await agent.error(), words


HELLO: dict[str, object] = {"hello": pb.Hello(machine="a")}


@pytest.mark.parametrize(
    ("said", "error", "named"),
    [
        ([], "request-too-slow", ("0.2 s",)),
        ([{"presence": pb.Presence()}], "damaged-message", ("Hello",)),
        ([{"hello": pb.Hello(machine=" ")}], "bad-name", ("' '", "machine")),
        ([{"hello": pb.Hello(machine="a\x1b[2J")}], "bad-name", ("machine",)),
        ([{"hello": pb.Hello(machine="a" * 254)}], "bad-name", ("machine",)),
        ([HELLO, {"presence": pb.Presence(jobs=[pb.LocalJob(job="")])}], "bad-name", ("''", "job")),
        (
            [HELLO, {"presence": pb.Presence(jobs=[pb.LocalJob(job="j", ranks=[1 << 21])])}],
            "impossible-report",
            ("impossible ranks",),
        ),
        ([HELLO, {"presence": pb.Presence(jobs=[pb.LocalJob(job="j")] * 65)}], "impossible-report", ("65 jobs",)),
    ],
)
async def test_an_agent_that_cannot_be_true_is_turned_away_with_a_reason(
    tmp_path: Path, said: list[dict[str, object]], error: str, named: tuple[str, ...]
) -> None:
    async with stage(tmp_path / "s.db", settings=QUICK if not said else PATIENT) as on:
        code, words = await refusal(on, *said)
        assert code == error and names(words, *named)
        assert await on.machines() == ()


async def test_a_second_agent_of_a_living_machine_is_refused_and_the_first_one_stays(tmp_path: Path) -> None:
    async with stage(tmp_path / "s.db") as on, on.agent("a") as first:
        welcome = await first.hello(llama=[0])
        assert (welcome.heartbeat_s, welcome.max_message_bytes) == (PATIENT.heartbeat_s, PATIENT.max_message_bytes)
        await on.knows("a")
        code, words = await refusal(on, HELLO)
        assert code == "machine-name-taken" and names(words, "speaks for a")
        assert [machine.connected for machine in await on.machines()] == [True]


async def test_the_agent_of_a_machine_that_fell_silent_gives_way(tmp_path: Path) -> None:
    settings = replace(PATIENT, heartbeat_s=0.02)  # 2.5 of them pass while the second one connects
    async with stage(tmp_path / "s.db", settings=settings) as on, on.agent("a") as first, on.agent("a") as second:
        await first.hello(llama=[0])
        await on.until(lambda seen: bool(seen) and seen[0].silent_s > 0.05)
        await second.hello(llama=[0, 1])
        code, words = await first.end()
        assert (code, await first.error()) == (grpc.StatusCode.INVALID_ARGUMENT, "machine-name-taken")
        assert names(words, "replaced")
        await on.until(lambda seen: bool(seen[0].jobs) and seen[0].jobs[0].ranks == (0, 1))
        assert [machine.connected for machine in await on.machines()] == [True]


async def test_a_job_that_is_announced_no_more_has_ended(tmp_path: Path) -> None:
    async with stage(tmp_path / "s.db") as on, on.agent("a") as agent:
        await agent.hello(llama=[0])
        await on.knows("a")
        await agent.announce()
        await on.until(lambda seen: not seen[0].jobs)


async def test_too_many_machines_are_not_taken() -> None:
    fleet = Fleet(replace(SETTINGS, max_machines=1))
    fleet.connect("a", "1", "here", 0.0)
    with pytest.raises(WrongUse, match="1 machines") as caught:
        fleet.connect("b", "1", "there", 0.0)
    assert caught.value.code == "too-many-agents"


async def test_a_line_that_nobody_reads_takes_no_more_orders() -> None:
    fleet, order = Fleet(SETTINGS), CaptureCommand("o", "llama", 1, 1.0)
    connection = fleet.connect("a", "1", "here", 0.0)
    assert [fleet.send("a", order) for _ in range(LINE + 1)] == [True] * LINE + [False]
    assert not fleet.send("b", order)
    connection.end(None)
    assert connection.line.get_nowait() is None, "the end goes before every order"


@pytest.mark.parametrize(
    ("later", "absent"),
    [
        (lambda fleet: None, (2, 3)),
        (lambda fleet: fleet.announce(fleet.connect("c", "1", "c", 1.0), local(2), 1.0), (3,)),
        (lambda fleet: fleet.announce(fleet.connect("c", "1", "c", 1.0), local(0, 1, world=2), 1.0), (2, 3)),
        (lambda fleet: fleet.connect("b", "1", "b", 2.0), (2, 3)),
        (lambda fleet: fleet.announce(fleet.connect("b", "1", "b", 2.0), {}, 2.0), ()),
    ],
    ids=["nothing", "a rank moved", "a smaller job beside it", "it is back and has said nothing", "it is back, idle"],
)
async def test_a_lost_machine_belongs_to_its_job_until_others_have_its_ranks(
    later: Callable[[Fleet], object], absent: tuple[int, ...]
) -> None:
    fleet = Fleet(SETTINGS)
    for machine, ranks in (("a", (0, 1)), ("b", (2, 3))):
        connection = fleet.connect(machine, "1", machine, 0.0)
        fleet.announce(connection, local(*ranks), 0.0)
    assert fleet.disconnect(connection, 1.0)
    later(fleet)
    found = fleet.absent("llama", 3.0)
    assert tuple(rank for it in found.values() for rank in it.ranks) == absent
    assert fleet.absent("llama", 1.0 + SETTINGS.forget_s + 1) == {}, "a day later it is history"


async def test_an_earlier_run_of_another_size_is_not_missed() -> None:
    fleet = Fleet(SETTINGS)
    old, new = fleet.connect("a", "1", "a", 0.0), fleet.connect("b", "1", "b", 0.0)
    fleet.announce(old, local(0, 1, 2, 3), 0.0)
    fleet.disconnect(old, 1.0)
    fleet.announce(new, local(0, 1, world=2), 2.0)
    assert fleet.absent("llama", 3.0) == {}


async def test_what_a_machine_told_grows_old_while_nobody_hears_of_it() -> None:
    fleet = Fleet(SETTINGS)
    connection = fleet.connect("a", "1", "a", 0.0)
    fleet.announce(connection, local(0), 10.0)
    aged = Finding("NVML", "hot", Impact.SLOWS, "hot", "a", age_s=5.0)
    dated = Finding("NVML", "lost", Impact.CONVICTS, "lost", "a", at_s=1e9)
    connection.findings = aged, dated
    assert fleet.findings("a", 12.0) == (replace(aged, age_s=7.0), dated)
    fleet.disconnect(connection, 20.0)
    assert fleet.findings("a", 50.0) == (replace(aged, age_s=45.0), dated)
    assert fleet.findings("b", 50.0) == ()
