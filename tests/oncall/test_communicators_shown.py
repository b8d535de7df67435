"""What `hangdog communicators` tells of a job that hangs, as a file that a person has read, and as JSON."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from hangdog_models.progress.communicator_window import CommunicatorChanges, CommunicatorWindow
from hangdog_models.ranks import Rank
from hangdog_proto.codec import communicator_report
from support.cases.goldens import Desk
from support.servers.cast import Agent, Stage, cluster, stage

GOLDEN = Path(__file__).parent / "golden"
#: It has hung for so long that a second more makes no other golden file. Seconds.
HUNG_S = 3 * 3600.0
DATA = CommunicatorWindow(0x700885418FD77BCF, "dp", 4, (), 0.0, 371, 371, (), HUNG_S, HUNG_S, "AllReduce")
#: A pipeline's sends, which nobody can compare; and one that only half of its ranks keep a ring of.
PIPE = replace(DATA, communicator=0x2C5D07E41B90F3A6, name="pp", lowest=None, highest=None, operation="Recv", size=2)
SIDE = replace(DATA, communicator=0x51C3A0D2447B9E01, name="", rate=12.5, idle_s=0.0, age_s=0.1, size=2)


async def tell(agent: Agent, *windows: CommunicatorWindow, ranks: tuple[int, int]) -> None:
    here = tuple(map(Rank, ranks))
    own = [replace(one, ranks=here, behind=one.behind or here if one.lowest is not None else ()) for one in windows]
    changes = {"llama": CommunicatorChanges(tuple(own), left_out=1)}
    await agent.say(communicator_report=communicator_report.pack(changes, {}))


async def hung(on: Stage, a: Agent, b: Agent) -> Desk:
    """Rank 3 does not come: the server has all that its machines tell."""
    desk = Desk(on, GOLDEN, {}, ())
    await tell(a, DATA, PIPE, ranks=(0, 1))
    await tell(b, replace(DATA, lowest=370, behind=(Rank(3),), age_s=None), SIDE, ranks=(2, 3))
    async with asyncio.timeout(60):
        while json.loads(await desk.typed("communicators llama --format json"))["left_out"] < 2:
            await asyncio.sleep(0.1)
    return desk


@pytest.mark.usefixtures("eighty_columns_of_utc")
async def test_it_tells_who_is_behind_as_its_golden_file_does(tmp_path: Path) -> None:
    async with stage(tmp_path / "s.db") as on, cluster(on, a=[0, 1], b=[2, 3]) as (a, b):
        desk = await hung(on, a, b)
        wrong = await desk.differs("communicators llama")
        assert not wrong, wrong


async def test_it_tells_a_program_all_of_it(tmp_path: Path) -> None:
    async with stage(tmp_path / "s.db") as on, cluster(on, a=[0, 1], b=[2, 3]) as (a, b):
        desk = await hung(on, a, b)
        document = json.loads(await desk.typed("communicators llama --format json"))
        data, pipe, side = document["communicators"]
        assert (data["communicator"], data["state"], data["behind"]) == (
            "700885418fd77bcf", "waits", [{"machine": "b", "ranks": "3"}],
        )  # fmt: skip
        assert (data["lowest"], data["highest"], data["oldest"]) == (370, 371, "a") and data["age_s"] >= HUNG_S
        assert (pipe["operation"], pipe["lowest"], pipe["behind"]) == ("Recv", None, [])
        assert (side["state"], side["rate"], side["lowest"]) == ("moves", 12.5, None)
        first = json.loads(await desk.typed("communicators llama --limit 1 --format json"))
        assert (len(first["communicators"]), first["found"]) == (1, 3)
