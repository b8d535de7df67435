"""NCCL RAS counts launches: late ranks are named, one operation of jitter is nothing, and silence is evidence."""

from dataclasses import replace

from msgspec import structs

from hangdog_models.collectives import RankCounters, RasCommunicator, RasMember, RasReport, RasStatus
from hangdog_models.diagnosis.hypotheses.explanations import unseen
from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.ranks import Rank
from hangdog_models.snapshot import Snapshot
from hangdog_models.stack import Frame, ProcessTrace
from hangdog_models.verdict import Act, Kind, Verdict
from support.cases.reasons import codes
from support.cases.stories import job, look, snapshot, trace, twice

EIGHT = job(dp=8, per_machine=2)


def report(launched: dict[int, int], usual: int = 6650, **status: RasStatus) -> RasReport:
    members = tuple(
        RasMember(number, launched={"": launched.get(number, usual)}, host=f"node-{number // 2}", pid=1000 + number)
        for number in range(8)
    )
    return RasReport((RasCommunicator("27a0", 8, members),))


def judged(*reports: RasReport, story: Snapshot | None = None) -> Verdict:
    return diagnose(replace(story or snapshot(), ras=reports), EIGHT)


def test_one_operation_of_jitter_is_nothing() -> None:
    verdict = judged(report({1: 6649, 6: 6649}))
    assert (verdict.kind, verdict.suspects) == (Kind.UNDETERMINED, ())


def test_the_same_lag_in_two_reports_is_no_jitter() -> None:
    same = report({5: 6649})
    assert [suspect.ranks for suspect in judged(same, same).suspects] == [(5,)]


def test_a_rank_far_behind_is_late() -> None:
    assert judged(report({5: 6600})).suspects[0].ranks == (5,)


def test_it_tells_stacks_that_name_nobody_whom_they_wait_for() -> None:
    story = snapshot(look({"0-4,6-7": "item", "5": "user"}), look({"0-4,6-7": "item", "5": "user"}))
    verdict = judged(report({5: 6600}), story=story)
    assert (verdict.kind, verdict.suspects[0].ranks, verdict.evict.machines) == (Kind.MACHINE, (5,), ())
    assert "waited-for" in codes(verdict.suspects[0].because)


def silent(*numbers: int) -> RasReport:
    whole = report({})
    members = tuple(
        replace(member, launched={}, status=RasStatus.UNRESPONSIVE) if member.number in numbers else member
        for member in whole.communicators[0].members
    )
    return RasReport((replace(whole.communicators[0], members=members),))


def test_the_one_that_does_not_answer_is_named() -> None:
    """A program that ended does not answer either, and its machine is sound."""
    verdict = judged(silent(5))
    assert (verdict.kind, verdict.suspects[0].ranks, verdict.evict.machines) == (Kind.MACHINE, (5,), ())
    assert verdict.because[0].code == "silent-to-ras" and verdict.because[0].text.startswith("rank 5 ")
    assert verdict.next[0].do is Act.COLLECT and "rank 5" in verdict.next[0].why


def test_a_machine_none_of_whose_ranks_answers_is_evicted() -> None:
    assert judged(silent(4, 5)).evict.machines == ("node-2",)


def test_the_one_that_does_not_answer_and_that_all_wait_for_is_evicted() -> None:
    verdict = judged(silent(5), story=snapshot(look({"0-4,6-7": "metrics"})))
    assert (verdict.suspects[0].ranks, verdict.evict.machines) == ((5,), ("node-2",))


def test_members_of_a_small_communicator_are_found_by_their_process() -> None:
    """Number 1 in the communicator of ranks 4-7 is rank 5."""
    members = tuple(
        RasMember(at, host=f"node-{2 + at // 2}", pid=1004 + at, launched={"": 90 - 5 * (at == 1)}) for at in range(4)
    )
    story = snapshot(look({"0-7": "item"}), look({"0-7": "item"}))
    pairs = job(tp=4, dp=2, per_machine=2)
    verdict = diagnose(replace(story, ras=(RasReport((RasCommunicator("9e17", 4, members),)),)), pairs)
    assert any(group.dim == "tp" and group.ranks == (4, 5, 6, 7) for group in verdict.groups) or not verdict.groups
    assert verdict.evict.machines == ()  # its stack says that it waits, too


def test_equal_counts_acquit_nobody_and_convict_nobody() -> None:
    assert judged(report({})).suspects == ()


def test_a_report_that_counts_more_ranks_than_the_job_has_leaves_odds_that_are_some() -> None:
    """A communicator of another job, or of machines that the launcher does not know: no odds are below zero."""
    assert unseen(5, 2).odds == unseen(2, 2).odds > 0


def test_four_different_counts_accuse_nobody() -> None:
    """No member is where most are: who is late for what few have launched is late with the rest."""
    verdict = judged(report({0: 6600, 1: 6600, 2: 6610, 3: 6610, 4: 6630, 5: 6630}))
    assert (verdict.suspects, verdict.evict.machines) == ((), ())


def test_the_communicator_of_all_ranks_tells_who_the_members_of_the_others_are() -> None:
    """Number 1 of the communicator of ranks 4-7 is rank 5: so says the host, process and device of the member."""
    whole = report({}).communicators[0]
    small = tuple(
        replace(whole.members[4 + at], number=at, launched={"": 90 - 30 * (at == 1)}, device=None) for at in range(4)
    )
    verdict = judged(RasReport((whole, RasCommunicator("9e17", 4, small))))
    assert verdict.suspects[0].ranks == (5,)


def still(story: dict[str, str], looks: int = 2) -> Snapshot:
    return snapshot(*[look(story)] * looks)


NEXT_BATCH = ["<module> train.py", "next_batch train.py"]


def copies(rank: int, call: str = "cudaStreamSynchronize") -> ProcessTrace:
    """A rank that waits for its device where it takes the next batch."""
    found = trace(rank, NEXT_BATCH)
    waits = (*found.threads[0].frames, Frame(call, "", module="libcudart.so.13"))
    return structs.replace(found, threads=(structs.replace(found.threads[0], frames=waits),))


#: All others wait for their devices at the end of the step.
HELD_UP = [*look({"0,2-7": "item"}), copies(1)]


def test_who_waits_for_its_device_where_its_peers_are_past_is_the_first_suspect() -> None:
    """A real device that hung on rank 1 of 4 (NCCL 2.28.9): one launch behind, and all stood still."""
    verdict = judged(report({1: 6649}), story=twice(HELD_UP))
    assert (verdict.kind, verdict.suspects[0].ranks) == (Kind.MACHINE, (1,))
    assert verdict.evict.machines == ()
    assert any(step.do is Act.TEST and step.machines == ("node-0",) for step in verdict.next)


def test_records_of_its_own_tell_more_than_its_launches() -> None:
    """With flight records of the same hang its device is seen to be behind, and its machine is evicted."""
    records = tuple(
        RankCounters(Rank(rank), {"0": last}, {"0": 89}, (), {"0": tuple(map(Rank, range(8)))}, {})
        for rank, last in enumerate((90, 89, *[90] * 6))
    )
    story = replace(twice(HELD_UP), counters=records)
    assert judged(report({1: 6649}), story=story).suspects[0].ranks == (1,)
    verdict = judged(report({1: 6649}), story=replace(story, job=replace(story.job, stalled_s=60.0)))
    assert (verdict.suspects[0].ranks, verdict.evict.machines) == ((1,), ("node-0",))


def test_launches_alone_do_not_tell_it() -> None:
    """Equal counts, or one look at a job that moves: then one launch more is nothing."""
    assert judged(report({}), story=twice(HELD_UP)).culprit is None
    assert judged(report({1: 6649}), story=snapshot(HELD_UP)).culprit is None
    moving = [trace(3, "item", shift=5) if one.rank == 3 else one for one in HELD_UP]
    assert judged(report({1: 6649}), story=snapshot(HELD_UP, moving)).culprit is None


def test_who_waits_where_its_peers_wait_is_held_up_by_what_holds_them() -> None:
    assert judged(report({1: 6649}), story=still({"0-7": "item"})).culprit is None


def test_room_in_a_launch_queue_differs_between_sound_ranks() -> None:
    story = twice([*look({"0,2-7": "item"}), copies(1, "cudaMemcpyAsync")])
    assert judged(report({1: 6649}), story=story).culprit is None


def test_a_host_that_runs_in_c_waits_for_its_device_as_its_peers_do() -> None:
    """Without native frames a wait for a device shows as running without the interpreter's lock."""
    running = trace(1, NEXT_BATCH, state="R", active=True)
    of_devices = judged(report({1: 6649}), story=twice([*look({"0,2-7": "item"}), running]))
    assert (of_devices.suspects[0].ranks, of_devices.evict.machines) == ((1,), ())
    assert of_devices.because[0].code == "launches-behind"
    in_a_call = judged(report({1: 6649}), story=twice([*look({"0,2-7": "metrics"}), running]))
    assert {"launches-behind", "own-device-behind"}.isdisjoint(codes(in_a_call.because))


def test_a_host_that_gets_on_does_not_wait_for_its_device() -> None:
    lines = [trace(1, NEXT_BATCH, state="R", active=True, shift=shift) for shift in (0, 4)]
    story = snapshot(*([*look({"0,2-7": "item"}), one] for one in lines))
    same = report({1: 6649})
    assert {"launches-behind", "own-device-behind"}.isdisjoint(codes(judged(same, same, story=story).because))


def test_two_that_are_behind_share_what_holds_them_up() -> None:
    story = twice([*look({"0,3-7": "item"}), copies(1), copies(2)])
    assert judged(report({1: 6649, 2: 6649}), story=story).culprit is None


def test_who_logs_for_all_waits_where_nobody_else_comes_by() -> None:
    story = twice([*look({"1-7": "item"}), copies(0)])
    assert judged(report({0: 6649}), story=story).culprit is None


def test_a_device_may_wait_in_another_group_of_its_rank() -> None:
    """Rank 1 shares a tensor group with rank 0: a message of that group may be what it lacks."""
    pairs = job(tp=2, dp=4, per_machine=2)
    verdict = diagnose(replace(twice(HELD_UP), ras=(report({1: 6649}),)), pairs)
    assert verdict.culprit is None


def test_a_rank_outside_that_is_one_behind_is_awaited_once_nobody_moves() -> None:
    """One operation is jitter in a job that moves, and in one that stands still it is what the others wait for."""
    story = {"0-4,6-7": "item", "5": "user"}
    (suspect, *_) = judged(report({5: 6649}), story=still(story)).suspects
    assert suspect.ranks == (5,) and "waited-for" in codes(suspect.because)


def test_of_several_outside_one_launch_names_none() -> None:
    """An NVLink that hung in a simulation: of many that waited outside some had launched one more, and code was blamed."""
    story = {"0-4,6": "item", "5,7": "user"}
    suspects = judged(report({5: 6649}), story=still(story)).suspects
    assert not any("waited-for" in codes(one.because) for one in suspects)


def test_who_is_far_behind_is_named_where_all_stand_at_a_place_that_tells_nothing() -> None:
    """Equal stacks say nothing, so they take nothing from the report. While a job may move, launches differ."""
    story = still({"0-7": "user"}, 1)
    stated = replace(story, job=replace(story.job, stalled_s=1200.0))
    verdict = judged(report({5: 6600}), story=stated)
    assert verdict.culprit is not None
    assert (verdict.culprit.ranks, verdict.evict.machines) == ((5,), ())
    assert judged(report({5: 6600}), story=story).culprit is None
