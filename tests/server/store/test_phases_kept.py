"""What a job was seen to survive outlives the server: killed, stopped in order, or followed by another one."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from hangdog_models.owner import Owner, OwnerKind
from hangdog_models.phase_history import PastPhases
from hangdog_models.ranks import Rank
from hangdog_models.stall_timeouts import Doing, Sign, StallTimeouts, Suspicion
from hangdog_proto.codec import stall_signs
from hangdog_server.cluster.fleet import Fleet
from hangdog_server.cluster.leadership import Leading
from hangdog_server.cluster.stalls import StallTracker
from hangdog_server.incidents import phase_keeper
from hangdog_server.incidents.incident_run import IncidentServices
from hangdog_server.incidents.phase_keeper import LEARNED_S, WATCHED_S, WITHOUT_S, PhaseKeeper
from hangdog_server.protocol.jobs import AnnouncedJob
from hangdog_server.store import phases
from hangdog_server.store.store import Store
from hangdog_server.store.store_errors import StoreFailed
from support.servers.cast import NOON, PATIENT, stage, verdict

DAY = 86400.0
ALICE = Owner(OwnerKind.USER, "1000", 1000)
MALLORY = Owner(OwnerKind.USER, "1001", 1001)


def waiting(seconds: float, place: str = "evaluate of train.py") -> dict[Rank, Sign]:
    """Rank 0 is at work for so long, and rank 1 waits for it."""
    return {
        Rank(0): Sign(Doing.WORKING, seconds, place=place),
        Rank(1): Sign(Doing.STILL, seconds, place="barrier", waits=True),
    }


class Server:
    """What one server knows of the jobs that run on one machine; `now` is its steady clock, `at` the date."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch, job: str = "llama", owner: Owner = ALICE) -> None:
        self.store, self.job, self.now, self.at = store, job, 1_000_000.0, NOON
        monkeypatch.setattr(phase_keeper, "steady", lambda: self.now)
        self.stalls, fleet = StallTracker(StallTimeouts(young_s=DAY)), Fleet(PATIENT)
        self.local = AnnouncedJob(job, (Rank(0), Rank(1)), 2, owner=owner)
        self.connection = fleet.connect("a", "1", "peer", self.now)
        fleet.announce(self.connection, {job: self.local}, self.now)
        self.fleet = fleet
        services = IncidentServices(fleet, store, verdict, lambda: self.at)
        self.keeper = PhaseKeeper(services, self.stalls, Leading(store, fleet, PATIENT), PATIENT)
        self.stalls.seen([job], self.now)

    async def survives(self, seconds: float) -> None:
        """The job evaluates for so long and goes on."""
        for shown in (waiting(seconds), {}):
            self.stalls.note("a", {self.job: shown} if shown else {}, self.now)
            self.stalls.suspicion(self.job, {"a": self.local}, self.now)

    def suspects(self, seconds: float) -> bool:
        self.stalls.note("a", {self.job: waiting(seconds)}, self.now)
        return self.stalls.suspicion(self.job, {"a": self.local}, self.now) is not None

    async def passes(self, seconds: float) -> None:
        self.now += seconds
        self.at += seconds
        await self.keeper.tick(self.now)


async def test_a_server_that_is_killed_has_kept_the_phases_and_the_age_of_a_job(
    where: Path | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(where)
    first = Server(store, monkeypatch)
    await first.passes(0.0)
    await first.survives(200.0)
    await first.passes(LEARNED_S)
    await first.passes(2 * DAY)
    store.close()  # nothing else is said at its end

    store = Store(where)
    second = Server(store, monkeypatch)
    await second.passes(0.0)
    assert not second.suspects(599.0), "three times the evaluation that it was seen to survive"
    assert second.suspects(601.0)
    second.stalls.note("a", {}, second.now)
    assert second.stalls.taken(["llama"], second.now)["llama"].watched_s >= 2 * DAY, "it is young no more"
    store.close()
    store = Store(Path(f"{where}.empty") if isinstance(where, Path) else where)
    if isinstance(where, Path):  # the test itself: a store that knows nothing makes it young again
        third = Server(store, monkeypatch)
        await third.passes(0.0)
        assert third.suspects(301.0)
    store.close()


async def test_it_is_written_seldom_and_only_what_is_worth_it(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, wrote = Store(here), list[list[str]]()

    async def counted(step: object, rows: list[phases.PhaseRow]) -> None:
        assert step is phases.write
        wrote.append([row.job for row in rows])
        await do(phases.write, rows)

    do = store.do
    monkeypatch.setattr(store, "do", counted)
    on = Server(store, monkeypatch)
    for _ in range(int(WATCHED_S) - 1):
        await on.passes(1.0)
    assert wrote == [], "nothing was learned"
    await on.passes(1.0)
    assert wrote == [["llama"]], "its age"
    for _ in range(120):
        await on.survives(30.0)
        await on.passes(1.0)
    assert len(wrote) == 2, "the same phase again is nothing new"
    await on.survives(2.0)  # anybody is borne for three times as long
    await on.passes(LEARNED_S)
    assert (await store.ask(phases.read, ["llama"]))["llama"].past.longest == {"evaluate of train.py": 30.0}
    store.close()


async def test_what_could_not_be_written_is_written_later_and_a_job_is_watched_meanwhile(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(here)
    on = Server(store, monkeypatch)
    away = True

    async def failing(*_: object) -> Mapping[str, object]:
        if away:
            raise StoreFailed("away")
        return {}

    monkeypatch.setattr(store, "ask", failing)
    assert not on.keeper.ready("llama", on.now)
    with pytest.raises(StoreFailed):
        await on.passes(0.0)
    assert not on.keeper.ready("llama", on.now)
    on.now += WITHOUT_S
    assert on.keeper.ready("llama", on.now), "a store that is away blinds nobody"
    away = False
    await on.passes(0.0)
    monkeypatch.undo()
    monkeypatch.setattr(phase_keeper, "steady", lambda: on.now)

    await on.survives(100.0)
    monkeypatch.setattr(store, "do", failing)
    away = True
    with pytest.raises(StoreFailed):
        await on.passes(LEARNED_S)
    monkeypatch.undo()
    monkeypatch.setattr(phase_keeper, "steady", lambda: on.now)
    await on.passes(LEARNED_S)
    assert (await store.ask(phases.read, ["llama"]))["llama"].past.longest == {"evaluate of train.py": 100.0}
    store.close()


async def test_another_user_s_job_of_that_name_inherits_nothing(
    where: Path | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else one who names a job like another's could teach it to bear a standstill for hours."""
    store = Store(where)
    first = Server(store, monkeypatch, owner=MALLORY)
    await first.passes(0.0)
    await first.survives(3000.0)
    await first.keeper.close()
    second = Server(store, monkeypatch)
    await second.passes(0.0)
    assert second.suspects(301.0)
    second.stalls.note("a", {}, second.now)
    second.stalls.suspicion("llama", {"a": second.local}, second.now)
    await second.keeper.close()
    kept = (await store.ask(phases.read, ["llama"]))["llama"]
    assert kept.owner == "1000" and kept.past.longest == {"evaluate of train.py": 301.0}
    store.close()


@pytest.mark.parametrize(("later_s", "known"), [(60.0, True), (PATIENT.restart_s + 1, False)])
async def test_a_job_that_nobody_named_is_the_same_one_for_an_hour(
    here: Path, monkeypatch: pytest.MonkeyPatch, later_s: float, known: bool
) -> None:
    store = Store(here)
    first = Server(store, monkeypatch, "port-29500")
    await first.passes(0.0)
    await first.survives(200.0)
    await first.keeper.close()
    second = Server(store, monkeypatch, "port-29500")
    second.at += later_s
    await second.passes(0.0)
    assert second.suspects(500.0) is not known
    store.close()


async def test_two_servers_add_up_what_they_saw(where: Path | str) -> None:
    store = Store(where)
    for past in (PastPhases(10.0, {"a": 5.0, "b": 50.0}), PastPhases(7.0, {"a": 9.0}), PastPhases(7.0, {"a": 9.0})):
        await store.do(phases.write, [phases.PhaseRow("llama", "", NOON, past)])
    found = (await store.ask(phases.read, ["llama", "other"]))["llama"].past
    assert found == PastPhases(10.0, {"a": 9.0, "b": 50.0})
    assert list(await store.ask(phases.read, ["other"])) == []
    store.close()


async def test_what_is_old_or_too_much_is_forgotten(where: Path | str) -> None:
    store = Store(where)
    rows = [phases.PhaseRow(f"j{number}", "", NOON + number, PastPhases(10.0, {"a": 5.0})) for number in range(10)]
    await store.do(phases.write, rows)
    assert not await store.do(phases.forget, NOON + 3)
    jobs = [f"j{number}" for number in range(10)]
    assert sorted(await store.ask(phases.read, jobs)) == jobs[3:]
    assert not await store.do(phases.forget, 0.0, 2)
    assert sorted(await store.ask(phases.read, jobs)) == jobs[8:]
    store.close()


async def test_a_server_that_is_started_again_bears_the_evaluation_it_has_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hangdog_server.incidents.stall_watch.TICK_S", 0.02)
    monkeypatch.setattr(phase_keeper, "TICK_S", 0.02)
    found = list[tuple[float, Suspicion | None]]()
    suspicion = StallTracker.suspicion

    def noted(
        self: StallTracker, job: str, running: Mapping[str, AnnouncedJob], now: float, *mute: object
    ) -> Suspicion | None:
        said = suspicion(self, job, running, now)
        shown = max(
            (sign.seconds for one in self._reports.get(job, {}).values() for sign in one.signs.values()), default=0.0
        )
        found.append((shown, said))
        return said

    monkeypatch.setattr(StallTracker, "suspicion", noted)

    async def thought(seconds: float) -> Suspicion | None:
        """What the server thinks of a job that shows this."""
        async with asyncio.timeout(30):
            while not (of := [said for shown, said in found if shown == seconds]):
                await asyncio.sleep(0.01)
        return of[0]

    known = replace(PATIENT, young_s=0.0)
    for seconds, suspected in ((50.0, False), (140.0, False), (151.0, True)):
        async with stage(tmp_path / "s.db", settings=known) as on, on.agent("a") as agent:
            await agent.hello(llama=[0, 1])
            await on.knows("a")
            await agent.say(stall_report=stall_signs.pack({"llama": waiting(seconds)}))
            assert (await thought(seconds) is not None) is suspected
            if seconds == 50.0:  # it ends, which teaches how long it lasts
                await agent.say(stall_report=stall_signs.pack({}))
                await thought(0.0)
