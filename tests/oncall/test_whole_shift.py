"""One shift against a real server: what every command that asks it tells of the same hang, as files that a person has read."""

import asyncio
import itertools
import re
from dataclasses import replace
from pathlib import Path

import pytest

from hangdog_models.actions.caps import Mode
from hangdog_models.diagnosis.judge import diagnose
from hangdog_server.actions.backends.actions_config import ActionsConfig
from hangdog_server.actions.backends.exclude_file import ExcludeFile
from support.cases.goldens import Desk
from support.cases.stories import trace
from support.servers.cast import NOON, PATIENT, Agent, cluster, stage
from support.servers.cast_acting import WIDE
from support.servers.tested import Answer, broken, machines, sound

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
    ("campaigns: test list", 0),
    ("campaign: test follow CAMPAIGN", 1),
    ("campaign-planned: test run --machines m0,m1 --dry-run", 0),
    ("bundle INCIDENT -o OUT", 0),
    ("report", 0),
    ("health", 0),
    ("dismiss OTHER --because seen-by-eye", 0),
    ("ack INCIDENT", 0),
    ("note INCIDENT the-fan-is-loud", 0),
    ("resolve OTHER software --because seen-by-eye", 0),
    ("show-of-resolved: show OTHER", 1),
    ("incidents-resolved: incidents", 0),
    ("report-resolved: report", 0),
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


def with_part(serial: str, answer: Answer) -> Answer:
    """A machine whose device is its own: of one that two machines report, whoever was last has it."""
    return lambda order: str(answer(order)).replace("GPU-of-nobody", serial)


async def shows(agent: Agent, stories: dict[int, str]) -> None:
    """Answers an order with two looks that are the same."""
    order, traces = (
        await agent.order(),
        [trace(rank, stack, state="" if stack == "disk" else "S") for rank, stack in stories.items()],
    )
    await agent.answer(order, *traces)
    await agent.answer(order, *traces, look=1, last=True)


async def hung(desk: Desk, agents: list[Agent], *, again: bool = False) -> tuple[str, str]:
    """The incident of a hang for rank 4 on machine c, once its verdict waits for somebody; and what its golden file does not hold.

    `again`: it hung like that before, which the verdict tells as soon as it is read from the store: it has no golden file.
    """
    line = "snapshot --job llama --topology TOPOLOGY --why 'no step for 10 minutes'"
    stacks = ({0: "scatter", 1: "scatter"}, {2: "scatter", 3: "scatter"}, {4: "disk", 5: "scatter"})
    looked = asyncio.gather(*map(shows, agents, stacks))
    if again:
        wrong, _ = "", await asyncio.gather(desk.typed(line, 1), looked)
    else:
        wrong, _ = await asyncio.gather(desk.differs(line, 1), looked)
    (latest,) = await desk.on.store.latest("llama", 1)
    await desk.until(latest.id, "waiting")
    return latest.id, wrong


@pytest.mark.usefixtures("eighty_columns_of_utc")
async def test_each_command_tells_the_hang_as_its_golden_file_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # on a busy machine the report would tell of sessions that are stored after some seconds
    monkeypatch.setattr("hangdog_server.incidents.session_writer.TICK_S", 3600.0)
    ticks = itertools.count()
    does = ActionsConfig(Mode.APPROVE, WIDE, (ExcludeFile(tmp_path / "excluded"),), tmp_path / "stop")
    settings = replace(PATIENT, rounds=2, returned_s=0.0)
    async with (
        stage(tmp_path / "s.db", diagnose, settings, clock=lambda: NOON + next(ticks) / 1e6, does=does) as on,
        machines(on, m0=with_part("GPU-0", sound), m1=with_part("GPU-1", broken(1))),
        cluster(on, a=[0, 1], b=[2, 3], c=[4, 5]) as agents,
    ):
        (tmp_path / "job.toml").write_text("[topology]\ndp = 6\n")
        desk = Desk(on, GOLDEN, SHOWN, ONE_LINE, {"TOPOLOGY": str(tmp_path / "job.toml"), "OUT": str(tmp_path / "out")})
        await desk.typed("test run --machines m0,m1 --level 1 --why slow-since-noon", 1)
        desk.made["CAMPAIGN"] = re.findall(r"^\w{12}", await desk.typed("test list"), re.MULTILINE)[-1]
        (incident, wrong_), (other, _) = [await hung(desk, agents, again=again) for again in (False, True)]
        desk.made |= {"INCIDENT": incident, "OTHER": other}
        wrong = [text for asked, status in SHIFT if (text := await desk.differs(asked, status))]
        for asked, state in THEN:
            wrong.append(await desk.differs(asked))
            await desk.until(incident, state)
        wrong += [await desk.differs("actions-of-all: actions"), wrong_]
        wrong.append(await desk.differs("reopen OTHER --because it-hangs-again"))
        assert not any(wrong), "\n".join(wrong)
