"""While an incident runs the garbage collector passes over what lived before it, and afterwards over nothing."""

import asyncio
import gc
from pathlib import Path

from cast import Listener, cluster, stage, trainer, verdict
from hangdog_models.snapshot import Snapshot
from hangdog_models.topology import Topology
from hangdog_models.verdict import Verdict
from hangdog_server.sparing import spared


async def test_the_cluster_is_spared_until_there_is_a_verdict(tmp_path: Path) -> None:
    frozen: list[int] = []

    def judge(snapshot: Snapshot, topology: Topology) -> Verdict:
        frozen.append(gc.get_freeze_count())
        return verdict(snapshot, topology)

    async with stage(tmp_path / "s.db", Listener(judge)) as on, cluster(on, a=[0]) as (a,):
        asking = asyncio.create_task(on.snapshot())
        await a.answer(await a.order(), trainer(0), last=True)
        await asking
    assert frozen[0] > 0 and gc.get_freeze_count() == 0


def test_the_last_of_several_incidents_ends_it() -> None:
    with spared():
        with spared():
            assert gc.get_freeze_count() > 0
        assert gc.get_freeze_count() > 0
    assert gc.get_freeze_count() == 0
