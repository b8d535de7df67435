"""What takes the place of a machine that is out, and what does not."""

from collections.abc import Mapping
from pathlib import Path

import sqlalchemy as sa
from msgspec import structs

from hangdog_server.actions.backends.backend import BackendFailed
from hangdog_server.store import actions
from hangdog_server.store.actions import ActionState
from hangdog_server.store.tables import CONVICTIONS, TESTS
from support.servers.cast_acting import WIDE, Moving, Played, World, world
from support.worded import names


async def test_a_job_that_does_not_start_again_is_given_up_and_its_machine_stays_out(
    here: Path, tmp_path: Path
) -> None:
    played = Moving(runs={"a": "7:0", "b": "8:0"}, moving=99)
    async with world(here, tmp_path, played) as on:
        await on.judged("0a", "a")
        await on.until("0a", ActionState.MARKED)
        played.fails = BackendFailed("away", again=True)
        await on.acting.tick()
        assert await on.states("0a") == {"a": "marked"} and "away" in await on.words("0a")
        on.now, played.fails = on.now + 9999, None
        await on.acting.tick()
        assert await on.states("0a") == {"a": "failed"} and names(await on.words("0a"), "not start again")
        (row,) = await on.store.ask(actions.of, "0a")
        assert row.marked and played.marks == {"a": "0a"}


async def test_a_machine_that_is_out_is_no_spare(here: Path, tmp_path: Path) -> None:
    async with world(here, tmp_path, Played()) as on:
        for number, machine in enumerate("xy"):
            await on.judged(f"0{number}", machine)
            await on.until(f"0{number}", ActionState.DONE)
        await on.judged("0a", "a", "b")
        await on.acting.tick()
        assert names(await on.words("0a"), "1 spare machine", "2 needed")
        await on.judged("0b", "b")
        await on.until("0b", ActionState.DONE)


async def test_who_was_convicted_is_no_spare_nor_where_it_is_asked_who_was_not_tested(
    here: Path, tmp_path: Path
) -> None:
    async with world(here, tmp_path, Played()) as on:
        await campaign(on, {"y": "pass", "z": "pass"}, convicted="x")
        await on.judged("0a", "a", "b", "c")
        await on.acting.tick()
        assert names(await on.words("0a"), "2 spare machines", "3 needed")
    async with world(tmp_path / "other.db", tmp_path, Played(), caps=structs.replace(WIDE, tested_s=60.0)) as on:
        await campaign(on, {"y": "pass", "z": "fail"})
        await on.judged("0a", "a", "b")
        await on.acting.tick()
        assert names(await on.words("0a"), "1 spare machine", "tested_s", "2 needed")
        await on.judged("0b", "b")
        await on.until("0b", ActionState.DONE)


async def campaign(on: World, outcomes: Mapping[str, str], convicted: str = "") -> None:
    """What machines were tested for half a minute ago."""

    def write(connection: sa.Connection) -> None:
        about = {"campaign": "c0", "at": on.now - 30.0}
        said = {"level": 1, "test": "gemm", "repetitions": 21, "says": "", "others": []}
        for machine, outcome in outcomes.items():
            connection.execute(TESTS.insert().values(**about, **said, machine=machine, outcome=outcome))
        if convicted:
            connection.execute(CONVICTIONS.insert().values(**about, machine=convicted, part=""))

    await on.store.do(write)
