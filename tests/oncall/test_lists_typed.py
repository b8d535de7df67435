"""Lists on the command line: the same words as in the addresses of pages, and what is cut is said there, too."""

import asyncio
import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner, Result

from hangdog.main import main
from hangdog_models.incident import Incident, IncidentState
from hangdog_proto.client.incidents import Client
from hangdog_proto.generated import hangdog_pb2 as pb
from support.servers.cast import NOON, Stage, cluster, stage


async def run(on: Stage, *arguments: str, status: int = 0) -> Result:
    result = await asyncio.to_thread(CliRunner().invoke, main, [*arguments, "--server", on.address])
    assert result.exit_code == status, result.output
    return result


async def told(on: Stage, *arguments: str) -> Any:
    return json.loads((await run(on, *arguments, "--format", "json")).stdout)


async def remembered(on: Stage, count: int) -> None:
    for number in range(count):
        await on.store.begin(Incident(f"{number:04x}", f"job-{number % 2}", NOON - number), {})
        await on.store.move(f"{number:04x}", IncidentState.FAILED, NOON)


async def test_incidents_are_searched_and_paged_and_the_rest_is_said(tmp_path: Path) -> None:
    async with stage(tmp_path / "s.db") as on:
        await remembered(on, 7)
        found = await told(on, "incidents", "--limit", "3", "--page", "2")
        assert [one["id"] for one in found["incidents"]] == ["0003", "0004", "0005"]
        assert (found["list"]["found"], found["list"]["pages"], found["list"]["counts"]["failed"]) == (7, 3, 7)
        assert (
            "4 to 6 of 7 incidents; --page 3 shows more"
            in (await run(on, "incidents", "--limit", "3", "--page", "2")).stdout
        )
        beside = await run(on, "incidents", "--limit", "3", "--format", "json")
        assert "1 to 3 of 7 incidents; --page 2 shows more" in beside.stderr, "nothing is cut from JSON silently"
        assert "7 incidents" not in (await run(on, "incidents")).stdout, "what is whole needs no word"
        narrowed = await run(on, "incidents", "--search", "000", "--job", "job-1")
        assert "3 incidents of 7 known" in narrowed.stdout
        assert "none of 7 incidents" in (await run(on, "incidents", "--state", "open")).stdout
        last = await told(on, "incidents", "--sort", "began", "--limit", "1")
        assert last["incidents"][0]["id"] == "0006"


async def test_machines_and_jobs_are_asked_for_by_state(tmp_path: Path) -> None:
    async with stage(tmp_path / "s.db") as on:
        async with cluster(on, a=[0, 1], b=[2, 3]):
            pass
        async with cluster(on, a=[0, 1], c=[4, 5]):
            lost = await told(on, "machines", "--state", "lost", "--job", "llama")
            assert [one["machine"] for one in lost["machines"]] == ["b"] and lost["machines"][0]["states"] == ["lost"]
            names = [
                one["machine"] for one in (await told(on, "machines", "--sort", "-name", "--limit", "2"))["machines"]
            ]
            assert names == ["c", "b"]
            jobs = await told(on, "jobs", "--search", "LLA", "--sort", "machines")
            assert [one["job"] for one in jobs["jobs"]] == ["llama"] and jobs["list"]["known"] == 1
            assert "none of 1 jobs" in (await run(on, "jobs", "--state", "ended")).stdout
            assert "none of 3 machines" in (await run(on, "machines", "--search", "zz")).stdout
        everything = await asyncio.to_thread(_all_machines, on.address)
        assert set(everything) == {"a", "b", "c"}, "who asks for no page gets all of them, as ever"


def _all_machines(address: str) -> list[str]:
    with Client(address) as client:
        return [one.name for one in client.machines()]


async def test_a_state_that_no_list_knows_is_refused_with_those_it_does(tmp_path: Path) -> None:
    async with stage(tmp_path / "s.db") as on:
        assert "broken" in (await run(on, "machines", "--state", "broken", status=64)).output
        refused = await run(on, "actions", "ff", "--search", "x", status=64)
        assert "[conflicting-options]" in refused.stderr


async def test_a_server_that_knows_no_lists_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An older server ignores what it is asked, and sends what it always did: that must not pass for an answer."""
    monkeypatch.setattr(pb.MachinesRequest, "HasField", lambda *_: False)
    async with stage(tmp_path / "s.db") as on, cluster(on, a=[0]):
        assert [one["machine"] for one in (await told(on, "machines"))["machines"]] == ["a"]
        assert "is an older version" in (await run(on, "machines", "--state", "lost", status=64)).output


@pytest.mark.parametrize(
    ("typed", "offered"),
    [(["machines", "--state"], "suspected"), (["incidents", "--state"], "went-on"), (["jobs", "--sort"], "ranks")],
)
def test_a_shell_completes_states_and_orders(typed: list[str], offered: str) -> None:
    complete = ShellComplete(main, {}, "hangdog", "_HANGDOG_COMPLETE")
    assert offered in [one.value for one in complete.get_completions(typed, "")]


def test_every_option_of_a_list_is_there() -> None:
    with click.Context(main) as context:
        for name in ("incidents", "jobs", "machines", "actions"):
            command = main.get_command(context, name)
            assert command is not None
            options = {option for one in command.params for option in one.opts}
            assert {"--search", "--state", "--sort", "--limit", "--page"} <= options, name
