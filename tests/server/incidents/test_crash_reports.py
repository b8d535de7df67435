"""Crashes that agents tell: one incident a job however many machines and ranks fell, kept before it is acknowledged, judged once."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.findings import Finding, Impact
from hangdog_models.incident import CRASHED_WHY, SUSPECTED_WHY, Incident, IncidentState
from hangdog_models.ranks import Rank
from hangdog_models.snapshot import Job, Round, Snapshot
from hangdog_models.topology import Topology
from hangdog_models.verdict import Kind, from_json
from hangdog_proto.codec import findings
from hangdog_proto.codec.piece_cache import PieceCache
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_server.incidents import decode
from support.servers.cast import NOON, PATIENT, Listener, stage, trainer, verdict
from support.servers.spooled import handed_over, judged
from support.worded import names

#: One that waits for no other machine.
AT_ONCE = replace(PATIENT, crash_s=0.2)
#: One that waits for longer than any test.
LATER = replace(PATIENT, crash_s=300.0)
LOST = Finding("log", "connection lost", Impact.VICTIM, "the other end went away")
ERROR = Finding("log", "ValueError", Impact.PROGRAM, "the program ended with ValueError: x")


def crash(
    ranks: dict[int, tuple[int, float]], *said: tuple[int, Finding], age_s: float = 8.0, ran_s: float = 60.0
) -> pb.Spooled:
    """A crash of a job of 4: of each rank its status and seconds after the first end, which was `age_s` ago."""
    exits = [pb.Exit(rank=rank, status=status, after_s=after, ran_s=ran_s) for rank, (status, after) in ranks.items()]
    told = findings.pack([replace(one, rank=Rank(rank)) for rank, one in said])
    captured = pb.Captured(last=True, capture=pb.Capture(exits=exits, findings=told))
    job = pb.LocalJob(job="llama", ranks=sorted(ranks), world_size=4)
    name = f"c{age_s:g}-{min(ranks)}"
    return pb.Spooled(
        id=name,
        stall=name,
        job=job,
        captured=captured,
        rounds=1,
        age_s=age_s,
        why="rank 3 ended",
        crash=True,
        stood_s=7.0,
    )


#: Rank 3 of machine b raises an error; 0.4 s later the ranks of a lose their connections to it.
OF_B = crash({2: (-15, 1.0), 3: (1, 0.0)}, (3, ERROR), age_s=8.0)
OF_A = crash({0: (1, 0.0), 1: (1, 0.1)}, (0, LOST), (1, LOST), age_s=7.6)


async def test_a_crash_of_two_machines_is_one_incident_that_names_the_first_to_fail(tmp_path: Path) -> None:
    async with (
        stage(tmp_path / "s.db", diagnose, settings=LATER) as on, on.agent("a") as a, on.agent("b") as b
    ):  # fmt: skip
        await a.hello()
        await b.hello()
        assert await handed_over(a, OF_A) == [""]
        (waiting,) = await on.store.latest("", 9)
        assert waiting.state is IncidentState.RECORDED and waiting.why == f"{CRASHED_WHY} rank 3 ended"
        assert await handed_over(b, OF_B) == [""]
        (incident,) = await judged(on)
        found = from_json(json.loads((await on.store.find(incident.id)).verdict))
        assert found.kind is Kind.SOFTWARE and not found.evict.machines
        assert found.culprit is not None and (found.culprit.ranks, found.culprit.machines) == ((3,), ("b",))
        assert found.because[0].code == "program-error" and names(found.because[0].text, "0.4 s", "4 ranks")


async def test_what_is_judged_is_how_the_ranks_of_each_machine_ended_by_the_servers_clock(tmp_path: Path) -> None:
    listener = Listener()
    async with stage(tmp_path / "s.db", listener, settings=AT_ONCE) as on, on.agent("b") as b:
        await b.hello()
        lies = crash({2: (-15, 1.0), 3: (1, 0.0)}, (0, ERROR), (3, ERROR))
        lies.captured.capture.exits.extend(
            [pb.Exit(rank=0, status=1), pb.Exit(rank=2, status=0), pb.Exit(rank=3, status=99999)]
        )
        lies.captured.capture.exits[0].at_s = 5.0
        assert await handed_over(b, lies) == [""]
        await judged(on)
        assert listener.snapshot is not None
        assert [(one.rank, one.status, one.at_s) for one in listener.snapshot.exits] == [
            (2, -15, NOON - 7), (3, 1, NOON - 8)
        ]  # fmt: skip
        assert [one.rank for one in listener.snapshot.findings] == [None, 3], "nobody has other machines' ranks accused"
        assert listener.snapshot.job.stalled_s is None


async def test_a_crash_without_an_end_is_refused(tmp_path: Path) -> None:
    async with stage(tmp_path / "s.db") as on, on.agent("a") as a:
        await a.hello()
        empty = crash({0: (1, 0.0)})
        del empty.captured.capture.exits[:]
        foreign = crash({0: (1, 0.0)}, age_s=9.0)
        foreign.job.ranks[:] = [7]
        for one, refused in zip((empty, foreign), await handed_over(a, empty, foreign), strict=True):
            assert names(refused, "crash", "no rank"), one
        assert not await on.store.latest("", 9)


async def test_a_crash_that_was_kept_when_the_server_ended_is_judged_by_the_next_one(tmp_path: Path) -> None:
    async with stage(tmp_path / "s.db", diagnose, settings=LATER) as on, on.agent("b") as b:
        await b.hello()
        assert await handed_over(b, OF_B) == [""]
        assert [one.state for one in await on.store.latest("", 9)] == [IncidentState.RECORDED]
    async with stage(tmp_path / "s.db", diagnose, settings=AT_ONCE) as on:
        (incident,) = await judged(on)
        assert incident.kind is not None and incident.kind == Kind.SOFTWARE


@pytest.mark.parametrize(
    ("began", "kind", "went_on_s", "joins"),
    [
        (NOON - 30, Kind.MACHINE, 0.0, True),
        (NOON - 30, None, 0.0, True),  # it is being captured
        (NOON - 300, Kind.MACHINE, 0.0, False),  # of a start before this one
        (NOON - 30, Kind.NONE, 0.0, False),
        (NOON - 30, Kind.MACHINE, 9.0, False),
    ],
)
async def test_a_crash_of_a_job_that_stands_still_joins_its_incident(
    tmp_path: Path, began: float, kind: Kind | None, went_on_s: float, joins: bool
) -> None:
    async with stage(tmp_path / "s.db", diagnose, settings=AT_ONCE) as on, on.agent("b") as b:
        await b.hello()
        await on.store.begin(Incident("stall", "llama", began, f"{SUSPECTED_WHY} it stands"), {})
        if kind is not None:
            await on.store.judged(
                "stall", verdict(Snapshot(Job("llama"), (Round(0, (trainer(0),)),)), Topology(4, {}, {}), kind), NOON
            )
        if went_on_s:
            await on.store.went_on("stall", went_on_s)
        assert await handed_over(b, OF_B, OF_B) == ["", ""]
        incidents = await on.store.latest("llama", 9)
        assert len(incidents) == (1 if joins else 2)
        stall = await on.store.find("stall")
        assert stall.note == (f"{CRASHED_WHY} rank 3 ended" if joins else "")
        assert stall.kind == (kind or "")


async def test_a_second_crash_of_a_machine_is_another_incident(tmp_path: Path) -> None:
    async with stage(tmp_path / "s.db", diagnose, settings=AT_ONCE) as on, on.agent("b") as b:
        await b.hello()
        assert await handed_over(b, OF_B) == [""]
        await judged(on)
        assert await handed_over(b, crash({2: (0, 1.0), 3: (1, 0.0)}, age_s=2.0)) == [""]
        await judged(on, 2)


async def test_a_server_says_that_it_takes_crashes(tmp_path: Path) -> None:
    async with stage(tmp_path / "s.db") as on, on.agent("a") as a:
        assert (await a.hello()).crashes


def test_an_end_is_no_part_of_a_look_that_was_ordered() -> None:
    captured = pb.Captured(last=True, capture=pb.Capture(exits=[pb.Exit(rank=0, status=1, at_s=5.0)]))
    (answer,) = decode.looks("a", captured, PieceCache())
    assert not answer.exits
