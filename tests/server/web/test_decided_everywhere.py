"""What somebody decides about a machine stands on every page and in every command at once."""

import asyncio
import html
import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from hangdog.main import main
from hangdog_models.ranks import Rank
from hangdog_models.snapshot import Snapshot
from hangdog_models.topology import Topology
from hangdog_models.verdict import Suspect, Verdict
from hangdog_server.auth.tokens import Role
from support.cases.reasons import reasons
from support.servers import deciding
from support.servers.deciding import Deciding


def accused(snapshot: Snapshot, topology: Topology) -> Verdict:
    return replace(JUDGE(snapshot, topology), suspects=(Suspect((Rank(0),), ("a",), 0.97, reasons("rank 0 is stuck")),))


JUDGE = deciding.judge


async def stated(on: Deciding) -> list[str]:
    """What each surface says of machine a: the first page, the machines' page, their JSON, `hangdog machines`."""
    now = (await on.alice.get("/api/now")).json()["suspects"]
    listed = {one["name"]: one for one in (await on.alice.get("/api/machines")).json()["machines"]}
    address = ["--server", on.site.on.address, "--token-file", str(on.folder / "token")]
    (on.folder / "token").write_text(on.tokens[Role.ACT])
    (on.folder / "token").chmod(0o600)
    result = await asyncio.to_thread(CliRunner().invoke, main, ["machines", "--format", "json", *address])
    assert result.exit_code == 0, result.output
    typed = {one["machine"]: one["decided"] for one in json.loads(result.stdout)["machines"]}
    said = [now[0]["state"], listed["a"]["state"], typed["a"]]
    for path in ("/", "/machines"):
        assert f">{said[0]}<" in html.unescape((await on.alice.get(path)).text), path
    return said


async def test_a_decision_reaches_every_surface_and_open_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deciding, "judge", accused)
    async with deciding.deciding(tmp_path) as on:
        assert await stated(on) == ["waits for approval"] * 3
        pages = [(await on.alice.get(path)).text for path in ("/", "/machines", "/machines/a")]
        now = (await on.alice.get("/api/now")).json()
        assert now["jobs"][0]["status"] == "stuck" and ": a " in now["headline"]["text"]
        assert f">{now['headline']['text']}</h1>" in html.unescape(pages[0])
        paths = [page.partition('data-events="')[2].partition('"')[0] for page in pages]
        streams = [asyncio.create_task(changed(on, path)) for path in paths]
        await on.posted("dismiss", "seen by eye")
        await asyncio.gather(*streams)
        assert await stated(on) == ["dismissed by alice"] * 3
        (suspect,) = (await on.alice.get("/api/now")).json()["suspects"]
        assert suspect["over"] and suspect["since"] > 0
        assert 'class="flag">evict' not in (await on.alice.get("/")).text, "nobody needs to act upon it any more"


async def changed(on: Deciding, path: str) -> None:
    """Returns once an open page is told that what it shows has changed."""
    async with asyncio.timeout(60), on.alice.stream("GET", path) as stream:
        async for line in stream.aiter_lines():
            if line.startswith("data: "):
                return
