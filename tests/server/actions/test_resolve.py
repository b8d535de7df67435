"""What people say that an incident turned out to be, over the true wire: kept, shown, recorded; nothing is done to a machine."""

import asyncio
import itertools
import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hangdog.main import main
from hangdog_models.errors import WrongUse
from hangdog_models.snapshot import Snapshot
from hangdog_models.topology import Topology
from hangdog_models.verdict import Eviction, Kind, Verdict
from hangdog_proto.client.incidents import Client
from hangdog_server.incidents.decode import WHY
from hangdog_server.listener import LOCAL
from hangdog_server.store import actions
from support.servers.cast import NOON, PATIENT, Stage, stage, trainer, verdict


def judge(snapshot: Snapshot, topology: Topology) -> Verdict:
    return replace(verdict(snapshot, topology, Kind.MACHINE), evict=Eviction(("a",), 0.97))


async def ask(on: Stage, *words: str, status: int = 0) -> Result:
    result = await asyncio.to_thread(CliRunner().invoke, main, [*words, "--server", on.address])
    assert result.exit_code == status, result.output
    return result


async def test_what_people_say_is_shown_recorded_and_taken_back(tmp_path: Path) -> None:
    door, ticks = replace(LOCAL, audit=tmp_path / "audit.jsonl"), itertools.count()
    settings = replace(PATIENT, returned_s=0.0)
    async with (
        stage(tmp_path / "s.db", judge, settings, door, clock=lambda: NOON + next(ticks) / 1e6) as on,
        on.agent("a") as a,
    ):
        await a.hello(llama=[0])
        await on.knows("a")
        asking = asyncio.create_task(on.snapshot("llama"))
        order = await a.order()
        early = await ask(on, "resolve", order.order, "software", status=64)
        assert "is under way" in early.stderr
        await a.answer(order, trainer(0), last=True)
        name = (await asking)[-1].incident
        async with asyncio.timeout(60):
            while not (
                before := await on.store.ask(actions.of, name)
            ):  # what the verdict asks for is written soon after it
                await asyncio.sleep(0.02)

        answer = await ask(
            on, "resolve", name[:6], "machine", "--machine", "a", "--machine", "a", "--because", "a dead fan"
        )
        assert f"incident {name}: resolved by " in answer.stdout and answer.stdout.endswith(
            ": machine (a), a dead fan\n"
        )
        (line,) = json.loads((await ask(on, "incidents", "--format", "json")).stdout)["incidents"]
        settled = line["settled"]
        assert (settled["cause"], settled["machines"], settled["reason"]) == ("machine", ["a"], "a dead fan")
        assert settled["who"] == "the server's user" and settled["at"].endswith("+00:00")
        assert "machine (a), a dead fan" in (await ask(on, "show", name, status=1)).stdout
        assert "machine(a)" in "".join((await ask(on, "incidents")).stdout.split())

        kept = json.loads((await ask(on, "resolve", name, "software", "--format", "json")).stdout)
        assert (kept["schema"], kept["settled"]["cause"], kept["settled"]["machines"]) == (
            "hangdog.incident/1",
            "software",
            [],
        )
        report = json.loads((await ask(on, "report", "--format", "json")).stdout)
        assert (report["figures"]["right_cause"]["value"], report["figures"]["right_cause"]["count"]) == (0.0, 1)
        assert "resolved by" in (await ask(on, "resolve", name, "unknown")).stdout
        assert "right_cause" not in json.loads((await ask(on, "report", "--format", "json")).stdout)["figures"]

        strange = await ask(on, "resolve", name, "machine", "--machine", "b", status=64)
        assert "'b' [unknown-machine]\n" in strange.stderr
        assert (await on.store.find(name)).settled is None
        (act,) = await on.store.ask(actions.of, name)
        assert (before[0].state, act.state, act.who) == ("refused", "dismissed", "the server's user"), "it was the code"

        assert "ada" not in (await ask(on, "ack", name, status=64)).stdout
        for words, state, owner in (
            (["reopen", name, "--because", "it hangs"], "open", None),
            (["ack", name], "open", "the server's user"),
            (["ack", name, "--give-back"], "open", None),
        ):
            now = json.loads((await ask(on, *words, "--format", "json")).stdout)["response"]
            assert (now["state"], now["acknowledged_by"]) == (state, owner), words
        await ask(on, "note", name, "the fan is loud")
        shown = (await ask(on, "show", name, status=1)).stdout
        assert "user notes: the fan is loud" in " ".join(shown.split())
        noted = json.loads((await ask(on, "note", name, "still", "--format", "json")).stdout)["response"]
        assert (noted["state"], noted["acknowledged_by"], noted["entries"]) == ("open", None, 8)
        assert "--take-over" in (await ask(on, "ack", name, "--give-back", "--take-over", status=64)).stderr
    recorded = [json.loads(text) for text in (tmp_path / "audit.jsonl").read_text().splitlines()]
    told = [(one["what"], one["why"], one["outcome"]) for one in recorded if one["what"].startswith("resolve")]
    assert [one for one in told if one[2] == "resolved"] == [
        ("resolve machine a", "a dead fan", "resolved"), ("resolve software", "", "resolved"), ("resolve unknown", "", "resolved"),
    ]  # fmt: skip
    assert [outcome for what, _, outcome in told if what == "resolve machine b"][-1].startswith("refused: ")
    assert {one["incident"] for one in recorded if one["what"].startswith("resolve")} == {name}


@pytest.mark.parametrize(
    ("cause", "machines", "reason", "code", "value"),
    [
        ("software", ["a"], "", "conflicting-options", "software"),
        ("dependency", ["a"], "", "conflicting-options", "dependency"),
        ("healthy", ["a"], "", "conflicting-options", "healthy"),
        ("unknown", ["a"], "", "conflicting-options", "unknown"),
        ("none", [], "", "unknown-choice", "'none'"),
        ("x" * 10_000, [], "", "unknown-choice", "'x{40}'"),
        ("machine", ["a"] * 65, "", "too-many", "65"),
        ("machine", [""], "", "bad-name", "machine"),
        ("machine", ["a\x1b[2J"], "", "bad-name", "machine"),
        ("machine", ["m" * 300], "", "bad-name", "machine"),
        ("software", [], "y" * (WHY + 1), "too-long", f"{WHY + 1}"),
        ("software", [], "", "no-such-incident", "'ff'"),
    ],
)
async def test_what_cannot_be_said_is_refused_with_its_reason(
    tmp_path: Path, cause: str, machines: list[str], reason: str, code: str, value: str
) -> None:
    def resolve(address: str) -> None:
        with Client(address) as client:
            client.respond("ff", "resolve", reason, cause, machines)

    async with stage(tmp_path / "s.db") as on:
        with pytest.raises(WrongUse, match=value) as caught:
            await asyncio.to_thread(resolve, on.address)
        assert caught.value.code == code
