"""What keeps machines from being touched, or acts from ending: bounds, schedulers that are away or refuse, old evidence, the breaker."""

import asyncio
from pathlib import Path

from msgspec import structs

from hangdog_models.actions.action_history import Body
from hangdog_models.actions.caps import Caps, Mode
from hangdog_server.actions import policy
from hangdog_server.actions.backends.backend import BackendFailed, IsolationCase
from hangdog_server.store import actions
from hangdog_server.store.actions import ActionState
from support.servers.cast import NOON
from support.servers.cast_acting import WIDE, Played, body, world
from support.worded import names


async def test_people_are_bound_too_and_may_ask_again_when_there_is_room(here: Path, tmp_path: Path) -> None:
    async with world(here, tmp_path, Played(), caps=structs.replace(WIDE, share=0.17)) as on:
        await on.judged("0a", "a")
        await on.judged("0b", "b")
        await on.acting.tick()
        assert (await on.states("0a"), await on.states("0b")) == ({"a": "done"}, {"b": "refused"})
        late, first = "0b", "a"
        facts, rule = await on.acting.facts(late), on.acting.rule()
        rows = await on.store.do(policy.approve, late, facts, rule, "alice")
        assert names(rows[0].message, "2 of 6 machines") and rows[0].state is ActionState.REFUSED
        await on.store.do(policy.release, first, "", "alice", NOON)
        await on.acting.tick()
        await on.store.do(policy.approve, late, facts, rule, "alice")
        await on.until(late, ActionState.DONE)


async def test_who_is_away_is_tried_again_until_the_evidence_is_too_old(here: Path, tmp_path: Path) -> None:
    played = Played(fails=BackendFailed("scontrol failed: connect failure", "is it up?", again=True))
    async with world(here, tmp_path, played) as on:
        await on.judged("0a", "a")
        await on.judged("0b", "b")
        for _ in range(3):
            await on.acting.tick()
        assert await on.states("0a") == {"a": "pending"} and "connect failure" in await on.words("0a")
        assert (tmp_path / "audit.jsonl").read_text().count("connect failure") == 2, "the same news is told once"
        on.now += 600
        await on.store.do(policy.dismiss, "0b", "", "bob", on.now)
        played.fails = None
        on.begin()
        await on.until("0a", ActionState.DONE)
        await on.until("0b", ActionState.RELEASED)
        played.fails = BackendFailed("away", again=True)
        await on.judged("0c", "c")
        await on.acting.tick()
        on.now, played.fails = on.now + 9999, None
        await on.acting.tick()
        assert await on.states("0c") == {"c": "failed"} and names(await on.words("0c"), "too old", "away")
        played.fails = BackendFailed("away", again=True)
        await on.judged("0d", "d")
        await on.acting.tick()
        on.now += 9999
        await on.acting.tick()  # it is away still: nothing is held for it longer than the evidence lasts
        assert await on.states("0d") == {"d": "failed"} and names(await on.words("0d"), "too old", "away")
        assert played.marks == {"a": "0a"}


async def test_what_another_marked_is_left_alone_and_what_failed_holds_nothing(here: Path, tmp_path: Path) -> None:
    played = Played(marks={"a": "ops"})
    async with world(here, tmp_path, played) as on:
        await on.judged("0a", "a")
        await on.until("0a", ActionState.FAILED)
        assert played.marks == {"a": "ops"} and names(await on.words("0a"), "left alone", "ops")
        await on.judged("0b", "b")
        await on.until("0b", ActionState.DONE)
        played.marks["b"] = "ops"
        await on.store.do(policy.release, "b", "by alice", "alice", NOON)
        await on.until("0b", ActionState.RELEASED)
        assert played.marks["b"] == "ops" and names(await on.words("0b"), "by alice", "b", "left alone")


async def test_who_may_not_release_says_so_and_the_mark_stays_ours_to_release(here: Path, tmp_path: Path) -> None:
    played = Played()
    async with world(here, tmp_path, played) as on:
        await on.judged("0a", "a")
        await on.until("0a", ActionState.DONE)
        for refused, state, words in (
            (BackendFailed("away", again=True), "releasing", "mended; not yet: away"),
            (BackendFailed("permission denied"), "failed", "mended; not released: permission denied"),
        ):
            await on.store.do(policy.release, "a", "mended", "alice", NOON)
            played.fails = refused
            for _ in range(2):
                await on.acting.tick()
                assert (await on.states("0a"), await on.words("0a")) == ({"a": state}, words)
            (row,) = await on.store.ask(actions.of, "0a")
            assert row.marked and played.marks == {"a": "0a"}
        played.fails = None
        await on.store.do(policy.release, "a", "mended", "alice", NOON)
        await on.until("0a", ActionState.RELEASED)
        assert played.marks == {} and await on.words("0a") == "mended"


async def test_a_bug_met_in_one_act_keeps_no_other_from_being_done(here: Path, tmp_path: Path) -> None:
    played = Played()
    mark = played.mark

    async def broken(case: IsolationCase) -> None:
        if case.machine == "a":
            raise KeyError("what nobody thought of")
        await asyncio.sleep(0)
        await mark(case)

    played.mark = broken  # type: ignore[method-assign]
    async with world(here, tmp_path, played) as on:
        await on.judged("0a", "a")
        await on.judged("0b", "b")
        await on.acting.tick()
        assert (await on.states("0a"), await on.states("0b")) == ({"a": "pending"}, {"b": "done"})


async def test_a_machine_that_was_started_anew_is_not_touched(here: Path, tmp_path: Path) -> None:
    played = Played()
    async with world(here, tmp_path, played, mode=Mode.APPROVE) as on:
        await on.judged("0a", "a", bodies={"a": Body("an earlier start")})
        await on.judged("0b", "b", bodies={"x": body("x")})
        await on.judged("0c", "c")
        await on.acting.tick()
        assert names(await on.words("0a"), "a", "started anew")
        assert names(await on.words("0b"), "not known", "start of b")
        await on.store.do(policy.approve, "0c", await on.acting.facts("0c"), on.acting.rule(), "alice")
        on.fleet = on.means.fleet
        on.fleet._bodies["c"] = Body("a later start")  # its agent came back while the approval was on its way
        await on.until("0c", ActionState.FAILED)
        assert played.told == []


async def test_the_job_description_names_fault_domains(here: Path, tmp_path: Path) -> None:
    leaf = '[job]\nid = "llama"\n[switches]\n"leaf-3" = ["a", "b", "c"]\n'
    async with world(here, tmp_path, Played(), caps=structs.replace(WIDE, per_domain=2)) as on:
        await on.judged("0a", "a", "b", "c", job_toml=leaf)
        await on.acting.tick()
        assert names(await on.words("0a"), "3 machines", "leaf-3")


async def test_the_breaker_opens_stays_open_and_is_closed_by_a_person(where: Path | str, tmp_path: Path) -> None:
    async with world(where, tmp_path, Played(), caps=Caps(share=1.0, per_domain=9)) as on:
        await on.judged("0a", "a", "b", "c")
        await on.acting.tick()
        why, since = await on.store.ask(policy.breaker)
        assert names(why, "3 of 6 machines") and since == NOON and names(await on.words("0a"), "breaker is open")
        on.now += 7200
        await on.judged("0b", "x")
        await on.acting.tick()
        assert await on.states("0b") == {"x": "refused"}, "time closes nothing"
        await on.store.do(policy.set_breaker, "", "alice", on.now)
        await on.judged("0c", "y")
        await on.until("0c", ActionState.DONE)


async def test_a_file_stops_everything(here: Path, tmp_path: Path) -> None:
    async with world(here, tmp_path, Played()) as on:
        (tmp_path / "stop").touch()
        await on.judged("0a", "a")
        await on.acting.tick()
        assert on.acting.stopped() and await on.states("0a") == {}
        (tmp_path / "stop").unlink()
        await on.until("0a", ActionState.DONE)
