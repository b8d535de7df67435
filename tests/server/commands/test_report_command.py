"""`hangdog report` over the true wire: a standstill that agents saw, a machine that a person had taken, and what is told of it."""

import asyncio
import html
import json
import re
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hangdog.main import main
from hangdog_models.actions.caps import Mode
from hangdog_models.ranks import Rank
from hangdog_models.snapshot import Snapshot
from hangdog_models.stall_timeouts import Doing, Sign
from hangdog_models.topology import Topology
from hangdog_models.verdict import Eviction, Kind, Suspect, Verdict
from hangdog_proto.codec import stall_signs
from hangdog_server.actions.backends.actions_config import ActionsConfig
from hangdog_server.actions.backends.exclude_file import ExcludeFile
from support.servers.cast import NOON, PATIENT, Stage, stage, trainer, verdict
from support.servers.cast_acting import WIDE

#: A machine's name that a browser would run and rich would take for its own; agents may not have one that a terminal obeys.
HOSTILE = "a<script>alert(1)</script>[bold]"
#: One that a verdict upon a bundle's words might bring nevertheless.
WORSE = "b\x1b[31m\u202e"


def judge(snapshot: Snapshot, topology: Topology) -> Verdict:
    suspects = (Suspect((), (HOSTILE,), 0.97, ()), Suspect((), (WORSE,), 0.02, ()))
    return replace(verdict(snapshot, topology, Kind.MACHINE), suspects=suspects, evict=Eviction((HOSTILE,), 0.97))


async def ask(on: Stage, *words: str) -> Result:
    return await asyncio.to_thread(CliRunner().invoke, main, [*words, "--server", on.address])


async def until(on: Stage, state: str) -> str:
    async with asyncio.timeout(60):
        while True:
            told = json.loads((await ask(on, "actions", "--format", "json")).stdout)["actions"]
            if [one["state"] for one in told] == [state]:
                return str(told[0]["incident"])
            await asyncio.sleep(0.02)


@pytest.fixture
def does(tmp_path: Path) -> ActionsConfig:
    return ActionsConfig(Mode.APPROVE, WIDE, (ExcludeFile(tmp_path / "excluded"),), tmp_path / "stop")


async def test_from_a_standstill_to_the_report(tmp_path: Path, does: ActionsConfig) -> None:
    stuck = {"llama": {Rank(0): Sign(Doing.STILL, 6.0, overdue=True, place="all_reduce")}}
    page, ticks = tmp_path / "report.html", count()
    patient = replace(PATIENT, returned_s=0.0)
    async with stage(tmp_path / "s.db", judge, patient, clock=lambda: NOON + next(ticks) / 1e3, does=does) as on:
        empty = await ask(on, "report")
        assert empty.exit_code == 0 and "Unknown: " in empty.stdout
        unnamed = json.loads((await ask(on, "report", "--format", "json")).stdout)["machines"]["listed"]
        assert unnamed == [] and "no machine was" in empty.stdout
        async with on.agent(HOSTILE) as a, on.agent("x") as x:
            await a.hello(llama=[0])
            await x.hello()
            await on.knows(HOSTILE)
            await a.say(stall_report=stall_signs.pack(stuck))
            async with asyncio.timeout(60):
                while not (message := await a.next()).HasField("capture"):
                    pass
            await a.answer(message.capture, trainer(0), last=True)
            incident = await until(on, "waiting")
            assert (await ask(on, "approve", incident)).exit_code == 0
            await until(on, "done")
            told = await ask(on, "report", "--since", "1d", "--html", str(page))
            document = json.loads((await ask(on, "report", "--format", "json")).stdout)
            refused = await ask(on, "report", "--since", "soon")
    assert refused.exit_code == 64 and "no duration" in refused.stderr
    assert document["schema"] == "hangdog.report/1"
    assert 6.0 <= document["figures"]["mttd"]["value"] < 60.0 and document["figures"]["mttd"]["count"] == 1
    assert document["figures"]["isolated"]["value"] is not None
    assert document["tallies"]["incidents"]["counts"] == {"machine": 1}
    assert document["tallies"]["evictions"]["counts"]["taken"] == 1
    assert document["tallies"]["rightness"]["counts"]["taken, unknown"] == 1
    assert [one["machine"] for one in document["machines"]["listed"]] == [HOSTILE, WORSE]
    assert told.exit_code == 0, told.output
    assert re.search(r"^.* \(ETTR\) +unknown +0 jobs", empty.stdout, re.MULTILINE), empty.stdout
    assert (
        "\x1b" not in told.stdout
        and "\u202e" not in told.stdout
        and "b\\x1b[31m\\u202e" in told.stdout
        and "</script>[bold]" in told.stdout
    )
    assert all(len(line) <= 80 for line in told.stdout.splitlines())
    drawn = page.read_text(encoding="utf-8")
    assert "<script" not in drawn and "&lt;script&gt;" in drawn and "\u202e" not in drawn and "\x1b" not in drawn
    assert "default-src 'none'; style-src 'sha256-" in html.unescape(drawn)
    assert "<svg" in drawn and " style=" not in drawn
    assert "http" not in re.sub(r"http-equiv", "", drawn), "a page that needs nothing from outside"
