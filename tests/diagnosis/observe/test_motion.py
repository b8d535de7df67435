"""Incidents in a few lines: what it tells that ranks move between the looks, or run."""

from dataclasses import replace

import pytest
from msgspec import structs

from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.stack import Frame, ProcessTrace
from hangdog_models.verdict import Kind, Verdict
from support.cases.reasons import codes
from support.cases.stories import first, job, look, snapshot, trace

CUBE = job(tp=2, dp=2, pp=2)


def test_a_job_that_moves_is_sound() -> None:
    before, after = look({"0-3": "gather", "4-7": "scatter"}), look({"0-3": "scatter", "4-7": "gather"})
    assert diagnose(snapshot(before, after), job(dp=8)).kind is Kind.NONE


def test_one_that_leaves_the_place_of_all_while_another_comes_there_shows_progress() -> None:
    """The frames of most name no wait. Nobody leaves such a place while the job hangs, and a torn read is one of one rank."""
    computes, works = (
        ["<module> train.py", "fit a.py", "on_batch_end b.py"],
        ["<module> train.py", "fit a.py", "forward b.py"],
    )
    at = [trace(rank, computes, active=True) for rank in range(2, 32)]
    before = [trace(0, computes, active=True), trace(1, works, active=True), *at]
    after = [trace(0, works, active=True), trace(1, computes, active=True), *at]
    lone = [trace(0, works, active=True), trace(1, works, active=True), *at]
    assert not diagnose(snapshot(before, after), job(dp=32)).suspects
    assert diagnose(snapshot(before, lone), job(dp=32)).suspects, "one torn read and one that stands"


def test_a_sleeper_whose_helpers_use_no_more_than_those_of_waiters_does_not_work() -> None:
    def at(cpu_s: float) -> list[ProcessTrace]:
        traces = [
            *(trace(rank, "item", state="S") for rank in range(31)),
            trace(31, "uninterruptible sleep", state="D"),
        ]
        traces[31] = trace(31, "uninterruptible sleep", state="D", wchan="cl_sync_io_wait")
        return [structs.replace(one, state=structs.replace(one.state, cpu_s=cpu_s)) for one in traces if one.state]

    looks = [at(100.0 + 0.2 * number) for number in range(3)]
    verdict = diagnose(snapshot(*looks), job(dp=32))
    assert (verdict.kind, first(verdict)) == (Kind.MACHINE, (31,))
    works = [[*one[:31], at(100.0 + 0.8 * number)[31]] for number, one in enumerate(looks)]
    assert diagnose(snapshot(*works), job(dp=32)).kind is not Kind.MACHINE


def test_a_job_that_moved_in_the_last_look_is_judged_though_a_long_standstill_was_stated() -> None:
    before, after = look({"0-3": "gather", "4-7": "scatter"}), look({"0-3": "scatter", "4-6": "gather", "7": "user"})
    story = snapshot(before, after)
    diagnose(replace(story, job=replace(story.job, stalled_s=600.0)), job(dp=8))


def test_a_job_that_begins_to_hang_is_judged_by_its_last_looks() -> None:
    before = look({"0-7": "gather"})
    after = look({"0-4,6-7": "metrics", "5": "disk"})
    verdict = diagnose(snapshot(before, after, after, after, after), CUBE)
    assert (verdict.kind, verdict.evict.machines) == (Kind.MACHINE, ("node-2",))


def test_a_job_that_moved_a_moment_ago_is_looked_at_again() -> None:
    """A healthy rank on an overloaded machine stood in one forward pass for two looks, and went on."""
    before = look({"0-7": "gather"})
    after = look({"0-4,6-7": "metrics", "5": "disk"})
    verdict = diagnose(snapshot(before, after, after), CUBE)
    assert (verdict.kind, verdict.evict.machines) == (Kind.UNDETERMINED, ())
    assert "moved-on-before" in codes(verdict.because)
    assert (first(verdict), verdict.suspects[0].machines) == ((5,), ("node-2",))


def test_one_that_reads_a_file_at_the_last_look_only_is_no_fault_of_storage() -> None:
    waiting = [trace(rank, "metrics") for rank in range(7)]
    looks = [
        [*waiting, trace(7, "user", active=True)],
        [*waiting, trace(7, "other", active=True)],
        [*waiting, trace(7, ["<module> train.py", "step train.py", "load cache.py"], state="D")],
    ]
    verdict = diagnose(snapshot(*looks), CUBE)
    assert verdict.kind is not Kind.DEPENDENCY and not verdict.evict.machines, verdict.because
    assert all(suspect.probability < 0.5 for suspect in verdict.suspects), "who it is is known, and why is open"


def test_compiling_is_slow_not_guilty() -> None:
    compiling = ["f train.py", "_compile torch/_dynamo/convert_frame.py"]
    rounds = [[*look({"0-6": "backward"}), trace(7, compiling, shift=at, active=True)] for at in range(5)]
    verdict = diagnose(snapshot(*rounds), CUBE)
    assert (verdict.kind, first(verdict), verdict.evict.machines) == (Kind.SLOW, (7,), ())
    early = diagnose(snapshot(*rounds[:3]), CUBE)
    assert (early.kind, first(early), early.evict.machines) == (Kind.SLOW, (7,), ())


def awaited(verdict: Verdict) -> tuple[int, ...]:
    return verdict.culprit.ranks if verdict.culprit is not None else ()


def test_a_rank_that_gets_on_with_its_work_is_healthy_and_one_in_a_loop_is_not() -> None:
    waiting = look({"1-7": "barrier"})
    evaluating = [[trace(0, stack, active=True), *waiting] for stack in ("user", "other", "user", "other", "user")]
    verdict = diagnose(snapshot(*evaluating), CUBE)
    assert (verdict.kind, awaited(verdict), verdict.evict.machines) == (Kind.NONE, (0,), ())
    stepping = look({"1-7": "backward"})
    looping = [[trace(0, "user", shift=at, active=True), *stepping] for at in range(3)]
    looped = diagnose(snapshot(*looping), CUBE)  # which may be an evaluation: nobody is evicted for it
    assert looped.kind in (Kind.SLOW, Kind.SOFTWARE) and first(looped) == (0,) and not looped.evict.machines


def test_a_loop_that_now_and_then_calls_something_goes_nowhere() -> None:
    """A trainer that collects garbage for ever was met once, of three looks, as it asked how much memory is left."""
    waiting = look({"1-7": "backward"})
    tidying = ["<module> train.py", "run train.py", "tidy memory.py"]
    asking = [*tidying, "resident memory.py", "__new__ pathlib.py"]
    looping = [[trace(0, stack, active=True), *waiting] for stack in (tidying, asking, tidying)]
    verdict = diagnose(snapshot(*looping), CUBE)
    assert verdict.kind in (Kind.SLOW, Kind.SOFTWARE) and first(verdict) == (0,), verdict.because
    assert verdict.because[0].code == "computes" and "different lines" in verdict.because[0].text
    assert not verdict.evict.machines
    elsewhere = [*tidying[:2], "resident memory.py", "__new__ pathlib.py"]
    travelling = [[trace(0, stack, active=True), *waiting] for stack in (tidying, elsewhere, tidying)]
    assert diagnose(snapshot(*travelling), CUBE).kind is not Kind.MACHINE
    loading = [*tidying, "_next_data torch/utils/data/dataloader.py"]
    training = [[trace(0, stack, active=True), *waiting] for stack in (tidying, loading, tidying)]
    assert diagnose(snapshot(*training), CUBE).kind is not Kind.MACHINE


def test_a_rank_at_work_while_the_others_are_at_a_barrier_works_for_all() -> None:
    """On an overloaded machine the one forward pass of rank 0's own evaluation took longer than three looks."""
    waiting = look({"1-7": "barrier"})
    working = [[trace(0, "user", shift=at, active=True), *waiting] for at in range(3)]
    verdict = diagnose(snapshot(*working), CUBE)
    assert (verdict.kind, awaited(verdict), verdict.evict.machines) == (Kind.NONE, (0,), ())


def test_one_long_call_beside_a_barrier_is_work_where_the_processor_is_used_and_else_a_suspicion() -> None:
    """Rank 0, evaluating alone, was met in the same layer in all three looks."""

    def verdict(seconds_a_look: float) -> Verdict:
        looks = []
        for at in range(3):
            evaluating = trace(0, "user", active=True, state="R")
            assert evaluating.state is not None
            used = structs.replace(evaluating.state, cpu_s=5 + at * seconds_a_look)
            looks.append([structs.replace(evaluating, state=used), *look({"1-7": "barrier"})])
        return diagnose(snapshot(*looks), CUBE)

    assert verdict(1.0).kind in (Kind.NONE, Kind.UNDETERMINED)
    assert verdict(0.0).kind not in (Kind.NONE, Kind.SLOW)
    # a device that hangs keeps its host as busy
    assert awaited(verdict(0.0)) == (0,)
    assert not verdict(1.0).evict.machines


def test_a_stopped_rank_is_named_while_the_others_still_move() -> None:
    before = [*look({"0-6": "gather"}), trace(7, "user", state="T")]
    after = [*look({"0-6": "scatter"}), trace(7, "user", state="T")]
    assert first(diagnose(snapshot(before, after), CUBE)) == (7,)


def test_native_frames_of_the_last_look_are_no_motion_of_a_rank_that_was_stopped_in_all_of_them() -> None:
    before = [*look({"0-6": "gather"}), trace(7, "user", state="T")]
    stopped = before[-1]
    (thread, *others) = stopped.threads
    below = Frame("clock_nanosleep", "libc.so.6", 0, "libc.so.6")
    deeper = structs.replace(stopped, threads=(structs.replace(thread, frames=(*thread.frames, below)), *others))
    verdict = diagnose(snapshot(before, before, [*before[:-1], deeper]), CUBE)
    assert first(verdict) == (7,) and "unchanged in 3 looks" in verdict.because[0].text


def test_one_rank_stuck_while_the_others_start_up_is_not_called_sound() -> None:
    looks = [[trace(2, "write"), *[trace(r, "user", shift=at + r, active=True) for r in (0, 1, 3)]] for at in range(3)]
    verdict = diagnose(snapshot(*looks), job(dp=4, per_machine=1))
    assert first(verdict) == (2,)
    assert verdict.evict.machines == ()  # nobody was seen to wait for it


def test_where_more_ranks_run_than_wait_the_job_is_at_work() -> None:
    running = [trace(rank, stack, active=True) for rank, stack in ((1, "user"), (2, "other"))]
    verdict = diagnose(snapshot([*look({"0": "backward", "3": "loader"}), *running]), job(dp=4, per_machine=1))
    assert verdict.kind is Kind.UNDETERMINED


@pytest.mark.parametrize(
    ("late", "says"), [("capture tool failed", "waiting for the data loader"), ("exited", "rank 7 is dead")]
)
def test_a_look_that_failed_hides_nothing_and_a_death_hides_what_was_before(late: str, says: str) -> None:
    before = look({"0-6": "metrics", "7": "loader"})
    verdict = diagnose(snapshot(before, [*look({"0-6": "metrics"}), trace(7, late)]), CUBE)
    assert first(verdict) == (7,)
    assert says in verdict.suspects[0].because[0].text


def test_two_ranks_freed_from_a_wait_are_proof_enough_that_the_job_moves() -> None:
    before = look({"0-1": "tensor", "2-7": "stage"})
    after = look({"0-1": "metrics", "2-7": "stage"})
    assert diagnose(snapshot(before, after), CUBE).kind is Kind.NONE
    torn = look({"0": "user", "1": "tensor", "2-7": "stage"})
    assert diagnose(snapshot(before, torn), CUBE).kind is not Kind.NONE


def test_where_whom_all_waited_for_waits_for_another_one_the_job_moves() -> None:
    """Only two ranks changed their places. One alone that seems to have left its wait may be a torn read of its stack."""

    def verdict(*busy: int) -> Verdict:
        others = [",".join(str(rank) for rank in range(64) if rank != one) for one in busy]
        looks = [look({rest: "item", str(one): "user"}) for rest, one in zip(others, busy, strict=True)]
        return diagnose(snapshot(*looks), job(per_machine=8, dp=64))

    assert verdict(5, 18).kind is Kind.NONE
    assert verdict(5, 5).kind is not Kind.NONE


def test_workers_that_come_and_go_say_nothing_of_the_one_that_stands() -> None:
    """Replicas of a service take requests and end them while one worker stands in the user's code, in three looks."""
    poll = ["<module> serve.py", "acquire_read vllm/distributed/device_communicators/shm_broadcast.py"]
    idle = [*poll, "wait vllm/distributed/device_communicators/shm_broadcast.py", "poll zmq/sugar/poll.py"]
    shape = job(dp=16, per_machine=4)

    def at(busy: set[int], stuck: str = "user") -> list[ProcessTrace]:
        others = [trace(rank, "item" if rank in busy else idle) for rank in range(16) if rank != 5]
        return [*others, trace(5, stuck, state="R", active=True)]

    three = [at({0, 1, 2, 3}), at({8, 9, 10, 11}), at({12, 13, 14, 15})]
    verdict = diagnose(snapshot(*three), shape)
    assert verdict.culprit is not None and verdict.culprit.ranks == (5,)
    assert verdict.kind is not Kind.NONE and verdict.evict.machines == ()
    assert diagnose(snapshot(*three[:2]), shape).kind is Kind.NONE, "two looks may both meet one request"
    moves = [at({0, 1}), at({8, 9}, "item"), at({12, 13})]
    assert diagnose(snapshot(*moves), shape).kind is Kind.NONE


def test_where_only_those_move_whom_all_others_wait_for_they_are_named() -> None:
    """The ranks of one machine still import while all others stand at the store, and nobody was let go."""
    shape = job(dp=32, per_machine=8)

    def at(place: str, imports: int) -> list[ProcessTrace]:
        stack = ["<module> train.py", "prepare data.py", place]
        return [*look({f"{imports}-31": "start"}), *(trace(rank, stack) for rank in range(imports))]

    def judged(imports: int) -> Verdict:
        return diagnose(snapshot(at("read pathlib.py", imports), at("decode codecs.py", imports)), shape)

    verdict = judged(8)
    assert verdict.culprit is not None and verdict.culprit.machines == ("node-0",)
    assert verdict.evict.machines == ()
    assert (judged(12).kind, judged(12).culprit) == (Kind.NONE, None), "they are on two machines"
