"""What one rank does for all: as long as phases last it is a healthy one, and by that alone no machine is evicted."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from msgspec import structs

from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.snapshot import Snapshot
from hangdog_models.stack import ProcessTrace
from hangdog_models.verdict import Act, Kind, StallCause, Verdict
from support.cases.reasons import codes, words_of
from support.cases.stories import C10D, first, job, look, snapshot, trace

SHAPE = job(dp=8)
STEP = ["<module> train.py", "fit trainer.py", "training_step trainer.py", f"all_reduce {C10D}"]
EVALUATES = ["<module> train.py", "fit trainer.py", "_validate trainer.py", "score metrics.py"]
READS_BACK = [*EVALUATES[:3], "item torch/_tensor.py"]
AT_BARRIER = ["<module> train.py", "prepare data.py", f"barrier {C10D}"]
COUNTS = ["<module> train.py", "prepare data.py", "count data.py"]


def of(first: Sequence[str], others: Sequence[str], *, active: bool = False, gil: bool = False) -> list[ProcessTrace]:
    state = "R" if active else "S"
    return [
        trace(0, first, state=state, active=active, gil=gil),
        *(trace(rank, others, state="S") for rank in range(1, 8)),
    ]


def judged(*looks: Sequence[ProcessTrace], stalled_s: float | None = None) -> Verdict:
    story: Snapshot = snapshot(*looks)
    return diagnose(replace(story, job=replace(story.job, stalled_s=stalled_s)), SHAPE)


def test_one_rank_that_evaluates_is_a_phase_of_a_healthy_job() -> None:
    once = of(EVALUATES, STEP, active=True, gil=True)
    for verdict in (judged(once, once), judged(once, stalled_s=60.0)):
        assert verdict.kind is Kind.NONE and not verdict.evict.machines
        assert "rank 0 evaluates" in words_of(verdict.because, "in-a-duty")


def test_it_is_held_for_one_for_as_long_as_phases_last() -> None:
    once = of(EVALUATES, STEP, active=True, gil=True)
    causes = [judged(once, stalled_s=s).causes for s in (60.0, 600.0, 1800.0, 7200.0)]
    healthy, code = ([each[one] for each in causes] for one in (StallCause.HEALTHY, StallCause.SOFTWARE))
    assert min(healthy[:2]) > 0.5 > max(healthy[2:])
    assert code[1] < code[2] < code[3]
    late = judged(once, stalled_s=7200.0)
    assert late.kind is not Kind.NONE and late.culprit is not None and late.culprit.ranks == (0,)
    assert not late.evict.machines


def test_the_same_where_all_evaluate_is_no_duty_of_one() -> None:
    reduces = [*EVALUATES[:3], f"all_reduce {C10D}"]
    once = of(EVALUATES, reduces, active=True, gil=True)
    assert judged(once, once).kind is not Kind.NONE


BUSY = ["<module> train.py", "fit trainer.py", "on_batch_end meter.py"]


def among_many(first: Sequence[str], others: Sequence[str] = BUSY) -> list[ProcessTrace]:
    """One of 32 that holds the interpreter's lock, and others that run where no rule knows what they do."""
    return [trace(0, first, active=True, gil=True), *(trace(rank, others, active=True) for rank in range(1, 32))]


def told(*looks: Sequence[ProcessTrace], stalled_s: float | None = None) -> Verdict:
    story = snapshot(*looks)
    return diagnose(replace(story, job=replace(story.job, stalled_s=stalled_s)), job(dp=32))


def test_one_look_at_a_phase_of_all_is_open_for_as_long_as_no_step_ends_in_it() -> None:
    """Validation writes no step line: that nothing moved for a minute is what it looks like."""
    phase, step = [*EVALUATES[:3], "gather metrics.py"], [*BUSY[:2], "gather metrics.py"]
    all_of_them = told(among_many(EVALUATES, phase), stalled_s=60.0)
    assert all_of_them.kind is Kind.UNDETERMINED and "all-in-one-duty" in codes(all_of_them.because)
    assert told(among_many([*BUSY[:2], "score metrics.py"], step), stalled_s=60.0).kind is not Kind.UNDETERMINED
    blocked = [trace(0, EVALUATES, state="D"), *among_many(EVALUATES, phase)[1:]]
    assert first(told(blocked, stalled_s=60.0)) == (0,), "who is blocked is in no phase"


def test_one_that_collects_garbage_is_told_by_its_names() -> None:
    """By hand, as torchtitan's GarbageCollection does: no native frame shows it, and no rule knows where the others are."""
    collects = [*BUSY[:2], "GarbageCollection.run tools/utils.py", "GarbageCollection.collect tools/utils.py"]
    verdict = told(*[among_many(collects)] * 3)
    assert verdict.kind is Kind.NONE and "collects garbage" in " ".join(map(str, verdict.because))
    assert verdict.causes[StallCause.HEALTHY] > 0.5


def test_one_that_writes_down_what_was_measured_is_at_it_while_it_runs() -> None:
    writes = [*BUSY[:2], "log metrics.py", "add_scalar torch/utils/tensorboard/writer.py"]
    runs = among_many(writes)
    asleep = [trace(0, writes, state="S"), *runs[1:]]
    assert told(runs, runs).kind is Kind.NONE
    assert told(asleep, asleep).kind is not Kind.NONE


def test_a_standstill_as_long_as_a_step_is_none() -> None:
    once = among_many([*BUSY[:2], "own_code user.py"])
    brief, long = told(once, once, stalled_s=3.0), told(once, once, stalled_s=60.0)
    assert brief.kind is Kind.UNDETERMINED and "3 s only" in " ".join(map(str, brief.because))
    assert long.kind is not Kind.UNDETERMINED and first(long) == (0,)


def test_stacks_that_do_not_show_where_they_parted_tell_of_no_duty() -> None:
    once = of(EVALUATES, [f"all_reduce {C10D}"], active=True, gil=True)
    assert judged(once, once).kind is not Kind.NONE


def test_a_value_that_an_evaluation_reads_back_is_no_sick_gpu() -> None:
    once = of(READS_BACK, STEP, active=True)
    assert not judged(once, once).evict.machines
    trained = of([*STEP[:3], "item torch/_tensor.py"], STEP, active=True)
    assert judged(trained, trained).causes[StallCause.HEALTHY] < judged(once, once).causes[StallCause.HEALTHY]


def test_one_that_works_while_all_others_are_at_a_barrier_works_for_them() -> None:
    looks = [of(COUNTS, AT_BARRIER, active=True, gil=True) for _ in range(2)]
    looks[1][0] = trace(0, COUNTS, state="R", shift=1, active=True, gil=True)
    verdict = judged(*looks)
    assert verdict.kind is Kind.NONE and "at a barrier" in words_of(verdict.because, "in-a-duty")


def goes_about(*last: str) -> list[list[ProcessTrace]]:
    """Two looks at ranks at a barrier, and at rank 0, which computed in the first and is elsewhere in the second."""
    works = of(COUNTS, AT_BARRIER, active=True, gil=True)
    return [works, [trace(0, last if len(last) > 1 else last[0], state="S"), *works[1:]]]


def test_one_that_goes_about_while_all_others_are_at_a_barrier_works_for_them() -> None:
    reads = ["<module> train.py", "prepare data.py", "_try_get_data torch/utils/data/dataloader.py"]
    verdict = judged(*goes_about(*reads))
    assert verdict.kind is Kind.NONE and verdict.culprit is not None and verdict.culprit.ranks == (0,)
    frozen = judged(*goes_about("stopped"))
    assert frozen.kind is Kind.MACHINE, "nobody goes on from there by itself"


def test_work_for_all_that_lasts_longer_than_a_duty_is_open() -> None:
    """A loop without an end shows other lines in each look, as work does: nobody can tell, so it is not sound."""
    looks = [of(COUNTS, AT_BARRIER, active=True, gil=True) for _ in range(2)]
    looks[1][0] = trace(0, COUNTS, state="R", shift=1, active=True, gil=True)
    assert judged(*looks, stalled_s=300.0).kind is Kind.NONE
    late = judged(*looks, stalled_s=840.0)
    assert late.kind is Kind.UNDETERMINED and not late.evict.machines


@pytest.mark.parametrize("reason", ["stopped", "uninterruptible sleep"])
def test_who_is_held_in_a_duty_is_held(reason: str) -> None:
    once = [trace(0, reason), *of(EVALUATES, STEP)[1:]]
    assert judged(once, once).kind is Kind.MACHINE


def test_a_job_of_one_machine_that_waits_for_data_as_a_whole_evicts_nobody() -> None:
    once = look({"0-7": "loader"})
    verdict = diagnose(snapshot(once, once), job(dp=8, per_machine=8))
    assert not verdict.evict.machines and verdict.kind is Kind.DEPENDENCY
    one = diagnose(snapshot(*[look({"0-6": "metrics", "7": "loader"})] * 2), job(dp=8, per_machine=8))
    assert one.causes[StallCause.MACHINE] > verdict.causes[StallCause.MACHINE]


POLLS = ["<module> train.py", "prepare data.py", "__enter__ filelock/_api.py", "acquire filelock/_api.py"]


def test_one_that_is_met_in_the_attempt_polls_for_the_lock_file_like_all_others() -> None:
    maps = ["<module> train.py", "prepare data.py", "_map_single datasets/arrow_dataset.py", "encode data.py"]
    sleeps = [trace(rank, POLLS, state="S") for rank in range(1, 8)]
    tries = trace(5, [*POLLS, "_acquire filelock/_unix.py"], state="R", active=True, gil=True)
    caught = [tries if one.rank == tries.rank else one for one in sleeps]
    looks = [[trace(0, maps, state="R", active=True, gil=True, shift=at), *sleeps] for at in range(2)]
    verdict = judged(*looks, [trace(0, maps, state="R", active=True, gil=True, shift=2), *caught])
    assert verdict.culprit is not None and verdict.culprit.ranks == (0,) and verdict.kind is Kind.NONE
    assert "lock file" in words_of(verdict.because, "in-a-duty")
    asleep = [trace(0, maps, state="S"), *sleeps]
    assert judged(asleep, asleep, asleep).kind is not Kind.NONE, "who sleeps is not at work"


def at_one_line(
    stack: Sequence[str] = COUNTS, others: Sequence[str] = AT_BARRIER, *, cpu_s: float = 0.8, looks: int = 3
) -> list[list[ProcessTrace]]:
    """Looks at rank 0, which runs Python at one line in all of them and used so many seconds of the processor in between."""
    found = []
    for at in range(looks):
        runs, *waiting = of(stack, others, active=True, gil=True)
        assert runs.state is not None
        used = structs.replace(runs.state, cpu_s=5.0 + at * cpu_s)
        found.append([structs.replace(runs, state=used), *waiting])
    return found


def test_work_for_all_at_one_line_is_open_as_a_loop_without_an_end_shows_one_as_well() -> None:
    """A real review was met in the same layer in three looks, with the interpreter's lock each time."""
    verdict = judged(*at_one_line())
    assert verdict.kind is Kind.UNDETERMINED and not verdict.evict.machines
    assert verdict.culprit is not None and verdict.culprit.ranks == first(verdict) == (0,)
    assert verdict.causes[StallCause.HEALTHY] < 0.5
    assert verdict.next[0].do is Act.COLLECT and "minutes later" in verdict.next[0].why
    assert judged(*at_one_line(EVALUATES)).kind is Kind.NONE, "a name tells that this one evaluates"


def test_who_blocks_or_sleeps_or_holds_a_step_up_does_no_work_for_all() -> None:
    blocks, holds_up = at_one_line(cpu_s=0.0), at_one_line(others=STEP)
    sleeps = at_one_line([*COUNTS, "forward torch/nn/modules/linear.py"])
    sleeps[0][0] = trace(0, [*COUNTS, "forward torch/nn/modules/linear.py"], state="S")
    for verdict in (judged(*looks) for looks in (blocks, holds_up, sleeps)):
        assert verdict.kind is not Kind.UNDETERMINED, verdict.because
        assert verdict.culprit is not None and verdict.culprit.ranks == (0,)


def test_one_line_for_longer_than_a_duty_is_a_loop() -> None:
    open_for = [judged(*at_one_line(), stalled_s=s).causes[StallCause.UNKNOWN] for s in (60.0, 1800.0, 7200.0)]
    assert open_for == sorted(open_for, reverse=True) and open_for[0] > 0.8 > open_for[1]
    late = judged(*at_one_line(), stalled_s=36000.0)
    assert (late.kind, first(late), late.evict.machines) == (Kind.SOFTWARE, (0,), ())


def test_looks_that_far_apart_say_themselves_how_long_nothing_moved() -> None:
    story = snapshot(*at_one_line(cpu_s=18000.0))
    verdict = diagnose(replace(story, interval_s=18000.0), SHAPE)
    assert (verdict.kind, first(verdict), verdict.evict.machines) == (Kind.SOFTWARE, (0,), ())


POLLS = ["<module> train.py", "load torch/utils/cpp_extension.py", "wait torch/utils/file_baton.py"]
BUILDS = ["<module> train.py", "load torch/utils/cpp_extension.py", "_run_ninja_build torch/utils/cpp_extension.py"]


def test_a_lock_file_that_all_poll_for_and_nobody_holds_is_codes() -> None:
    all_poll = of(POLLS, POLLS)
    for verdict in (judged(all_poll, all_poll), judged(all_poll, stalled_s=1800.0)):
        assert verdict.kind is Kind.SOFTWARE and not verdict.evict.machines
        assert verdict.because[0].code == "waits-for-lock-file"
        assert verdict.because[1].code == "lock-file-left"


def test_a_lock_file_that_a_rank_holds_that_builds_is_a_wait_for_that_rank() -> None:
    one_builds = of(BUILDS, POLLS)
    assert judged(one_builds, one_builds).kind is not Kind.SOFTWARE
