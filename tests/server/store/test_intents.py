"""What follows from verdicts: written before it is done, done once, read back, undone, and never by itself."""

import asyncio
import json
from pathlib import Path

import pytest
from msgspec import structs

from hangdog_models.actions.caps import Mode
from hangdog_models.errors import WrongUse
from hangdog_server.actions import policy
from hangdog_server.actions.backends.backend import BackendFailed
from hangdog_server.actions.backends.no_action import Nothing
from hangdog_server.actions.reconcile import ActionLoop
from hangdog_server.store import actions
from hangdog_server.store.actions import ActionState
from support.refused import refused
from support.servers.cast import NOON, PATIENT
from support.servers.cast_acting import WIDE, Moving, Played, world
from support.worded import names


async def test_by_itself_nothing_is_touched_and_what_would_be_done_is_told(where: Path | str, tmp_path: Path) -> None:
    played = Played()
    async with world(where, tmp_path, played, mode=Mode.DRY_RUN) as on:
        await on.judged("0a", "a")
        await on.acting.tick()
        assert await on.states("0a") == {"a": "dry-run"} and played.told == []
        with pytest.raises(WrongUse, match="dry-run") as caught:
            await on.store.do(policy.approve, "0a", await on.acting.facts("0a"), on.acting.rule(), "alice")
        assert caught.value.code == "acting-disabled"
        await on.judged("0b", "b", "c", ago=9999)
        await on.acting.tick()
        assert await on.states("0b") == {"b": "refused", "c": "refused"} and "9999 s old" in await on.words("0b")
        on.mode = Mode.OBSERVE
        on.begin()
        await on.judged("0c", "c")
        await on.acting.tick()
        assert await on.states("0c") == {}


async def test_a_verdict_is_carried_out_once_and_undone(where: Path | str, tmp_path: Path) -> None:
    played = Moving(runs={"a": "7:0"}, moving=2)
    async with world(where, tmp_path, played) as on:
        await on.judged("0a", "a", "b")
        await on.acting.tick()
        assert await on.states("0a") == {"a": "marked", "b": "marked"}
        await on.until("0a", ActionState.DONE)
        for _ in range(3):
            await on.acting.tick()
        moves = ["move 7:0 without a,b"] * 3
        assert played.told == ["mark a", "mark b", *moves], "marked both before the job could come back to one"
        rows = await on.store.do(policy.release, "a", "mended", "alice", NOON)
        assert [row.machine for row in rows] == ["a"]
        await on.until("0a", ActionState.RELEASED, ActionState.DONE)
        assert played.marks == {"b": "0a"} and await on.states("0a") == {"a": "released", "b": "done"}
        with refused("machine-not-isolated"):
            await on.store.do(policy.release, "a", "", "alice", NOON)
        recorded = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    told = [(one["what"], *one["outcome"].partition(": ")) for one in recorded if one["what"].endswith(" a")]
    assert [(what, state) for what, state, *_ in told] == [
        ("isolate a", ActionState.PENDING), ("isolate a", ActionState.MARKED), ("isolate a", ActionState.DONE),
        ("release a", ActionState.RELEASED),
    ]  # fmt: skip
    assert (
        names(told[1][-1], "out of use") and names(told[2][-1], "out of use", "elsewhere") and told[3][-1] == "mended"
    )


async def test_it_waits_for_a_person_who_may_approve_or_dismiss(where: Path | str, tmp_path: Path) -> None:
    played = Played()
    async with world(where, tmp_path, played, mode=Mode.APPROVE) as on:
        for name, machine in (("0a", "a"), ("0b", "b")):
            await on.judged(name, machine)
        await on.acting.tick()
        assert (await on.states("0a"), played.told) == ({"a": "waiting"}, [])
        facts, rule = await on.acting.facts("0a"), on.acting.rule()
        await on.store.do(policy.approve, "0a", facts, rule, "alice")
        await on.store.do(policy.dismiss, "0b", "not now", "bob", NOON)
        await on.until("0a", ActionState.DONE)
        assert played.told == ["mark a"] and await on.states("0b") == {"b": "dismissed"}
        for name in ("0a", "0b"):
            with refused("nothing-to-decide"):
                await on.store.do(policy.approve, name, facts, rule, "alice")
            before = await on.store.ask(actions.of, name)
            assert await on.store.do(policy.dismiss, name, "", "bob", NOON) == before, "nothing is left to dismiss"


async def test_marks_that_do_not_last_are_made_again(here: Path, tmp_path: Path) -> None:
    played = Played(again_s=1e-9)
    async with world(here, tmp_path, played) as on:
        await on.judged("0a", "a")
        await on.until("0a", ActionState.DONE)
        before = len(played.told)
        await on.acting.tick()
        assert len(played.told) == before + 1


async def test_a_machine_is_taken_once_though_two_servers_ask(where: Path | str, tmp_path: Path) -> None:
    """SQLite has one server; there two of its tasks ask."""
    async with world(where, tmp_path, Nothing(), caps=structs.replace(WIDE, per_hour=1)) as on:
        await on.judged("0a", "a")
        await on.judged("0b", "b")
        other = ActionLoop(on.means, PATIENT, on.leading, on.audit, on.acting.chosen)
        await asyncio.gather(on.acting._propose(), other._propose())
        states = [*(await on.states("0a")).values(), *(await on.states("0b")).values()]
        assert sorted(states) == ["pending", "refused"]


async def test_old_rows_are_forgotten_but_for_those_that_hold_a_mark(where: Path | str, tmp_path: Path) -> None:
    async with world(where, tmp_path, Played()) as on:
        await on.judged("0a", "a")
        await on.judged("0b", "b", ago=9999)
        await on.until("0a", ActionState.DONE)
        await on.acting.tick()
        await on.store.do(actions.forget, NOON + 1)
        assert await on.states("0b") == {} and await on.states("0a") == {"a": "done"}


async def test_a_server_in_a_milder_mode_leaves_what_one_before_had_begun_and_still_releases(
    here: Path, tmp_path: Path
) -> None:
    played = Moving(runs={"b": "7:0"}, moving=99)
    async with world(here, tmp_path, played) as on:
        await on.judged("0b", "b")
        await on.until("0b", ActionState.MARKED)
        played.fails = BackendFailed("away", again=True)
        await on.judged("0a", "a")
        await on.acting.tick()
        on.mode, played.fails = Mode.DRY_RUN, None
        on.begin()
        before = list(played.told)
        await on.acting.tick()
        assert played.told == before and await on.states("0a") == {"a": "pending"}
        await on.store.do(policy.release, "b", "", "alice", NOON)
        await on.acting.tick()
        assert played.told == [*before, "unmark b"]
