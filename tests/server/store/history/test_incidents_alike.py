"""Earlier incidents of one kind, as the store keeps them: which count for a new one, whose word each is, and that none delays it."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.incident import Incident, SettledCause
from hangdog_models.past_incidents import EarlierIncident, Outcome
from hangdog_models.planning.campaign.launch import LaunchResult
from hangdog_models.ranks import Rank
from hangdog_models.snapshot import Snapshot
from hangdog_models.topology import Topology
from hangdog_models.verdict import Culprit, Kind, StallCause, Verdict
from hangdog_server.incidents import incident_memory
from hangdog_server.incidents.incident_memory import IncidentMemory
from hangdog_server.store import campaigns, machine_history, test_results
from hangdog_server.store.actions import ActionState
from hangdog_server.store.campaigns import Campaign, CampaignState, Convict
from hangdog_server.store.history import responses
from hangdog_server.store.machine_history import COMPARED, COMPARED_S
from hangdog_server.store.store import Store
from hangdog_server.store.tables import INCIDENTS, INTENTS, TESTS
from support.cases.reasons import codes
from support.cases.stories import job, look, snapshot, trace
from support.servers.cast import NOON, PATIENT, cluster, stage
from support.worded import names

DAY = 86400.0
WIDE = job(dp=16, per_machine=2)
SCENE = snapshot(*[[*look({"0-5,7-15": "gather"}), trace(6, "user", state="S")]] * 2)


def blaming(machine: str, rank: int, kind: Kind = Kind.SOFTWARE) -> Verdict:
    """The verdict upon the scene, as if it had been on another machine."""
    found = diagnose(SCENE, WIDE)
    culprit = found.culprit
    assert culprit is not None
    there = next(one for one in found.clusters if 6 in one.ranks)
    clusters = (
        replace(there, ranks=(Rank(rank),)),
        *(replace(one, ranks=(Rank(6),)) for one in found.clusters if one is not there),
    )
    return replace(
        found, kind=kind, clusters=clusters, culprit=Culprit((Rank(rank),), (machine,), 0.9, (), culprit.causes)
    )


async def judged(
    store: Store,
    name: str,
    machine: str,
    rank: int = 2,
    *,
    days: float = 1,
    user: str = "7",
    kind: Kind = Kind.SOFTWARE,
) -> None:
    await store.begin(Incident(name, "llama", NOON - days * DAY), {})
    await store.judged(name, blaming(machine, rank, kind), NOON - days * DAY, user)


async def read(store: Store, user: str = "7") -> dict[str, EarlierIncident]:
    return {one.id: one for one in await store.ask(incident_memory.read, "ff", user, NOON)}


async def acted(store: Store, incident: str, machine: str, state: ActionState) -> None:
    values: dict[str, object] = {
        "incident": incident, "machine": machine, "job": "llama", "domain": "", "state": state, "at": NOON,
        "changed": NOON, "reason": "", "message": "", "who": "alice", "evidence_at": NOON, "boot": "", "serial": "",
        "marked": False, "runs": {},
    }  # fmt: skip
    await store.do(lambda connection: connection.execute(INTENTS.insert().values(values)) and None)


async def test_incidents_of_the_same_user_are_read_newest_first(where: Path | str) -> None:
    store = Store(where)
    await judged(store, "0a", "node-1", days=9)
    await judged(store, "0b", "node-5", 10, days=2)
    await judged(store, "ff", "node-3", 6, days=0)
    await judged(store, "0c", "node-6", days=1, kind=Kind.SLOW)
    await judged(store, "0d", "node-6", days=COMPARED_S / DAY + 1)
    found = await store.ask(incident_memory.read, "ff", "7", NOON)
    assert [(one.id, round(one.ago_s / DAY), one.features.machine, one.features.ranks) for one in found] == [
        ("0b", 2, "node-5", (10,)), ("0a", 9, "node-1", (2,)),
    ]  # fmt: skip
    assert found[0].features.place[-1] == "augment (data.py)" and found[0].outcome is Outcome.OPEN
    store.close()


async def test_a_stranger_cannot_speak_for_another_users_job(where: Path | str) -> None:
    store = Store(where)
    await judged(store, "0a", "node-1", user="8")
    await judged(store, "0b", "node-1", user="")
    assert await read(store) == {} and list(await read(store, "8")) == ["0a"] and list(await read(store, "")) == ["0b"]
    store.close()


async def test_what_a_person_dismissed_or_what_was_over_by_itself_does_not_count(where: Path | str) -> None:
    store = Store(where)
    for name in ("0a", "0b", "0c", "0d"):
        await judged(store, name, "node-1")
    await acted(store, "0a", "node-1", ActionState.DISMISSED)
    await store.went_on("0b", 90.0)
    await acted(store, "0c", "node-1", ActionState.DONE)
    await store.went_on("0c", 90.0)
    assert sorted(await read(store)) == ["0c", "0d"], "one that went on once its machine was out is no false one"
    store.close()


@pytest.mark.parametrize(
    ("state", "convicted", "tests", "outcome"),
    [
        (CampaignState.DONE, ["node-1"], ["fail", "pass"], Outcome.CONVICTED),
        (CampaignState.DONE, [], ["pass", "pass"], Outcome.CLEARED),
        (CampaignState.DONE, [], ["pass", "inconclusive"], Outcome.OPEN),
        (CampaignState.ABORTED, [], ["pass"], Outcome.OPEN),
        (CampaignState.DONE, ["node-9"], [], Outcome.OPEN),
    ],
)
async def test_what_tests_of_its_machine_found_is_known(
    where: Path | str, state: CampaignState, convicted: Sequence[str], tests: Sequence[str], outcome: Outcome
) -> None:
    store = Store(where)
    await judged(store, "0a", "node-1")
    await store.do(campaigns.begin, Campaign("c1", NOON, "alice", "", "0a", {}))
    launch = test_results.LaunchResults("c1", "gemm", ("node-1",), NOON)
    rows = [launch.row("node-1", str(LaunchResult(result)), "") for result in tests]
    await store.do(lambda connection: connection.execute(TESTS.insert(), rows) and None if rows else None)
    await store.do(campaigns.end, "c1", state, NOON + 1, "", "{}", [Convict(machine, 0.9) for machine in convicted])
    assert {name: one.outcome for name, one in (await read(store)).items()} == {"0a": outcome}
    assert (list(await read(store, "8")) == ["0a"]) == (outcome is Outcome.CONVICTED), "tests are no stranger's word"
    store.close()


@pytest.mark.parametrize(
    ("cause", "machines", "outcome"),
    [
        ("software", (), Outcome.CLEARED),
        ("machine", ("node-1",), Outcome.CONVICTED),
        ("slow", ("node-3", "node-1"), Outcome.CONVICTED),
        ("machine", ("node-3",), None),
        ("machine", (), None),
        ("group", ("node-1",), None),
        ("dependency", (), None),
        ("healthy", (), None),
        ("unknown", (), Outcome.OPEN),
    ],
)
async def test_what_people_said_of_it_counts_as_a_test_of_its_machine_does(
    where: Path | str, cause: str, machines: tuple[str, ...], outcome: Outcome | None
) -> None:
    store = Store(where)
    await judged(store, "0a", "node-1")
    await store.do(responses.resolve, "0a", SettledCause(cause, machines, "", "ada", NOON))
    assert {name: one.outcome for name, one in (await read(store)).items()} == ({"0a": outcome} if outcome else {})
    assert (list(await read(store, "8")) == ["0a"]) == (outcome is Outcome.CONVICTED), "who may act is no stranger"
    store.close()


async def test_people_know_what_tests_found_and_their_word_counts(where: Path | str) -> None:
    store = Store(where)
    await judged(store, "0a", "node-1")
    await store.do(campaigns.begin, Campaign("c1", NOON, "alice", "", "0a", {}))
    await store.do(campaigns.end, "c1", CampaignState.DONE, NOON + 1, "", "{}", [Convict("node-1", 0.9)])
    for cause, outcome in (
        ("machine", Outcome.CONVICTED),
        ("software", Outcome.CLEARED),
        ("unknown", Outcome.CONVICTED),
    ):
        await store.do(responses.resolve, "0a", SettledCause(cause, (), "", "ada", NOON))
        assert (await read(store))["0a"].outcome is outcome
    store.close()


async def test_one_that_was_dismissed_or_went_on_counts_once_people_said_what_it_was(where: Path | str) -> None:
    store = Store(where)
    for name in ("0a", "0b"):
        await judged(store, name, "node-1")
    await acted(store, "0a", "node-1", ActionState.DISMISSED)
    await store.went_on("0b", 90.0)
    assert await read(store) == {}
    for name in ("0a", "0b"):
        await store.do(responses.resolve, name, SettledCause("software", (), "", "ada", NOON))
    assert {name: one.outcome for name, one in (await read(store)).items()} == dict.fromkeys(
        ("0a", "0b"), Outcome.CLEARED
    )
    store.close()


async def test_code_that_people_found_is_not_the_machines_when_it_comes_again(here: Path) -> None:
    store = Store(here)
    for at in range(2):  # the same machine with other ranks each time, which speaks for the machine
        await judged(store, f"0{at}", "node-3", 30 + at, days=at + 1)
    memory = remembering(store)
    await memory.recall(NOON)
    by_itself = memory.judge(SCENE, WIDE)
    assert [names(why.text, "node-3") for why in by_itself.because if why.code == "seen-before-here"] == [True]
    for at in range(2):
        await store.do(responses.resolve, f"0{at}", SettledCause("software", (), "", "ada", NOON))
    await memory.recall(NOON)
    known = memory.judge(SCENE, WIDE)
    assert "seen-before-elsewhere" in codes(known.because)
    assert known.causes[StallCause.SOFTWARE] > by_itself.causes[StallCause.SOFTWARE]
    assert known.causes[StallCause.MACHINE] < by_itself.causes[StallCause.MACHINE]
    store.close()


async def test_their_number_is_bounded(here: Path) -> None:
    store = Store(here)
    await judged(store, "base", "node-1")

    def many(connection: sa.Connection) -> None:
        row = connection.execute(sa.select(INCIDENTS)).one()._mapping
        connection.execute(INCIDENTS.insert(), [{**row, "id": f"{n:04}", "began": NOON - n} for n in range(300)])

    await store.do(many)
    assert len(await store.ask(machine_history.past, "ff", NOON)) == COMPARED
    store.close()


@pytest.mark.parametrize("stored", ["[]", '{"machine": 3}', '{"place": "x"}', "{}"])
async def test_what_another_version_kept_is_passed_over(here: Path, stored: str) -> None:
    store = Store(here)
    await judged(store, "0a", "node-1")
    await store.do(
        lambda connection: connection.execute(sa.text(f"UPDATE incidents SET features = '{stored}'")) and None
    )
    assert await read(store) == {}
    store.close()


def remembering(store: Store, judge: Callable[[Snapshot, Topology], Verdict] = diagnose) -> IncidentMemory:
    return IncidentMemory(judge, store, "ff", "7")


def seen_before(verdict: Verdict) -> bool:
    """Whether a verdict knows three incidents of three machines and days, and takes them for a sign against the code."""
    (found,) = [one.text for one in verdict.because if one.code == "seen-before-elsewhere"]
    return names(found, "3 times", "3 days", "3 machines", "00, 01, 02")


async def test_a_verdict_knows_them_once_they_are_recalled_and_never_waits(here: Path) -> None:
    store = Store(here)
    for at, machine in enumerate(("node-1", "node-4", "node-6")):
        await judged(store, f"0{at}", machine, 2, days=at + 1)
    memory = remembering(store)
    assert memory.judge(SCENE, WIDE) == diagnose(SCENE, WIDE)
    await memory.recall(NOON)
    assert seen_before(memory.judge(SCENE, WIDE))
    store.close()


async def test_a_snapshot_is_told_what_was_before_and_its_own_verdict_is_kept_for_the_next(here: Path) -> None:
    ranks = {f"node-{at}": [2 * at, 2 * at + 1] for at in range(8)}
    stacks = {trace.rank: trace for trace in SCENE.rounds[0].traces}
    async with (
        stage(here, diagnose, replace(PATIENT, rounds=2)) as on,
        cluster(on, **ranks) as agents,
    ):
        for at, machine in enumerate(("node-1", "node-4", "node-6")):
            await judged(on.store, f"0{at}", machine, 2, days=at + 1, user="")
        asking = asyncio.create_task(on.snapshot("llama"))
        for agent in agents:
            order = await agent.order()
            for number in range(2):
                mine = [stacks[Rank(rank)] for rank in ranks[agent.machine]]
                await agent.answer(order, *mine, look=number, last=number == 1)
        said = (await asking)[-1].verdict
        assert said is not None and said.kind is Kind.SOFTWARE
        assert seen_before(said)
        kept = await on.store.ask(machine_history.past, "ff", NOON)
        assert [one.features.machine for _, one in kept] == ["node-3", "node-1", "node-4", "node-6"]


async def test_a_store_that_is_away_costs_no_verdict(here: Path) -> None:
    store = Store(here)
    memory = remembering(store)
    await store.do(lambda connection: connection.execute(sa.text("DROP TABLE campaigns")) and None)
    await judged(store, "0a", "node-1")
    await memory.recall(NOON)
    assert await asyncio.to_thread(memory.judge, SCENE, WIDE) == diagnose(SCENE, WIDE)
    store.close()
