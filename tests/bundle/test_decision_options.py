"""What decides about steps is set alike for one bundle and for a whole server, and a wrong price is refused by its name."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hangdog.main import main
from hangdog_models.diagnosis.options import Options
from hangdog_models.diagnosis.prices import IsolationPolicy, priced
from support.cases.evidence import stacks, state
from support.cases.stories import job, look, twice

SET = ["--coverage", "0.9", "--budget", "3", "--policy", "rapid", "--price", "test=25", "--price", "innocent=1e6"]


@pytest.fixture
def stopped(fill: Callable[[dict[str, bytes]], Path]) -> Path:
    files = {f"rank{rank}.json": stacks(rank + 1, "all_reduce") for rank in range(3)}
    return fill({**files, "rank3.proc.json": state(4, "T"), "job.toml": b"[topology]\ndp = 4\ngpus_per_node = 1\n"})


def triage(*typed: str | Path) -> str:
    return CliRunner().invoke(main, ["triage", *map(str, typed)]).output


def test_a_price_changes_what_is_done_first_and_never_what_it_is(stopped: Path) -> None:
    prices = ("--price", "innocent=1e6", "--price", "test=0")
    usual, dear = (json.loads(triage(stopped, "--format", "json", *given)) for given in ((), prices))
    assert (usual["evict"]["machines"], dear["evict"]["machines"]) == (["node-3"], [])
    assert [(one["next"][0]["do"], one["next"][0]["machines"]) for one in (usual, dear)] == [
        ("evict", ["node-3"]),
        ("test", ["node-3"]),
    ]
    assert usual["verdict"] == dear["verdict"] == "machine"
    assert usual["suspects"] == dear["suspects"] and usual["suspects"][0]["probability"] > 0.98


def test_the_explanation_tells_what_was_compared(stopped: Path) -> None:
    shown = triage(stopped, "--explain").partition("expected cost of each step")[2]
    assert shown.index("evict node-3: ") < shown.index("test node-3: ") < shown.index("restart: ")


@pytest.mark.parametrize(
    ("price", "code"),
    [
        ("tset=1", "unknown-setting"),
        ("test", "not-a-number"),
        ("test=-1", "wrong-setting"),
        ("test=nan", "wrong-setting"),
    ],
)
def test_a_wrong_price_is_refused(stopped: Path, price: str, code: str) -> None:
    done = CliRunner().invoke(main, ["triage", str(stopped), "--price", price])
    assert done.exit_code == 64 and f"[{code}]" in done.stderr and price.partition("=")[0] in done.stderr


def test_a_server_judges_by_the_same_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    judges: list[Any] = []

    async def serve(listen: str, where: object, judge: Any, *_: object) -> None:
        judges.append(judge)

    monkeypatch.setattr("hangdog_server.main.serve", serve)
    done = CliRunner().invoke(main, ["server", "--store", str(tmp_path / "incidents.db"), *SET])
    assert done.exit_code == 0, done.output
    wanted = Options(0.9, 3, policy=IsolationPolicy.RAPID, prices=priced({"test": 25.0, "innocent": 1e6}))
    assert judges[0].keywords == {"options": wanted}
    story, shape = twice(look({"0-4,6-7": "metrics", "5": "disk"})), job(tp=2, dp=2, pp=2)
    assert judges[0](story, shape).compared != judges[0].func(story, shape).compared
