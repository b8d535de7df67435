"""What agents recorded while no server was there: kept before it is acknowledged, folded into one incident, judged once all came."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from hangdog_models.findings import Finding, Impact
from hangdog_models.incident import IncidentState
from hangdog_models.ranks import Rank
from hangdog_models.snapshot import Snapshot
from hangdog_models.stack import Reason
from hangdog_models.topology import Topology
from hangdog_models.verdict import Eviction, Kind, Verdict, from_json
from hangdog_proto.codec import findings
from hangdog_proto.codec.traces import pack
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_server.incidents.resume import ATTEMPTS
from hangdog_server.store.offline_captures import Spooled
from hangdog_server.store.retention import Retention
from hangdog_server.store.store_errors import StoreFailed
from hangdog_server.store.trusted_date import ClockRun
from support.servers.cast import NOON, PATIENT, Listener, stage, trainer, verdict
from support.servers.spooled import handed_over, judged
from support.worded import names

#: One in which what did not come is not waited for.
IMPATIENT = replace(PATIENT, returned_s=0.3)


def look(*ranks: int, number: int = 0, rounds: int = 1, age_s: float = 100.0, **other: object) -> pb.Spooled:
    """A look at ranks of a job of 4, the last one of its standstill unless more rounds are to come."""
    captured = pb.Captured(round=number, last=number == rounds - 1, capture=pack([trainer(rank) for rank in ranks]))
    job = pb.LocalJob(job="llama", ranks=ranks, world_size=4)
    said: dict[str, object] = {"id": f"look-{number}-{age_s:g}", "stall": f"s{age_s:g}", "why": "it stands"}
    return pb.Spooled(job=job, captured=captured, rounds=rounds, age_s=age_s, interval_s=2.0, **{**said, **other})  # type: ignore[arg-type]


async def test_looks_of_several_machines_are_one_incident_judged_when_all_came(tmp_path: Path) -> None:
    listener = Listener()
    async with stage(tmp_path / "s.db", listener) as on, on.agent("a") as a, on.agent("b") as b:
        await a.hello()
        await b.hello()
        assert await handed_over(a, *(look(0, 1, number=number, rounds=2) for number in (0, 1))) == ["", ""]
        (waiting,) = await on.store.latest("", 9)
        assert (waiting.state, waiting.job, waiting.began) == (IncidentState.RECORDED, "llama", NOON - 100)
        assert names(waiting.why, "recorded", "no server", "it stands")
        assert listener.snapshot is None, "b has not come back yet"
        assert await handed_over(b, *(look(2, 3, number=number, rounds=2, age_s=70.0) for number in (0, 1))) == ["", ""]
        (incident,) = await judged(on)
        snapshot = listener.snapshot
        assert snapshot is not None and listener.topology is not None
        assert [len(round_.traces) for round_ in snapshot.rounds] == [4, 4]
        assert not [trace for round_ in snapshot.rounds for trace in round_.traces if trace.missing]
        assert snapshot.interval_s == 2.0 and listener.topology.machines == {"a": (0, 1), "b": (2, 3)}
        asked, captures = await on.store.recall(incident.id)
        assert asked["rounds"] == 2 and set(asked["asked"]) == {"a", "b"} and len(captures) == 4


@pytest.mark.parametrize(("said_by_b", "known"), [(70.0, 70.0), (900.0, 300.0), (0.0, None)])
async def test_for_how_long_the_job_stood_then_is_as_each_machine_knew_it(
    tmp_path: Path, said_by_b: float, known: float | None
) -> None:
    listener = Listener()
    async with stage(tmp_path / "s.db", listener) as on, on.agent("a") as a, on.agent("b") as b:
        await a.hello()
        await b.hello()
        looks = (look(0, 1, number=number, rounds=2, age_s=400.0, stood_s=295.0 + 5 * number) for number in (0, 1))
        assert await handed_over(a, *looks) == ["", ""]
        assert await handed_over(b, look(2, 3, rounds=1, age_s=400.0, stood_s=said_by_b)) == [""]
        (incident,) = await judged(on)
        assert listener.snapshot is not None and listener.snapshot.job.stalled_s == known
        asked, _ = await on.store.recall(incident.id)
        assert asked["began"] - asked["stood_s"] == incident.began


async def test_what_is_sent_again_is_acknowledged_again_and_kept_once(tmp_path: Path) -> None:
    async with stage(tmp_path / "s.db") as on:
        async with on.agent("a") as a:
            await a.hello()
            assert await handed_over(a, look(0, 1), look(0, 1)) == ["", ""]
        async with on.agent("b") as b:
            await b.hello()
            assert await handed_over(b, look(2, 3)) == [""], "an id is one machine's own"
        (incident,) = await judged(on)
        async with on.agent("a") as a:
            await a.hello()
            assert await handed_over(a, look(0, 1)) == [""]
        assert len((await on.store.recall(incident.id))[1]) == 2
        assert (await on.store.latest("", 9))[0].state is IncidentState.JUDGED, "nothing new came"


async def test_a_standstill_whose_judging_ends_the_server_each_time_is_given_up(tmp_path: Path) -> None:
    async with stage(tmp_path / "s.db") as on, on.agent("a") as a:
        await a.hello()
        await handed_over(a, look(0, 1))
        (recorded,) = await on.store.latest("", 9)
        await on.store.remember(recorded.id, {"attempt": ATTEMPTS})
    async with stage(tmp_path / "s.db", settings=IMPATIENT) as on:
        async with asyncio.timeout(30):
            while await on.store.open():
                await asyncio.sleep(0.02)
        (incident,) = await on.store.latest("", 9)
        assert incident.state is IncidentState.FAILED and names(incident.note, "server ended", f"{ATTEMPTS} times")


async def test_a_standstill_may_be_judged_anew_as_often_as_looks_come(tmp_path: Path) -> None:
    async with stage(tmp_path / "s.db", settings=IMPATIENT) as on, on.agent("a") as a:
        await a.hello()
        for number in range(ATTEMPTS + 2):
            assert await handed_over(a, look(0, 1, number=number, rounds=ATTEMPTS + 2)) == [""]
            (incident,) = await judged(on)
            async with asyncio.timeout(30):  # the verdict is stored first
                while (await on.store.recall(incident.id))[0]["attempt"]:
                    await asyncio.sleep(0.02)


async def test_machines_that_do_not_come_are_missing_with_a_reason(tmp_path: Path) -> None:
    listener = Listener()
    hot = Finding("NVML", "hot", Impact.SLOWS, "GPU 1 is hot", "b")
    async with stage(tmp_path / "s.db", listener, IMPATIENT) as on, on.agent("a") as a, on.agent("b") as b:
        await a.hello(llama=[0, 1])
        await b.hello(llama=[2, 3])
        await b.say(health=pb.Health(findings=findings.pack([hot])))
        await on.until(lambda seen: any(machine.findings for machine in seen))
        await handed_over(a, look(0, 1))
        await judged(on)
    assert listener.snapshot is not None
    missing = {trace.rank: trace.missing for trace in listener.snapshot.rounds[0].traces if trace.missing}
    assert missing.keys() == {2, 3} and missing[Rank(2)] == missing[Rank(3)]
    assert missing[Rank(2)].reason is Reason.NO_EVIDENCE and names(missing[Rank(2)].message, "b", "nothing")
    assert listener.snapshot.findings == (hot,)


async def test_a_late_look_has_its_incident_judged_anew(tmp_path: Path) -> None:
    listener = Listener()
    async with stage(tmp_path / "s.db", listener, IMPATIENT) as on, on.agent("a") as a, on.agent("b") as b:
        await a.hello()
        await handed_over(a, look(0, 1))
        (first,) = await judged(on)
        await b.hello()
        assert await handed_over(b, look(2, 3, refused=7)) == [""]
        (again,) = await judged(on)
        assert again.id == first.id
    assert listener.snapshot is not None and len(listener.snapshot.rounds[0].traces) == 4
    assert any(names(note, "b", "no room", "7 more") for note in listener.snapshot.account.notes)


async def test_standstills_far_apart_or_of_one_machine_are_incidents_of_their_own(tmp_path: Path) -> None:
    async with stage(tmp_path / "s.db", settings=IMPATIENT) as on, on.agent("a") as a, on.agent("b") as b:
        await a.hello()
        await b.hello()
        await handed_over(a, look(0, 1, age_s=2000.0), look(0, 1, age_s=1950.0), look(0, 1, age_s=300.0))
        await handed_over(b, look(2, 3, age_s=1949.0), look(2, 3, age_s=310.0))
        incidents = await judged(on, 3)
        held = {one.began - NOON: len((await on.store.recall(one.id))[1]) for one in incidents}
        assert held == {-2000.0: 1, -1950.0: 2, -300.0: 2}


async def test_a_server_that_ends_before_it_judged_judges_when_it_starts_again(tmp_path: Path) -> None:
    async with stage(tmp_path / "s.db") as on, on.agent("a") as a:
        await a.hello()
        await handed_over(a, look(0, 1))
    listener = Listener()
    async with stage(tmp_path / "s.db", listener) as on, on.agent("b") as b:
        assert [one.state for one in await on.store.latest("", 9)] == [IncidentState.RECORDED], "not given up"
        await b.hello()
        await handed_over(b, look(2, 3))
        await judged(on)
    assert listener.snapshot is not None and len(listener.snapshot.rounds[0].traces) == 4


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"id": ""}, "spooled look"),
        ({"stall": "x" * 101}, "standstill"),
        ({"age_s": float("nan")}, "impossible"),
        ({"age_s": -1.0}, "impossible"),
        ({"stood_s": float("inf")}, "impossible"),
        ({"rounds": 0}, "look 0 of 0"),
        ({"interval_s": 1e9}, "impossible"),
        ({"job": pb.LocalJob(job="")}, "of a job"),
        ({"job": pb.LocalJob(job="j", ranks=[1 << 30])}, "impossible ranks"),
    ],
)
async def test_what_cannot_be_true_is_refused_and_not_asked_for_again(
    tmp_path: Path, change: dict[str, object], words: str
) -> None:
    nonsense = look(0, 1)
    nonsense.MergeFrom(pb.Spooled(**{key: value for key, value in change.items() if value}))  # type: ignore[arg-type]
    for key, value in change.items():
        if not value:
            nonsense.ClearField(key)  # type: ignore[arg-type]
    if isinstance(job := change.get("job"), pb.LocalJob):
        nonsense.job.CopyFrom(job)
    async with stage(tmp_path / "s.db") as on, on.agent("a") as a:
        await a.hello()
        (refused,) = await handed_over(a, nonsense)
        assert words in refused
        assert await on.store.latest("", 9) == ()


async def test_a_look_that_cannot_be_read_is_kept_and_said(tmp_path: Path) -> None:
    listener = Listener()
    broken = look(0, 1)
    broken.captured.capture.stacks[0].frames[0] = 9999
    async with stage(tmp_path / "s.db", listener, IMPATIENT) as on, on.agent("a") as a:
        await a.hello()
        assert await handed_over(a, broken) == [""]
        await judged(on)
    assert listener.snapshot is not None
    assert "frame 9999" in listener.snapshot.account.unreadable["a, look 0"]


async def test_without_a_store_nothing_is_acknowledged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing = iter((True,))
    fold = Spooled.fold

    async def played(*given: object) -> object:
        if next(failing, False):
            raise StoreFailed("the store failed: disk full")
        return await fold(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(Spooled, "fold", played)
    async with stage(tmp_path / "s.db") as on, on.agent("a") as a:
        await a.hello()
        await a.say(spooled=look(0, 1))
        assert await handed_over(a, look(2, 3, number=1, rounds=2)) == [""], "the first look is not answered"
        (incident,) = await on.store.latest("", 9)
        assert [capture.round for capture in (await on.store.recall(incident.id))[1]] == [1]


async def test_evidence_is_as_fresh_as_its_arrival_whatever_its_agent_thinks_of_the_date(tmp_path: Path) -> None:
    """After a restart a machine's date counts, and may be months off: nothing that has just come is pruned for that."""
    day = 86400.0
    async with stage(tmp_path / "s.db", settings=IMPATIENT) as on, on.agent("a") as a:
        await a.hello()
        assert await handed_over(a, look(0, 1, age_s=200 * day)) == [""]
        (incident,) = await judged(on)
        assert incident.began == NOON - 200 * day
        for later, kept in ((1.0, 1), (29 * day, 1), (31 * day, 0)):
            await Retention(on.store, IMPATIENT, lambda: NOON + later, lambda: ClockRun("b", later)).once()  # noqa: B023 - called at once
            assert len((await on.store.recall(incident.id))[1]) == kept


def evicting(snapshot: Snapshot, topology: Topology) -> Verdict:
    """A judge that would evict machine a, whatever it is shown."""
    return replace(verdict(snapshot, topology, Kind.MACHINE), evict=Eviction(("a",), 0.97))


async def test_recorded_looks_of_two_machines_at_one_rank_evict_nobody(tmp_path: Path) -> None:
    async with stage(tmp_path / "s.db", evicting, IMPATIENT) as on, on.agent("a") as a, on.agent("b") as b:
        await a.hello()
        await b.hello()
        assert await handed_over(a, look(0, 1)) == [""]
        assert await handed_over(b, look(1, 2, id="other")) == [""]
        (incident,) = await judged(on)
        assert incident.evict == ()
        kept = from_json(json.loads((await on.store.find(incident.id)).verdict))
        assert any(names(note, "contradict", "b claims rank 1", "a announced") for note in kept.evidence.notes)


async def test_recorded_looks_at_jobs_of_one_name_and_two_owners_are_two_incidents(tmp_path: Path) -> None:
    def of(uid: int, rank: int) -> pb.Spooled:
        said = look(rank, id=f"{uid}")
        said.job.owner.CopyFrom(pb.Owner(kind="user", id=str(uid), uid=uid))
        return said

    async with stage(tmp_path / "s.db", settings=IMPATIENT) as on, on.agent("a") as a, on.agent("b") as b:
        await a.hello()
        await b.hello()
        assert await handed_over(a, of(1000, 0)) == [""]
        assert await handed_over(b, of(1001, 1)) == [""]
        assert len(await judged(on, 2)) == 2
