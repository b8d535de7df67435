"""What follows from verdicts: written before it is done, done once, read back, bounded, undone, and never by itself."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from cast import NOON, PATIENT
from cast_acting import WIDE, World, body, world
from hangdog_models.acting.caps import Caps, Mode
from hangdog_models.acting.history import Body
from hangdog_models.errors import WrongUse
from hangdog_server import intents
from hangdog_server.acting import Acting
from hangdog_server.actors.actor import ActorFailed, Case, Mark, Standing
from hangdog_server.actors.nothing import Nothing
from hangdog_server.intents import Act
from hangdog_server.tables import CONVICTIONS, TESTS


@pytest.fixture
def here(memory: Path) -> Path:
    """An empty store for what no engine has a part in."""
    return memory / "s.db"


@dataclass
class Played:
    """A scheduler as the test plays it: who is out by whose reason, and every act in order."""

    name: str = "played"
    again_s: float = 0.0
    marks: dict[str, str] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)
    fails: ActorFailed | None = None
    runs: dict[str, str] = field(default_factory=dict)
    moving: int = 0

    async def look(self, case: Case) -> Standing:
        if self.fails:
            raise self.fails
        owner = self.marks.get(case.machine)
        kind = Mark.NONE if owner is None else Mark.ANOTHERS if owner == "ops" else Mark.OURS
        return Standing(kind, owner or "", owner or "")

    async def mark(self, case: Case) -> None:
        if (await self.look(case)).mark is Mark.ANOTHERS:
            raise ActorFailed(f"{case.machine} is left alone", "ask ops")
        if case.machine not in self.marks or self.again_s:
            self.marks[case.machine] = case.incident
            self.told.append(f"mark {case.machine}")

    async def unmark(self, case: Case) -> None:
        standing = await self.look(case)
        if standing.mark is Mark.ANOTHERS:
            raise ActorFailed(f"{case.machine} is left alone", "ask ops")
        if standing.incident == case.incident:
            del self.marks[case.machine]
            self.told.append(f"unmark {case.machine}")

    async def close(self) -> None:
        """Holds nothing."""


class Moving(Played):
    """One that also has jobs start again."""

    async def run_of(self, case: Case) -> str:
        return self.runs.get(case.machine, "")

    async def move(self, case: Case, run: str, machines: list[str]) -> bool:
        if self.fails:
            raise self.fails
        self.told.append(f"move {run} without {','.join(machines)}")
        self.moving -= 1
        return self.moving < 0


async def test_by_itself_nothing_is_touched_and_what_would_be_done_is_told(where: Path | str, tmp_path: Path) -> None:
    played = Played()
    async with world(where, tmp_path, played, mode=Mode.DRY_RUN) as on:
        await on.judged("0a", "a")
        await on.acting.tick()
        assert await on.states("0a") == {"a": "dry-run"} and played.told == []
        with pytest.raises(WrongUse, match="in mode dry-run: nothing is done"):
            await on.store.do(intents.approve, "0a", await on.acting.facts("0a"), on.acting.rule(), "alice")
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
        await on.until("0a", Act.DONE)
        for _ in range(3):
            await on.acting.tick()
        moves = ["move 7:0 without a,b"] * 3
        assert played.told == ["mark a", "mark b", *moves], "marked both before the job could come back to one"
        rows = await on.store.do(intents.release, "a", "mended", "alice", NOON)
        assert [row.machine for row in rows] == ["a"]
        await on.until("0a", Act.RELEASED, Act.DONE)
        assert played.marks == {"b": "0a"} and await on.states("0a") == {"a": "released", "b": "done"}
        with pytest.raises(WrongUse, match="holds no mark on a"):
            await on.store.do(intents.release, "a", "", "alice", NOON)
        recorded = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    told = [(one["what"], one["outcome"]) for one in recorded if one["what"].endswith(" a")]
    assert told == [
        ("isolate a", "pending"), ("isolate a", "marked: out of use"),
        ("isolate a", "done: out of use, its job starts elsewhere"), ("release a", "released: mended"),
    ]  # fmt: skip


async def test_it_waits_for_a_person_who_may_approve_or_dismiss(where: Path | str, tmp_path: Path) -> None:
    played = Played()
    async with world(where, tmp_path, played, mode=Mode.APPROVE) as on:
        for name, machine in (("0a", "a"), ("0b", "b")):
            await on.judged(name, machine)
        await on.acting.tick()
        assert (await on.states("0a"), played.told) == ({"a": "waiting"}, [])
        facts, rule = await on.acting.facts("0a"), on.acting.rule()
        await on.store.do(intents.approve, "0a", facts, rule, "alice")
        await on.store.do(intents.dismiss, "0b", "not now", "bob", NOON)
        await on.until("0a", Act.DONE)
        assert played.told == ["mark a"] and await on.states("0b") == {"b": "dismissed"}
        for name in ("0a", "0b"):
            with pytest.raises(WrongUse, match="nothing of incident"):
                await on.store.do(intents.approve, name, facts, rule, "alice")
            with pytest.raises(WrongUse, match="nothing of incident"):
                await on.store.do(intents.dismiss, name, "", "bob", NOON)


async def test_people_are_bound_too_and_may_ask_again_when_there_is_room(here: Path, tmp_path: Path) -> None:
    async with world(here, tmp_path, Played(), caps=replace(WIDE, share=0.17)) as on:
        await on.judged("0a", "a")
        await on.judged("0b", "b")
        await on.acting.tick()
        assert (await on.states("0a"), await on.states("0b")) == ({"a": "done"}, {"b": "refused"})
        late, first = "0b", "a"
        facts, rule = await on.acting.facts(late), on.acting.rule()
        rows = await on.store.do(intents.approve, late, facts, rule, "alice")
        assert "2 of 6 machines would be out at once" in rows[0].words and rows[0].state is Act.REFUSED
        await on.store.do(intents.release, first, "", "alice", NOON)
        await on.acting.tick()
        await on.store.do(intents.approve, late, facts, rule, "alice")
        await on.until(late, Act.DONE)


async def test_who_is_away_is_tried_again_until_the_evidence_is_too_old(here: Path, tmp_path: Path) -> None:
    played = Played(fails=ActorFailed("scontrol failed: connect failure", "is it up?", again=True))
    async with world(here, tmp_path, played) as on:
        await on.judged("0a", "a")
        await on.judged("0b", "b")
        for _ in range(3):
            await on.acting.tick()
        assert await on.states("0a") == {"a": "pending"} and "connect failure" in await on.words("0a")
        assert (tmp_path / "audit.jsonl").read_text().count("connect failure") == 2, "the same news is told once"
        on.now += 600
        await on.store.do(intents.dismiss, "0b", "", "bob", on.now)
        played.fails = None
        on.begin()
        await on.until("0a", Act.DONE)
        await on.until("0b", Act.RELEASED)
        played.fails = ActorFailed("away", again=True)
        await on.judged("0c", "c")
        await on.acting.tick()
        on.now, played.fails = on.now + 9999, None
        await on.acting.tick()
        assert await on.states("0c") == {"c": "failed"} and "evidence was too old (away" in await on.words("0c")
        played.fails = ActorFailed("away", again=True)
        await on.judged("0d", "d")
        await on.acting.tick()
        on.now += 9999
        await on.acting.tick()  # it is away still: nothing is held for it longer than the evidence lasts
        assert await on.states("0d") == {"d": "failed"} and "evidence was too old (away" in await on.words("0d")
        assert played.marks == {"a": "0a"}


async def test_what_another_marked_is_left_alone_and_what_failed_holds_nothing(here: Path, tmp_path: Path) -> None:
    played = Played(marks={"a": "ops"})
    async with world(here, tmp_path, played) as on:
        await on.judged("0a", "a")
        await on.until("0a", Act.FAILED)
        assert played.marks == {"a": "ops"} and "left alone (ask ops)" in await on.words("0a")
        await on.judged("0b", "b")
        await on.until("0b", Act.DONE)
        played.marks["b"] = "ops"
        await on.store.do(intents.release, "b", "by alice", "alice", NOON)
        await on.until("0b", Act.RELEASED)
        assert played.marks["b"] == "ops" and "by alice; b is left alone" in await on.words("0b")


async def test_who_may_not_release_says_so_and_the_mark_stays_ours_to_release(here: Path, tmp_path: Path) -> None:
    played = Played()
    async with world(here, tmp_path, played) as on:
        await on.judged("0a", "a")
        await on.until("0a", Act.DONE)
        for refused, state, words in (
            (ActorFailed("away", again=True), "releasing", "mended; not yet: away"),
            (ActorFailed("permission denied"), "failed", "mended; not released: permission denied"),
        ):
            await on.store.do(intents.release, "a", "mended", "alice", NOON)
            played.fails = refused
            for _ in range(2):
                await on.acting.tick()
                assert (await on.states("0a"), await on.words("0a")) == ({"a": state}, words)
            (row,) = await on.store.ask(intents.of, "0a")
            assert row.marked and played.marks == {"a": "0a"}
        played.fails = None
        await on.store.do(intents.release, "a", "mended", "alice", NOON)
        await on.until("0a", Act.RELEASED)
        assert played.marks == {} and await on.words("0a") == "mended"


async def test_a_bug_met_in_one_act_keeps_no_other_from_being_done(here: Path, tmp_path: Path) -> None:
    played = Played()
    mark = played.mark

    async def broken(case: Case) -> None:
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
        assert "a was started anew" in await on.words("0a") and "not known which start of b" in await on.words("0b")
        await on.store.do(intents.approve, "0c", await on.acting.facts("0c"), on.acting.rule(), "alice")
        on.fleet = on.means.fleet
        on.fleet._bodies["c"] = Body("a later start")  # its agent came back while the approval was on its way
        await on.until("0c", Act.FAILED)
        assert played.told == []


async def test_the_job_description_names_fault_domains(here: Path, tmp_path: Path) -> None:
    leaf = '[job]\nid = "llama"\n[switches]\n"leaf-3" = ["a", "b", "c"]\n'
    async with world(here, tmp_path, Played(), caps=replace(WIDE, per_domain=2)) as on:
        await on.judged("0a", "a", "b", "c", job_toml=leaf)
        await on.acting.tick()
        assert "3 machines of leaf-3 would be out" in await on.words("0a")


async def test_the_breaker_opens_stays_open_and_is_closed_by_a_person(where: Path | str, tmp_path: Path) -> None:
    async with world(where, tmp_path, Played(), caps=Caps(share=1.0, per_domain=9)) as on:
        await on.judged("0a", "a", "b", "c")
        await on.acting.tick()
        why, since = await on.store.ask(intents.breaker)
        assert "asked for 3 of 6 machines" in why and since == NOON and "the breaker is open" in await on.words("0a")
        on.now += 7200
        await on.judged("0b", "x")
        await on.acting.tick()
        assert await on.states("0b") == {"x": "refused"}, "time closes nothing"
        await on.store.do(intents.set_breaker, "", "alice", on.now)
        await on.judged("0c", "y")
        await on.until("0c", Act.DONE)


async def test_a_file_stops_everything(here: Path, tmp_path: Path) -> None:
    async with world(here, tmp_path, Played()) as on:
        (tmp_path / "stop").touch()
        await on.judged("0a", "a")
        await on.acting.tick()
        assert on.acting.stopped() and await on.states("0a") == {}
        (tmp_path / "stop").unlink()
        await on.until("0a", Act.DONE)


async def test_marks_that_do_not_last_are_made_again(here: Path, tmp_path: Path) -> None:
    played = Played(again_s=1e-9)
    async with world(here, tmp_path, played) as on:
        await on.judged("0a", "a")
        await on.until("0a", Act.DONE)
        before = len(played.told)
        await on.acting.tick()
        assert len(played.told) == before + 1


async def test_a_machine_is_taken_once_though_two_servers_ask(where: Path | str, tmp_path: Path) -> None:
    """SQLite has one server; there two of its tasks ask."""
    async with world(where, tmp_path, Nothing(), caps=replace(WIDE, per_hour=1)) as on:
        await on.judged("0a", "a")
        await on.judged("0b", "b")
        other = Acting(on.means, PATIENT, on.leading, on.audit, on.acting.chosen)
        await asyncio.gather(on.acting._propose(), other._propose())
        states = [*(await on.states("0a")).values(), *(await on.states("0b")).values()]
        assert sorted(states) == ["pending", "refused"]


async def test_old_rows_are_forgotten_but_for_those_that_hold_a_mark(where: Path | str, tmp_path: Path) -> None:
    async with world(where, tmp_path, Played()) as on:
        await on.judged("0a", "a")
        await on.judged("0b", "b", ago=9999)
        await on.until("0a", Act.DONE)
        await on.acting.tick()
        await on.store.do(intents.forget, NOON + 1)
        assert await on.states("0b") == {} and await on.states("0a") == {"a": "done"}


async def test_a_server_in_a_milder_mode_leaves_what_one_before_had_begun_and_still_releases(
    here: Path, tmp_path: Path
) -> None:
    played = Moving(runs={"b": "7:0"}, moving=99)
    async with world(here, tmp_path, played) as on:
        await on.judged("0b", "b")
        await on.until("0b", Act.MARKED)
        played.fails = ActorFailed("away", again=True)
        await on.judged("0a", "a")
        await on.acting.tick()
        on.mode, played.fails = Mode.DRY_RUN, None
        on.begin()
        before = list(played.told)
        await on.acting.tick()
        assert played.told == before and await on.states("0a") == {"a": "pending"}
        await on.store.do(intents.release, "b", "", "alice", NOON)
        await on.acting.tick()
        assert played.told == [*before, "unmark b"]


async def test_a_job_that_does_not_start_again_is_given_up_and_its_machine_stays_out(
    here: Path, tmp_path: Path
) -> None:
    played = Moving(runs={"a": "7:0", "b": "8:0"}, moving=99)
    async with world(here, tmp_path, played) as on:
        await on.judged("0a", "a")
        await on.until("0a", Act.MARKED)
        played.fails = ActorFailed("away", again=True)
        await on.acting.tick()
        assert await on.states("0a") == {"a": "marked"} and "away" in await on.words("0a")
        on.now, played.fails = on.now + 9999, None
        await on.acting.tick()
        assert await on.states("0a") == {"a": "failed"} and "its job did not start again" in await on.words("0a")
        (row,) = await on.store.ask(intents.of, "0a")
        assert row.marked and played.marks == {"a": "0a"}


async def test_a_machine_that_is_out_is_no_spare(here: Path, tmp_path: Path) -> None:
    async with world(here, tmp_path, Played()) as on:
        for number, machine in enumerate("xy"):
            await on.judged(f"0{number}", machine)
            await on.until(f"0{number}", Act.DONE)
        await on.judged("0a", "a", "b")
        await on.acting.tick()
        assert "1 machine has no job, and 2 more would be needed" in await on.words("0a")
        await on.judged("0b", "b")
        await on.until("0b", Act.DONE)


async def test_who_was_convicted_is_no_spare_nor_where_it_is_asked_who_was_not_tested(
    here: Path, tmp_path: Path
) -> None:
    async with world(here, tmp_path, Played()) as on:
        await campaign(on, {"y": "pass", "z": "pass"}, convicted="x")
        await on.judged("0a", "a", "b", "c")
        await on.acting.tick()
        assert "2 machines have no job, and 3 more would be needed" in await on.words("0a")
    async with world(tmp_path / "other.db", tmp_path, Played(), caps=replace(WIDE, tested_s=60.0)) as on:
        await campaign(on, {"y": "pass", "z": "fail"})
        await on.judged("0a", "a", "b")
        await on.acting.tick()
        assert "1 machine has no job and passed a test lately (tested_s), and 2 more" in await on.words("0a")
        await on.judged("0b", "b")
        await on.until("0b", Act.DONE)


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
