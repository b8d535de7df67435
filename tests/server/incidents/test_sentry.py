"""From pulses to an incident that nobody asked for: looked at closer first, asked after once, and again while it is open."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import pytest

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.incident import SUSPECTED_WHY
from hangdog_models.owner import UNKNOWN, Owner, OwnerKind
from hangdog_models.ranks import Rank
from hangdog_models.stall_timeouts import OVER_S, Doing, Sign
from hangdog_models.verdict import Kind
from hangdog_proto.codec import stall_signs
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_server.cluster.stalls import AGAIN_S, SELDOM_S, StallTracker
from hangdog_server.protocol.jobs import AnnouncedJob
from support.servers.cast import Agent, Listener, Stage, stage, trainer
from support.worded import names

STUCK = Sign(Doing.STILL, 6.0, overdue=True, place="all_reduce", waits=True)
RUNNING = {"a": AnnouncedJob("llama", (Rank(0), Rank(1))), "b": AnnouncedJob("llama", (Rank(2), Rank(3)))}


def waits(seconds: float) -> Sign:
    return Sign(Doing.STILL, seconds, waits=True)


def said(*ranks: int, sign: Sign = STUCK) -> Mapping[str, Mapping[Rank, Sign]]:
    return {"llama": {Rank(rank): sign for rank in ranks}}


def test_only_all_machines_together_make_a_suspicion() -> None:
    vigil = StallTracker()
    vigil.note("a", said(0, 1), 10.0)
    assert vigil.doubted() == ("llama",)
    assert vigil.suspicion("llama", RUNNING, 11.0) is None
    vigil.note("b", said(2, 3), 11.0)
    found = vigil.suspicion("llama", RUNNING, 12.0)
    assert found is not None and found.seconds == 8.0  # the ages go on while nobody says anything new
    vigil.note("b", {}, 13.0)
    assert vigil.suspicion("llama", RUNNING, 13.0) is None


def test_a_phase_that_ended_is_borne_for_longer_when_the_job_has_started_again() -> None:
    vigil, start = StallTracker(), 100_000.0
    vigil.seen(["llama"], 0.0)
    vigil.seen(["llama"], start)

    def suspected(at: float, seconds: float) -> bool:
        vigil.note(
            "a", {"llama": {Rank(0): Sign(Doing.WORKING, seconds, place="evaluate"), Rank(1): waits(seconds)}}, at
        )
        vigil.note("b", {"llama": {Rank(2): waits(seconds), Rank(3): waits(seconds)}}, at)
        assert vigil.learns("llama") and not vigil.doubted(), "nobody is overdue"
        return vigil.suspicion("llama", RUNNING, at) is not None

    assert suspected(start, 100.0), "nobody has seen it evaluate yet, in a whole day"
    vigil.note("a", {}, start + 1)
    vigil.note("b", {}, start + 1)
    assert vigil.learns("llama")
    assert vigil.suspicion("llama", RUNNING, start + 1) is None
    assert not vigil.learns("llama")
    vigil.seen([], start + 2)  # it has ended, and begins again
    vigil.seen(["llama"], start + 3)
    assert not suspected(start + 400, 299.0)
    assert suspected(start + 402, 301.0)


def test_a_machine_that_is_gone_says_nothing_for_or_against() -> None:
    vigil = StallTracker()
    vigil.note("a", said(0, 1), 10.0)
    vigil.note("b", said(2, 3, sign=Sign(Doing.WORKING, 1.0)), 10.0)
    assert vigil.suspicion("llama", RUNNING, 11.0) is None
    vigil.forget("b")
    assert vigil.suspicion("llama", {"a": RUNNING["a"]}, 11.0) is not None


def test_what_a_machine_said_of_ranks_that_are_another_s_now_does_not_count() -> None:
    """It announced them before the job did, said that they stand still, and took its announcement back."""
    vigil = StallTracker()
    vigil.note("liar", said(0, 1, 2, 3), 10.0)
    assert vigil.suspicion("llama", RUNNING, 11.0) is None, "the ranks go on, by those whose they are"
    vigil.note("a", said(0, 1, 3), 11.0)
    assert vigil.suspicion("llama", RUNNING, 12.0) is None
    vigil.note("b", said(2, 3), 11.0)
    found = vigil.suspicion("llama", RUNNING, 12.0)
    assert found is not None and names(found.why, "ranks 0-3", "7 s")


def test_one_standstill_is_asked_after_once_when_the_verdict_decides() -> None:
    vigil = StallTracker()
    vigil.note("a", said(0, 1), 10.0)
    here = {"a": RUNNING["a"]}
    assert vigil.due("llama", vigil.suspicion("llama", here, 11.0), 11.0)
    vigil.asked("llama", Kind.MACHINE, 16.0)
    assert not vigil.due("llama", vigil.suspicion("llama", here, 4000.0), 4000.0)
    vigil.note("a", {}, 4001.0)
    assert not vigil.due("llama", None, 4001.0)
    vigil.note("a", said(0, 1), 4002.0)  # moved for a moment: still the same matter
    assert not vigil.due("llama", vigil.suspicion("llama", here, 4002.0), 4002.0)
    assert not vigil.due("llama", None, 4002.0 + OVER_S)
    assert vigil.due("llama", vigil.suspicion("llama", here, 5000.0), 5000.0)


def test_a_job_that_was_killed_while_it_hung_is_not_remembered_for_ever() -> None:
    vigil, here = StallTracker(), {"a": RUNNING["a"]}
    vigil.note("a", said(0, 1), 10.0)
    assert vigil.due("llama", vigil.suspicion("llama", here, 11.0), 11.0)
    vigil.asked("llama", Kind.MACHINE, 16.0)
    for at, again in (
        (17.0 + SELDOM_S / 2, False),
        (17.0 + 2 * SELDOM_S, True),
    ):  # another job hangs, then one of that name
        vigil.note("a", {"other": said(0, 1)["llama"]}, at)
        assert vigil.due(f"other {at}", vigil.suspicion("other", here, at), at)
        vigil.note("a", said(0, 1), at)
        assert vigil.due("llama", vigil.suspicion("llama", here, at), at) is again


@pytest.mark.parametrize(
    ("verdict", "confidence"),
    [
        (Kind.UNDETERMINED, 0.1),
        (Kind.NONE, 0.9),
        (Kind.SLOW, 0.9),
        (Kind.GROUP, 0.95),
        (None, 1.0),
        (Kind.SOFTWARE, 0.48),
        (Kind.MACHINE, 0.3),
    ],
)
def test_an_open_case_is_looked_into_again_and_less_and_less_often(verdict: Kind | None, confidence: float) -> None:
    vigil = StallTracker()
    vigil.note("a", said(0, 1), 0.0)
    asked, now = [], 0.0
    while now < 100.0:
        if vigil.due("llama", vigil.suspicion("llama", {"a": RUNNING["a"]}, now), now):
            asked.append(now)
            vigil.asked("llama", verdict, now, confidence=confidence)
        now += 1.0
    assert asked == [0.0, AGAIN_S, 3 * AGAIN_S, 7 * AGAIN_S]
    for _ in range(1100):  # a week
        vigil.asked("llama", verdict, now, confidence=confidence)
    assert not vigil.due("llama", vigil.suspicion("llama", {"a": RUNNING["a"]}, now), now + SELDOM_S - 1)
    assert vigil.due("llama", vigil.suspicion("llama", {"a": RUNNING["a"]}, now), now + SELDOM_S)


def test_a_slow_machine_that_is_to_be_evicted_settles_the_matter() -> None:
    vigil = StallTracker()
    vigil.note("a", said(0, 1), 0.0)
    here = {"a": RUNNING["a"]}
    assert vigil.due("llama", vigil.suspicion("llama", here, 0.0), 0.0)
    vigil.asked("llama", Kind.SLOW, 0.0, evicts=True)
    assert not vigil.due("llama", vigil.suspicion("llama", here, 4000.0), 4000.0)


def test_pulses_survive_the_wire_and_nonsense_does_not() -> None:
    mine = Owner(OwnerKind.USER, "1000", 1000)
    assert stall_signs.unpack(stall_signs.pack(said(0, 7))) == {("llama", UNKNOWN): said(0, 7)["llama"]}
    assert stall_signs.unpack(stall_signs.pack(said(0), {"llama": ("llama", mine)})) == {
        ("llama", mine): said(0)["llama"]
    }
    assert stall_signs.unpack(
        pb.StallReport(jobs=[pb.JobSigns(job="j", signs=[pb.Sign(rank=1, doing="dancing")])])
    ) == {("j", UNKNOWN): {Rank(1): Sign(Doing.WORKING, 0.0)}}
    for told, taken in ((2.5, 2.5), (float("inf"), 4.0), (float("nan"), 1.0), (-3.0, 1.0), (0.0, 1.0)):
        pulse = pb.StallReport(jobs=[pb.JobSigns(job="j", signs=[pb.Sign(rank=1, doing="working", crowding=told)])])
        assert stall_signs.unpack(pulse)["j", UNKNOWN][Rank(1)].crowding == taken
    for nonsense in (pb.Sign(rank=1 << 31), pb.Sign(seconds=float("nan")), pb.Sign(seconds=-1.0)):
        nonsense.doing = "still"
        with pytest.raises(UnreadableEvidence):
            stall_signs.unpack(pb.StallReport(jobs=[pb.JobSigns(job="j", signs=[nonsense])]))
    with pytest.raises(UnreadableEvidence):
        stall_signs.unpack(
            pb.StallReport(jobs=[pb.JobSigns(job="j", signs=[pb.Sign()] * (stall_signs.MOST_RANKS + 1))])
        )


def test_ranks_that_move_survive_the_wire_and_too_many_do_not() -> None:
    report = stall_signs.pack({}, moving={"llama": [Rank(3), Rank(1)]})
    assert stall_signs.unpack_moving(report) == {("llama", UNKNOWN): frozenset({Rank(1), Rank(3)})}
    assert stall_signs.unpack(report) == {("llama", UNKNOWN): {}}, "no sign of a standstill"
    crowd = pb.StallReport(jobs=[pb.JobSigns(job="j", moving=range(stall_signs.MOST_RANKS + 1))])
    with pytest.raises(UnreadableEvidence):
        stall_signs.unpack_moving(crowd)


async def heard(agent: Agent, body: Literal["capture", "recheck"]) -> pb.ToAgent:
    async with asyncio.timeout(30):
        while True:
            message = await agent.next()
            if message.HasField(body):
                return message


async def incident(on: Stage) -> str:
    """Why the only incident there is was opened, once it is judged."""
    async with asyncio.timeout(30):
        while not (found := await on.store.latest("", 9)) or not found[0].kind:
            await asyncio.sleep(0.02)
    assert len(found) == 1
    return found[0].why


async def test_a_job_that_stands_still_is_asked_after_by_itself(tmp_path: Path) -> None:
    listener = Listener()
    async with stage(tmp_path / "s.db", listener) as on, on.agent("a") as a, on.agent("b") as b:
        await a.hello(llama=[0, 1])
        await b.hello(llama=[2, 3])
        await on.knows("a", "b")
        await a.say(stall_report=stall_signs.pack(said(0, 1)))
        doubt = (await heard(b, "recheck")).recheck  # the others are looked at closer before anybody is asked
        assert doubt.job == "llama" and doubt.seconds > 0
        assert not await on.store.latest("", 9)
        await b.say(stall_report=stall_signs.pack(said(2, 3)))
        for agent, ranks in ((a, (0, 1)), (b, (2, 3))):
            order = (await heard(agent, "capture")).capture
            await agent.answer(order, *(trainer(rank) for rank in ranks))
        why = await incident(on)
        assert why.startswith(SUSPECTED_WHY) and names(why, "ranks 0-3", "stand still")
        assert listener.snapshot is not None and listener.snapshot.job.id == "llama"
        assert (listener.snapshot.job.stalled_s or 0.0) >= STUCK.seconds, (
            "for how long it stands goes with what is judged"
        )


async def test_a_bug_in_one_thought_does_not_end_the_watch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failing, doubted = iter((True,)), StallTracker.doubted

    def played(self: StallTracker) -> tuple[str, ...]:
        if next(failing, False):
            raise ValueError("a bug")
        return doubted(self)

    monkeypatch.setattr(StallTracker, "doubted", played)
    async with stage(tmp_path / "s.db") as on, on.agent("a") as a:
        await a.hello(llama=[0, 1])
        await on.knows("a")
        await a.say(stall_report=stall_signs.pack(said(0, 1)))
        await heard(a, "capture")
    assert any(names(record.message, "stall watch", "failed") for record in caplog.records)
