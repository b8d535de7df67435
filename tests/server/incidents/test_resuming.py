"""Incidents that a server's end cut short: judged as they are when all had come, looked at anew else, and never stuck."""

import asyncio
import json
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from hangdog_models.errors import ServerUnreachable
from hangdog_models.incident import Incident, IncidentState
from hangdog_models.ranks import Rank
from hangdog_models.snapshot import Snapshot
from hangdog_models.stack import Reason
from hangdog_models.topology import Topology
from hangdog_models.verdict import Kind, Verdict, to_json
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_server.cluster.fleet import Fleet
from hangdog_server.cluster.leadership import Leading
from hangdog_server.incidents.incident_run import AGAIN_S, IncidentServices
from hangdog_server.incidents.registry import IncidentRegistry
from hangdog_server.incidents.replay import StoredRound, replay
from hangdog_server.incidents.resume import ATTEMPTS
from hangdog_server.store.store import Store
from hangdog_server.store.store_errors import StoreFailed
from support.servers.cast import NOON, PATIENT, Listener, Stage, cluster, stage, texts, trainer, verdict
from support.worded import names

pytestmark = [pytest.mark.slow, pytest.mark.parallel]

#: Who is not back soon is not waited for.
SHORT = replace(PATIENT, returned_s=0.5)
LOOKS = 2
TWO = {"a": [0], "b": [1]}


async def left(path: Path, looks: Mapping[str, int]) -> Incident:
    """What a server leaves that ended when each machine had answered so many looks; with all of them, while it judges."""
    judging, over = threading.Event(), threading.Event()

    def judge(snapshot: Snapshot, topology: Topology) -> Verdict:
        judging.set()
        assert over.wait(10)
        return verdict(snapshot, topology)

    try:
        async with stage(path, judge, replace(PATIENT, rounds=LOOKS)) as on, cluster(on, **TWO) as agents:
            asking = asyncio.create_task(on.snapshot())
            for agent in agents:
                order = await agent.order()
                for number in range(looks.get(agent.machine, 0)):
                    await agent.answer(order, trainer(TWO[agent.machine][0], "before"), look=number)
            (begun,) = await on.store.latest("", 9)
            async with asyncio.timeout(30):
                while (await on.store.kept(begun.id))[1] < sum(looks.values()) or (
                    sum(looks.values()) == 2 * LOOKS and not judging.is_set()
                ):
                    await asyncio.sleep(0.01)
        with suppress(ServerUnreachable):
            await asking
    finally:
        over.set()
    store = Store(path)
    (incident,) = await store.open()
    store.close()
    assert incident.id == begun.id
    return incident


async def ended(on: Stage, count: int = 1) -> tuple[Incident, ...]:
    """The incidents, newest first, once none is under way."""
    async with asyncio.timeout(30):
        while await on.store.open():
            await asyncio.sleep(0.01)
    incidents = await on.store.latest("", 9)
    assert len(incidents) == count
    return incidents


def functions(snapshot: Snapshot | None) -> dict[int, set[str]]:
    """Where each rank was seen."""
    assert snapshot is not None
    found: dict[int, set[str]] = {}
    for trace in (trace for round_ in snapshot.rounds for trace in round_.traces if trace.threads):
        found.setdefault(trace.rank, set()).add(trace.threads[0].frames[-1].function)
    return found


async def test_what_had_come_whole_is_judged_and_nobody_is_asked_again(tmp_path: Path) -> None:
    before = await left(tmp_path / "s.db", {"a": LOOKS, "b": LOOKS})
    listener = Listener()
    async with stage(tmp_path / "s.db", listener, SHORT) as on:
        (incident,) = await ended(on)
        assert (incident.id, incident.state, incident.began) == (before.id, IncidentState.JUDGED, before.began)
        assert functions(listener.snapshot) == {0: {"before"}, 1: {"before"}}
        assert listener.topology is not None and listener.topology.machines == {"a": (0,), "b": (1,)}
        assert listener.snapshot is not None and not listener.snapshot.account.notes
        stored = json.loads((await on.store.find(incident.id)).verdict)
    assert stored == to_json(listener.verdicts[0])


async def test_what_had_not_come_whole_is_looked_at_anew_and_old_and_new_are_never_mixed(tmp_path: Path) -> None:
    before = await left(tmp_path / "s.db", {"a": LOOKS, "b": 1})
    store = Store(tmp_path / "s.db")
    await store.remember(before.id, {**(await store.kept(before.id))[0], "stood_s": 12.5})
    store.close()
    listener = Listener()
    async with stage(tmp_path / "s.db", listener, PATIENT) as on, cluster(on, **TWO) as agents:
        for agent in agents:
            order = await agent.order()
            assert (order.order, order.rounds) == (before.id, LOOKS)
            for number in range(LOOKS):
                await agent.answer(order, trainer(TWO[agent.machine][0], "after"), look=number)
        (incident,) = await ended(on)
        assert (incident.id, incident.state) == (before.id, IncidentState.JUDGED)
        assert functions(listener.snapshot) == {0: {"after"}, 1: {"after"}}
        asked, captures = await on.store.recall(incident.id)
        assert len(captures) == 3 + 4, "what came before is kept"
        assert asked["stood_s"] == 12.5, "since when the job stands still is known from before"
        again = replay("llama", asked, (StoredRound(one.machine, one.round, one.packed) for one in captures))
        assert functions(again.snapshot) == functions(listener.snapshot), "a bundle shows what was judged"


async def test_who_is_not_back_is_missing_and_the_others_are_judged(tmp_path: Path) -> None:
    await left(tmp_path / "s.db", {"a": 1})
    listener = Listener()
    async with stage(tmp_path / "s.db", listener, SHORT) as on, cluster(on, a=[0]) as (a,):
        order = await a.order()
        for number in range(LOOKS):
            await a.answer(order, trainer(0, "after"), look=number)
        (incident,) = await ended(on)
        assert incident.state is IncidentState.JUDGED
    assert listener.snapshot is not None and functions(listener.snapshot) == {0: {"after"}}
    gone = [trace for trace in listener.snapshot.rounds[-1].traces if trace.missing]
    assert [(trace.rank, trace.missing) for trace in gone] == [(Rank(1), gone[0].missing)]
    assert gone[0].missing is not None and gone[0].missing.reason is Reason.NO_AGENT
    assert names(gone[0].missing.message, "b", "not connected")


async def test_when_nobody_is_back_it_is_judged_as_it_stands_and_the_servers_end_is_nobodys_fault(
    tmp_path: Path,
) -> None:
    await left(tmp_path / "s.db", {"a": 1})
    listener = Listener()
    async with stage(tmp_path / "s.db", listener, SHORT) as on:
        (incident,) = await ended(on)
        assert incident.state is IncidentState.JUDGED
    snapshot = listener.snapshot
    assert snapshot is not None and functions(snapshot) == {0: {"before"}}
    (gone,) = [trace.missing for trace in snapshot.rounds[-1].traces if trace.missing]
    assert gone.reason is Reason.NO_EVIDENCE and names(gone.message, "server ended", "b")
    unanswered, cut_short = snapshot.account.notes
    assert names(unanswered, "no machine", "look 1") and names(cut_short, "server ended", "2 machines")


async def test_when_nobody_had_answered_and_nobody_is_back_it_fails_and_says_so(tmp_path: Path) -> None:
    await left(tmp_path / "s.db", {})
    async with stage(tmp_path / "s.db", settings=SHORT) as on:
        (incident,) = await ended(on)
        assert incident.state is IncidentState.FAILED
        assert names(incident.note, "server stopped", "no machine")


async def test_an_incident_of_another_hour_is_not_asked_about_anew(tmp_path: Path) -> None:
    await left(tmp_path / "s.db", {"a": 1})
    listener = Listener()
    later = NOON + PATIENT.resumed_s + 1
    async with stage(tmp_path / "s.db", listener, PATIENT, clock=lambda: later) as on, cluster(on, **TWO):
        (incident,) = await ended(on)
        assert incident.state is IncidentState.JUDGED
    assert functions(listener.snapshot) == {0: {"before"}}


async def test_an_incident_that_ends_its_server_each_time_is_given_up(tmp_path: Path) -> None:
    await left(tmp_path / "s.db", {"a": 1})
    for attempt in range(ATTEMPTS):
        async with stage(tmp_path / "s.db") as on:
            (incident,) = await on.store.open()
            async with asyncio.timeout(30):
                while (await on.store.kept(incident.id))[0].get("attempt") != attempt + 1:
                    await asyncio.sleep(0.01)
    async with stage(tmp_path / "s.db") as on:
        (incident,) = await ended(on)
        assert incident.state is IncidentState.FAILED
        assert names(incident.note, "server ended", f"{ATTEMPTS + 1} times")


async def test_whoever_asks_meanwhile_follows_it(tmp_path: Path) -> None:
    before = await left(tmp_path / "s.db", {"a": 1})
    async with stage(tmp_path / "s.db", settings=PATIENT) as on, cluster(on, a=[0]) as (a,), on.agent("b") as b:
        asking = asyncio.create_task(on.snapshot())
        await asyncio.sleep(0.1)
        await b.hello(llama=[1])
        for agent, rank in ((a, 0), (b, 1)):
            order = await agent.order()
            for number in range(LOOKS):
                await agent.answer(order, trainer(rank), look=number)
        steps = await asking
        assert {step.incident for step in steps} == {before.id} and steps[-1].verdict is not None
        assert any(names(text, before.id, "llama", "cut short") for text in texts(steps))
        await ended(on)


async def test_of_two_unfinished_incidents_of_a_job_the_newer_one_goes_on(tmp_path: Path) -> None:
    store = Store(tmp_path / "s.db")
    await store.begin(Incident("0a", "llama", NOON - 60), {})
    await store.begin(Incident("0b", "llama", NOON), {})
    store.close()
    async with stage(tmp_path / "s.db") as on:
        newer, older = await ended(on, 2)
        assert older.state is IncidentState.FAILED and names(older.note, "taken over", "0b")
        assert newer.state is IncidentState.FAILED and names(newer.note, "0b", "KeyError")


async def test_a_verdict_is_stored_once_the_store_is_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judged, away = Store.judged, threading.Event()

    async def failing(store: Store, *given: object) -> None:
        if not away.is_set():
            away.set()
            raise StoreFailed("the store failed: it is away")
        await judged(store, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(Store, "judged", failing)
    monkeypatch.setattr("hangdog_server.incidents.incident_run.AGAIN_S", min(AGAIN_S, 0.05))
    async with stage(tmp_path / "s.db") as on, cluster(on, a=[0]) as (a,):
        asking = asyncio.create_task(on.snapshot())
        await a.answer(await a.order(), trainer(0))
        steps = await asking
        assert names(steps[-1].text, Kind.UNDETERMINED, "not stored", "it is away")
        (incident,) = await ended(on)
        assert incident.state is IncidentState.JUDGED and incident.kind == "undetermined"


async def test_answers_to_the_order_of_before_are_not_taken(tmp_path: Path) -> None:
    before = await left(tmp_path / "s.db", {"a": 1})
    listener = Listener()
    async with stage(tmp_path / "s.db", listener, SHORT) as on, on.agent("a") as a:
        await a.hello()  # it runs the job no more
        await a.answer(pb.CaptureOrder(order=before.id), trainer(0, "late"), look=1)
        await ended(on)
    assert functions(listener.snapshot) == {0: {"before"}}


async def test_an_incident_that_ended_since_it_was_found_open_is_let_be(tmp_path: Path) -> None:
    before = await left(tmp_path / "s.db", {"a": LOOKS, "b": LOOKS})
    listener = Listener()
    async with stage(tmp_path / "s.db", listener, SHORT) as on:
        (incident,) = await ended(on)
    store = Store(tmp_path / "s.db")
    means = IncidentServices(Fleet(SHORT), store, listener, lambda: NOON)
    desk = IncidentRegistry(means, SHORT, Leading(store, means.fleet, SHORT))
    await desk.take_up(before)
    assert desk.leads() == frozenset() and (await store.find(incident.id)).changed == incident.changed
    store.close()
