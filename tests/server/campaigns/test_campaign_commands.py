"""What people see of campaigns: `hangdog test run --machines`, its exit statuses, and what `hangdog machines NAME` remembers."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hangdog.main import main
from hangdog_models.snapshot import Snapshot
from hangdog_models.topology import Topology
from hangdog_models.verdict import Kind, Suspect, Verdict
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_server.listener import LOCAL
from support.servers.cast import PATIENT, Stage, cluster, stage, trainer, verdict
from support.servers.tested import Answer, broken, machines, sound


@pytest.fixture
async def on(tmp_path: Path) -> AsyncIterator[Stage]:
    async with stage(tmp_path / "s.db", settings=PATIENT) as on:
        yield on


async def run(on: Stage, *args: str) -> Result:
    return await asyncio.to_thread(CliRunner().invoke, main, [*args, "--server", on.address])


async def tested(on: Stage, *args: str) -> Result:
    return await run(on, "test", *args)


REFUSES: Answer = lambda order: pb.Diagnosed(launch=order.launch, refused="llama runs")


@pytest.mark.parametrize(
    ("second", "status", "lines"),
    [
        (broken(1), 1, ["convicted  m1, >99%", "  one device: gemm: ", "convicted (settled)"]),
        (sound, 0, ["m1       one device", "not convicted (settled)"]),
        (REFUSES, 2, ["one device: m1: refused: llama runs", "inconclusive ("]),
    ],
    ids=["convicts", "passes", "open"],
)
async def test_the_status_and_the_report_say_what_came_of_it(
    on: Stage, second: Answer, status: int, lines: list[str]
) -> None:
    async with machines(on, m0=sound, m1=second):
        ended = await tested(on, "run", "--machines", "m0,m1", "--level", "1", "--budget", "1h")
    assert ended.exit_code == status, ended.output
    assert "round 1: 2 x one device" in ended.stderr and "healthy" not in ended.stdout
    for line in lines:
        assert line in ended.stdout, ended.stdout


async def test_programs_get_one_object_and_the_machine_remembers(on: Stage) -> None:
    async with machines(on, m0=sound, m1=broken(1)):
        ended = await tested(on, "run", "--machines", "m0, m1", "--level", "1", "--format", "json")
        document = json.loads(ended.stdout)
        assert (ended.exit_code, document["schema"]) == (1, "hangdog.campaign/1")
        past = await run(on, "machines", "m1")
        assert "one device: gemm" in past.stdout and f"by campaign {document['campaign']}" in past.stdout
        assert "on probation until" in past.stdout
        told = json.loads((await run(on, "machines", "m1", "--format", "json")).stdout)
        assert (told["schema"], len(told["convictions"]), told["tests"][0]["outcome"]) == (
            "hangdog.past/1",
            1,
            "fail",
        )
        assert "convicted" in (await run(on, "ledger", "m1")).stdout
        listed = await tested(on, "list")
        assert document["campaign"] in listed.stdout and "done" in listed.stdout
        shown = await tested(on, "follow", document["campaign"][:5], "--format", "json")
        assert json.loads(shown.stdout) == document and shown.exit_code == 1
        assert (await tested(on, "abort", document["campaign"])).exit_code == 64
    assert " tested nobody" in (await run(on, "machines", "nobody")).stdout
    told = json.loads((await run(on, "machines", "nobody", "--format", "json")).stdout)
    assert (told["tests"], told["convictions"]) == ([], [])


async def test_an_incident_says_whom_to_suspect(tmp_path: Path) -> None:
    def suspects(snapshot: Snapshot, topology: Topology) -> Verdict:
        return replace(verdict(snapshot, topology, Kind.MACHINE), suspects=(Suspect((), ("m1",), 0.9, ()),))

    async with stage(tmp_path / "s.db", suspects, PATIENT) as on:
        async with cluster(on, m0=[0], m1=[1]) as agents:
            asking = asyncio.create_task(on.snapshot("llama"))
            for agent, rank in zip(agents, (0, 1), strict=True):
                await agent.answer(await agent.order(), trainer(rank))
            incident = (await asking)[-1].incident
        async with machines(on, m0=sound, m1=sound):
            shown = await tested(on, "run", "--incident", incident[:6], "--level", "1", "--dry-run", "--format", "json")
            plan = json.loads(shown.stdout)
            assert (shown.exit_code, plan["machines"], plan["schema"]) == (0, ["m0", "m1"], "hangdog.plan/1")
            assert plan["launches"][0]["machines"] == ["m1"], "whom it suspects comes first"
            ended = await tested(on, "run", "--incident", incident, "--level", "1", "--format", "json")
            assert json.loads(ended.stdout)["incident"] == incident


WRONG = {
    ("run",): ("no-machine-named", ""),
    ("run", "--machines", "m0", "--golden", __file__): ("wrong-arguments", "--golden"),
    ("run", "--machines", "m0", "--replay", "llama"): ("missing-option", "level 5"),
    ("run", "--machines", "m0", "--level", "1", "--level", "5"): ("conflicting-options", "level 5"),
    ("run", "--machines", "m0", "--level", "5", "--replay-time", "2h"): ("out-of-range", "7200 s"),
    ("run", "--machines", "m0", "--level", "5"): ("nothing-to-test", "m0: "),
    ("run", "--machines", "m0"): ("nothing-to-test", "m0: "),
    ("follow", "abc"): ("no-such-campaign", "'abc'"),
    ("local", "--dry-run"): ("wrong-arguments", "--dry-run"),
}


async def test_wrong_use_is_told(on: Stage) -> None:
    for args, (code, value) in WRONG.items():
        ended = await tested(on, *args)
        assert (ended.exit_code, ended.stdout) == (64, ""), ended.output
        what = ended.stderr.splitlines()[0]
        assert what.endswith(f" [{code}]") and value in what


async def test_what_was_done_is_recorded_with_who_did_it(tmp_path: Path) -> None:
    audit = tmp_path / "audit.jsonl"
    async with stage(tmp_path / "s.db", door=replace(LOCAL, audit=audit)) as on, machines(on, m0=broken(1)):
        await tested(on, "run", "--machines", "m0", "--level", "1", "--why", "it hung")
    deeds = [json.loads(line) for line in audit.read_text().splitlines()]
    assert [(deed["what"], deed["role"], deed["why"]) for deed in deeds] == [("diagnose", "act", "m0: it hung")] * 2
    assert deeds[0]["outcome"] == "asked" and deeds[1]["outcome"].startswith("convicted: m0, after ")
