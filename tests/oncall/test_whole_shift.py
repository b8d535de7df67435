"""One shift against a real server: what every command that asks it tells of the same hang, as files that a person has read."""

import asyncio
import itertools
import os
import re
import shlex
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.cells import cell_len

from cast import NOON, PATIENT, Agent, Stage, cluster, stage
from cast_acting import WIDE
from hangdog.main import main
from hangdog_models.acting.caps import Mode
from hangdog_models.diagnosis.judge import diagnose
from hangdog_server.actors.chosen import Chosen
from hangdog_server.actors.exclusion import Exclusion
from stories import trace
from tested import Answer, broken, machines, sound

GOLDEN = Path(__file__).parent / "golden"
#: What is typed while the verdict waits for somebody, and the exit status; each is a golden file of its first word, or `NAME:`.
SHIFT = (
    ("jobs", 0),
    ("incidents", 0),
    ("show INCIDENT", 1),
    ("watch INCIDENT", 1),
    ("machines", 0),
    ("machine: machines m1", 0),
    ("ledger", 0),
    ("ledger-of-one: ledger c", 0),
    ("actions INCIDENT", 0),
    ("campaigns: diagnose --list", 0),
    ("campaign: diagnose --follow CAMPAIGN", 1),
    ("campaign-planned: diagnose --machines m0,m1 --dry-run", 0),
    ("bundle INCIDENT -o OUT", 0),
    ("report", 0),
    ("health", 0),
    ("dismiss OTHER --because seen-by-eye", 0),
)
#: What is typed then, and what `hangdog actions` is to say before anything else is typed: the server carries it out meanwhile.
THEN = (("approve INCIDENT --because the-fan-is-dead", "done"), ("release c --because mended", "released"))
#: Names as wide as those made at random, which golden files show.
SHOWN = {
    "INCIDENT": "3fa9c2d4e5f6",
    "OTHER": "7b20e8d1a94c",
    "CAMPAIGN": "c0ffee123456",
    "OUT": "hang-of-noon",
    "TOPOLOGY": "job.toml",
}
#: What these tell is a line of its own, however long: a path to copy, news to search for.
ONE_LINE = ("bundle", "watch")


@pytest.fixture(autouse=True)
def eighty_columns_of_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A pipe as wide as a terminal opens; times of day are those here, wherever the tests run."""
    monkeypatch.setattr("hangdog.terminal.PIPE_WIDTH", 80)
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def with_part(serial: str, answer: Answer) -> Answer:
    """A machine whose device is its own: of one that two machines report, whoever was last has it."""
    return lambda order: str(answer(order)).replace("GPU-of-nobody", serial)


async def shows(agent: Agent, stories: dict[int, str]) -> None:
    """Answers an order with two looks that are the same."""
    order, traces = await agent.order(), [trace(rank, stack, state="S") for rank, stack in stories.items()]
    await agent.answer(order, *traces)
    await agent.answer(order, *traces, look=1, last=True)


async def hung(on: Stage, agents: list[Agent], topology: Path) -> tuple[str, str]:
    """The incident of a hang for rank 4 on machine c, once its verdict waits for somebody; and what its golden file does not hold."""
    line = "snapshot --job llama --topology TOPOLOGY --why 'no step for 10 minutes'"
    stacks = ({0: "scatter", 1: "scatter"}, {2: "scatter", 3: "scatter"}, {4: "user", 5: "scatter"})
    looked = asyncio.gather(*map(shows, agents, stacks))
    wrong, _ = await asyncio.gather(differs(on, line, 1, {"TOPOLOGY": str(topology)}), looked)
    (latest,) = await on.store.latest("llama", 1)
    await until(on, latest.id, "waiting")
    return latest.id, wrong


async def until(on: Stage, incident: str, state: str) -> None:
    """Returns once something of the incident is in that state."""
    async with asyncio.timeout(60):
        while f" {state} " not in await typed(on, f"actions {incident}"):
            await asyncio.sleep(0.02)


async def typed(on: Stage, line: str, status: int = 0) -> str:
    """What a command line prints."""
    result = await asyncio.to_thread(CliRunner().invoke, main, [*shlex.split(line), "--server", on.address])
    assert result.exit_code == status, f"{line}: {result.output}"
    return result.stdout


def real(asked: str, names: dict[str, str]) -> str:
    """A command line with the names that were made at random."""
    return " ".join(names.get(word, word) for word in asked.split(" "))


async def differs(on: Stage, asked: str, status: int, names: dict[str, str]) -> str:
    """What a command line prints where its golden file holds something else; empty where it does not."""
    name, line = asked.split(": ") if ": " in asked else (asked.partition(" ")[0], asked)
    shown = await typed(on, real(line, names), status)
    for word, made in names.items():
        shown = shown.replace(made, SHOWN.get(word, word))
    shown = re.sub(r"\b\d+ (?:s|min) ago *", lambda found: "0 s ago".ljust(len(found[0])), shown)
    for one in shown.splitlines():
        assert one.isprintable() and (cell_len(one) <= 80 or name in ONE_LINE), shown
    typed_ = " ".join(SHOWN.get(word, word) for word in line.split(" "))
    text = f"$ hangdog {typed_}\n" + "".join(f"{one.rstrip()}\n" for one in shown.splitlines())
    golden = GOLDEN / f"{name}.txt"
    if os.environ.get("HANGDOG_REGENERATE"):
        golden.write_text(text, encoding="utf-8")
    return text if text != golden.read_text(encoding="utf-8") else ""


async def test_each_command_tells_the_hang_as_its_golden_file_does(tmp_path: Path) -> None:
    """HANGDOG_REGENERATE=1 writes the files anew; then read the diff."""
    ticks = itertools.count()
    does = Chosen(Mode.APPROVE, WIDE, (Exclusion(tmp_path / "excluded"),), tmp_path / "stop")
    settings = replace(PATIENT, rounds=2, returned_s=0.0)
    async with (
        stage(tmp_path / "s.db", diagnose, settings, clock=lambda: NOON + next(ticks) / 1e6, does=does) as on,
        machines(on, m0=with_part("GPU-0", sound), m1=with_part("GPU-1", broken(1))),
        cluster(on, a=[0, 1], b=[2, 3], c=[4, 5]) as agents,
    ):
        await typed(on, "diagnose --machines m0,m1 --level 1 --why slow-since-noon", 1)
        campaign = re.findall(r"^\w{12}", await typed(on, "diagnose --list"), re.MULTILINE)[-1]
        (tmp_path / "job.toml").write_text("[topology]\ndp = 6\n")
        (incident, wrong_), (other, _) = [await hung(on, agents, tmp_path / "job.toml") for _ in range(2)]
        names = {"INCIDENT": incident, "OTHER": other, "CAMPAIGN": campaign, "OUT": str(tmp_path / "out")}
        wrong = [text for asked, status in SHIFT if (text := await differs(on, asked, status, names))]
        for asked, state in THEN:
            wrong.append(await differs(on, asked, 0, names))
            await until(on, incident, state)
        wrong += [await differs(on, "actions-of-all: actions", 0, names), wrong_]
        assert not any(wrong), "\n".join(wrong)
