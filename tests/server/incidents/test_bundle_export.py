"""An incident that the server judged, written by the command, is judged the same where there is no server."""

import asyncio
import json
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from click.testing import CliRunner, Result
from msgspec import structs

import hangdog
from hangdog.main import main
from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.incident import Incident, IncidentState
from hangdog_models.ranks import Rank
from hangdog_models.stack import Frame, ProcessTrace
from hangdog_models.verdict import Kind, Verdict, from_json
from hangdog_proto.codec import collectives
from hangdog_proto.codec.collectives import Statement
from hangdog_proto.codec.traces import pack
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_server.incidents.gather import FURTHER
from support.cases.evidence import flight
from support.cases.stories import trace
from support.servers.cast import NOON, PATIENT, QUICK, Agent, Stage, cluster, stage
from support.servers.exported import RAS, same
from support.worded import names


async def command(on: Stage, *arguments: str) -> Result:
    return await asyncio.to_thread(CliRunner().invoke, main, ["bundle", *arguments, "--server", on.address])


async def exported(on: Stage, incident: str, folder: Path) -> Verdict:
    """The verdict that `hangdog triage` draws from what `hangdog bundle` wrote."""
    result = await command(on, incident, "-o", str(folder))
    assert result.exit_code == 0, result.output
    read = hangdog.triage(folder)
    assert read.evidence.ignored == () and not read.evidence.unreadable
    return read


async def judged(on: Stage, *playing: Coroutine[Any, Any, None], **asked: Any) -> tuple[str, Verdict]:
    """An incident while the agents play: its name and its verdict."""
    steps, *_ = await asyncio.gather(on.snapshot("llama", **asked), *playing)
    assert steps[-1].verdict is not None
    return steps[-1].incident, steps[-1].verdict


async def shows(agent: Agent, *looked: list[ProcessTrace], said: tuple[Statement, ...] = ()) -> None:
    """Answers an order with these looks, the last with what libraries counted."""
    order = await agent.order()
    for number, one in enumerate(looked):
        capture = pack(one)
        last = number == len(looked) - 1
        capture.statements.extend(map(collectives.pack, said if last else ()))
        await agent.say(captured=pb.Captured(order=order.order, round=number, capture=capture, last=last))


def ranks(stories: dict[int, str]) -> list[ProcessTrace]:
    return [trace(rank, stack, state="" if stack == "disk" else "S") for rank, stack in stories.items()]


TWO = replace(PATIENT, rounds=2)


async def test_what_inspector_wrote_lies_in_the_bundle_as_old_as_it_was(tmp_path: Path) -> None:
    """One rank of eight lacks an operation that the others completed."""
    header = '{"header":{"id":"0x7f","rank":%d,"n_ranks":8},"metadata":{"inspector_output_format_version":"v4.2"},'
    line = header + '"coll_perf":{"coll":"AllReduce","coll_sn":%d,"coll_exec_time_us":5}}\n'

    def said(*ranks: int) -> tuple[Statement, ...]:
        dumps = [(rank, (line % (rank, 8 if rank == 5 else 9)).encode()) for rank in ranks]
        return tuple(Statement(collectives.StatementKind.INSPECTOR, Rank(rank), data, age_s=3) for rank, data in dumps)

    async with (
        stage(tmp_path / "s.db", diagnose, TWO) as on,
        cluster(on, a=list(range(4)), b=list(range(4, 8))) as (a, b),
    ):
        looks = ranks(dict.fromkeys(range(4), "scatter")), ranks(dict.fromkeys(range(4, 8), "scatter"))
        playing = (
            shows(a, looks[0], looks[0], said=said(*range(4))), shows(b, looks[1], looks[1], said=said(*range(4, 8)))
        )  # fmt: skip
        name, verdict = await judged(on, *playing)
        read = await exported(on, name, tmp_path / "out")
        same(verdict, read)
        dumps = sorted(path.name for path in (tmp_path / "out").glob("*.inspector*"))
        assert dumps == [f"rank{rank}.inspector.written-3s-before.log" for rank in range(8)]
        assert "NCCL Inspector" in " ".join(read.evidence.notes)


async def test_a_machine_outside_the_collective_is_evicted_from_the_bundle_too(tmp_path: Path) -> None:
    async with stage(tmp_path / "s.db", diagnose, TWO) as on, cluster(on, a=[0, 1], b=[2, 3], c=[4, 5]) as (a, b, c):
        wait, stuck = ranks({2: "scatter", 3: "scatter"}), ranks({4: "disk", 5: "scatter"})
        first = ranks({0: "scatter", 1: "scatter"})
        playing = (shows(a, first, first), shows(b, wait, wait), shows(c, stuck, stuck))
        name, verdict = await judged(on, *playing, job_toml="[topology]\ndp = 6\n")
        read = await exported(on, name[:6], tmp_path / "out")
        assert (verdict.kind, verdict.evict.machines) == (Kind.MACHINE, ("c",))
        same(verdict, read)
        again = await command(on, name, "-o", str(tmp_path / "out"))
        assert again.exit_code == 64 and "[already-exists]" in again.output, "nothing is written over"
        assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {"out"}, "and nothing left beside it"
        text = (tmp_path / "out" / "job.toml").read_text()
        about = [line for line in text.splitlines() if line.startswith("#")]
        assert names(about[0], name) and any(names(line, "Verdict", Kind.MACHINE) for line in about)
        missing = await command(on, "ff", "-o", str(tmp_path / "other"))
        assert missing.exit_code == 64 and "[no-such-incident]" in missing.output and not (tmp_path / "other").exists()
        await on.store.do(lambda c: c.execute(sa.text(f"UPDATE incidents SET pruned = {NOON}")))
        gone = await command(on, name, "-o", str(tmp_path / "other"))
        assert gone.exit_code == 64 and "2027-01-15" in gone.output and "[captures-removed]" in gone.output


async def test_for_how_long_a_job_stood_is_in_its_bundle(tmp_path: Path) -> None:
    async with stage(tmp_path / "s.db", diagnose, QUICK) as on, cluster(on, a=[0, 1]) as (a,):
        name, _ = await judged(on, shows(a, ranks({0: "scatter", 1: "scatter"})))
        asked, _ = await on.store.kept(name)
        await on.store.remember(name, {**asked, "stood_s": 12.5})
        await exported(on, name, tmp_path / "out")
        assert "stalled_s = 12.5\n" in (tmp_path / "out" / "job.toml").read_text()


async def test_code_that_calls_different_collectives(tmp_path: Path) -> None:
    async with stage(tmp_path / "s.db", diagnose, TWO) as on, cluster(on, a=[0, 1], b=[2, 3]) as (a, b):
        one, other = ranks({0: "gather", 1: "gather"}), ranks({2: "scatter", 3: "scatter"})
        said = [
            tuple(Statement(collectives.StatementKind.RECORD, Rank(r), flight(5, 4)) for r in of)
            for of in ((0, 1), (2, 3))
        ]
        report = Statement(collectives.StatementKind.RAS, None, RAS.format("ab", 1).encode())
        playing = (shows(a, one, one, said=(*said[0], report)), shows(b, other, other, said=(*said[1], report)))
        name, verdict = await judged(on, *playing)
        same(verdict, await exported(on, name, tmp_path / "out"))


async def test_a_group_that_all_joined(tmp_path: Path) -> None:
    async with stage(tmp_path / "s.db", diagnose, TWO) as on, cluster(on, a=[0, 1], b=[2, 3]) as (a, b):
        one, other = ranks({0: "tensor", 1: "tensor"}), ranks({2: "stage", 3: "stage"})
        playing = (shows(a, one, one), shows(b, other, other))
        name, verdict = await judged(on, *playing, job_toml="[topology]\ntp = 2\npp = 2\n")
        assert verdict.kind is Kind.GROUP
        same(verdict, await exported(on, name, tmp_path / "out"))


async def test_native_stacks_that_decided(tmp_path: Path) -> None:
    call = ["<module> train.py", "step train.py", "exchange binding.py"]

    async def plays(agent: Agent, *mine: int) -> None:
        bare = [trace(rank, call, state="S") for rank in mine]
        await shows(agent, bare, bare)
        order = await agent.order()
        assert order.native
        deeper = []
        for seen in bare:
            names = ("take_lock", "pthread_mutex_lock") if seen.rank == 2 else ("receive", "recv")
            below = tuple(Frame(name, "call.so", 0, "/opt/call.so") for name in names)
            deeper.append(
                structs.replace(
                    seen, threads=(structs.replace(seen.threads[0], frames=seen.threads[0].frames + below),)
                )
            )
        await agent.answer(order, *deeper, last=True)

    closer = replace(TWO, native_ranks=32)
    async with stage(tmp_path / "s.db", diagnose, closer) as on, cluster(on, a=[0, 1], b=[2, 3]) as (a, b):
        name, verdict = await judged(on, plays(a, 0, 1), plays(b, 2, 3))
        assert (verdict.kind, verdict.suspects[0].ranks) == (Kind.SOFTWARE, (2,))
        same(verdict, await exported(on, name, tmp_path / "out"))
        asked, kept = await on.store.recall(name)
        assert max(one.round for one in kept) == asked["rounds"] + FURTHER


async def test_light_looks_at_a_slow_job(tmp_path: Path) -> None:
    async def plays(agent: Agent, *mine: int, stays: int = -1) -> None:
        for number in range(3):
            order = await agent.order()
            assert order.light
            where = {rank: "user" if rank == stays else ("scatter", "backward", "gather")[number] for rank in mine}
            await agent.answer(order, *ranks(where), last=True)

    light = replace(PATIENT, light_rounds=3, light_interval_s=0.05)
    async with stage(tmp_path / "s.db", diagnose, light) as on, cluster(on, a=[0, 1], b=[2, 3]) as (a, b):
        name, verdict = await judged(on, plays(a, 0, 1), plays(b, 2, 3, stays=2), light=True)
        same(verdict, await exported(on, name, tmp_path / "out"))


async def test_machines_that_were_lost_silent_or_stopped(tmp_path: Path) -> None:
    """What weighs against a machine and what does not is not in the captures, and is kept beside them."""
    machines = {"a": [0, 1], "b": [2, 3], "c": [4, 5], "d": [6, 7]}
    async with stage(tmp_path / "s.db", diagnose, replace(QUICK, rounds=2)) as on, cluster(on, **machines) as agents:
        a, b, c, d = agents
        await d.say(presence=pb.Presence(jobs=[pb.LocalJob(job="llama", ranks=[6, 7])], leaving=True))
        await d.hang_up()
        await on.until(lambda seen: any(not line.connected for line in seen))

        async def half(agent: Agent, mine: dict[int, str], leaves: bool) -> None:
            order = await agent.order()
            await agent.answer(order, *ranks(mine))
            if leaves:
                await agent.hang_up()

        first = ranks({0: "scatter", 1: "scatter"})
        lost, silent = half(b, {2: "scatter", 3: "scatter"}, True), half(c, {4: "scatter", 5: "scatter"}, False)
        name, verdict = await judged(on, shows(a, first, first), lost, silent)
        same(verdict, await exported(on, name, tmp_path / "out"))
        told = verdict.coverage.failed
        assert any("stopped in order" in why for why in told.values())


async def test_what_was_recorded_while_no_server_was_there(tmp_path: Path) -> None:
    brief = replace(PATIENT, returned_s=0.2)
    async with stage(tmp_path / "s.db", diagnose, brief) as on, on.agent("a") as a, on.agent("b") as b:
        await a.hello(llama=[0, 1])
        await b.hello(llama=[2, 3])
        await on.knows("a", "b")
        for number in (0, 1):
            captured = pb.Captured(round=number, last=number == 1, capture=pack(ranks({0: "user", 1: "scatter"})))
            told = pb.LocalJob(job="llama", ranks=[0, 1], world_size=4)
            await a.say(
                spooled=pb.Spooled(
                    id=str(number),
                    stall="s",
                    job=told,
                    age_s=90.0,
                    stood_s=60.0,
                    captured=captured,
                    rounds=2,
                    interval_s=2.0,
                )
            )
            await a.next()
        async with asyncio.timeout(30):
            while not (kept := await on.store.latest("", 1)) or kept[0].state is not IncidentState.JUDGED:
                await asyncio.sleep(0.02)
        name = kept[0].id
        verdict = from_json(json.loads((await on.store.find(name)).verdict))
        same(verdict, await exported(on, name, tmp_path / "out"))
        assert "stalled_s = 60.0\n" in (tmp_path / "out" / "job.toml").read_text()


async def test_an_incident_that_has_no_captures_yet_is_no_bundle_to_believe(tmp_path: Path) -> None:
    async with stage(tmp_path / "s.db", diagnose) as on:
        await on.store.begin(Incident("0a", "llama", NOON), {})
        result = await command(on, "0a", "-o", str(tmp_path / "out"))
        assert result.exit_code == 64 and "hangdog watch 0a" in result.output and not (tmp_path / "out").exists()
