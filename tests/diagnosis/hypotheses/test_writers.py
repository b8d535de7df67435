"""Who writes sleeps in the kernel for seconds, on a sound disk as well: only who stays there is stuck."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from msgspec import structs

from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.stack import Frame, ProcessTrace
from hangdog_models.verdict import Kind, StallCause, Verdict
from support.cases.reasons import codes
from support.cases.stories import C10D, first, job, look, snapshot, trace

WIDE = job(dp=64, per_machine=1)
UNPACKS = ["<module> train.py", "fetch artefacts.py", "extractall tarfile.py", "copyfileobj tarfile.py"]
UNREAD = "uninterruptible sleep"
FLUSHES, SLOWED = "jbd2_log_wait_commit", "balance_dirty_pages"


def judged(*odd: ProcessTrace, stalled_s: float | None = None) -> Verdict:
    """A look for each standing of rank 3, a second apart; all others are at a barrier."""
    story = snapshot(*([*look({"0-2,4-63": "barrier"}), one] for one in odd))
    return diagnose(replace(story, job=replace(story.job, stalled_s=stalled_s)), WIDE)


def asleep(where: str, stack: str | Sequence[str] = UNREAD, cpu_s: float | None = None) -> ProcessTrace:
    one = trace(3, stack, state="D", wchan=where)
    assert one.state is not None
    return structs.replace(one, state=structs.replace(one.state, cpu_s=cpu_s))


@pytest.mark.parametrize("where", [FLUSHES, SLOWED, "folio_wait_bit_common", "xlog_wait_on_iclog"])
@pytest.mark.parametrize("stack", [UNREAD, UNPACKS])
def test_one_look_at_a_writer_is_a_moment(where: str, stack: str | Sequence[str]) -> None:
    for stalled_s in (None, 60.0):
        verdict = judged(asleep(where, stack), stalled_s=stalled_s)
        assert not verdict.evict.machines
        assert all(suspect.probability < 0.5 for suspect in verdict.suspects)


@pytest.mark.parametrize("stack", [UNREAD, UNPACKS])
def test_a_writer_that_stays_is_stuck(stack: str | Sequence[str]) -> None:
    stays = asleep(FLUSHES, stack, cpu_s=100.0)
    for verdict in (judged(stays, stays, stays), judged(stays, stays), judged(stays, stalled_s=1800.0)):
        assert (verdict.kind, first(verdict), verdict.evict.machines) == (Kind.MACHINE, (3,), ("node-3",))


def test_a_writer_that_went_from_one_sleep_to_another_gets_on() -> None:
    verdict = judged(asleep(SLOWED), asleep(FLUSHES), asleep(FLUSHES))
    assert verdict.kind is Kind.NONE and not verdict.evict.machines


def test_a_writer_that_used_the_processor_between_earlier_looks_gets_on() -> None:
    first_, then, last = (asleep(SLOWED, cpu_s=cpu_s) for cpu_s in (100.0, 101.6, 101.6))
    verdict = judged(first_, then, last)
    assert verdict.kind is Kind.NONE and not verdict.evict.machines
    assert "unchanged" not in " ".join(map(str, verdict.because))


def test_one_look_at_a_sleep_in_a_driver_is_no_writers() -> None:
    assert judged(asleep("uvm_ioctl", UNPACKS)).evict.machines == ("node-3",)


def saving(rank: int, *, runs: bool) -> ProcessTrace:
    return trace(rank, "write", active=runs)


@pytest.mark.parametrize("others", ["barrier", "ends"])
def test_rank_0_that_runs_while_it_writes_for_all_is_a_phase(others: str) -> None:
    """A call that writes a large file is met at one line for minutes; at its end a job waits for it in its teardown."""
    ends = ["<module> train.py", "shutdown train.py", f"destroy_process_group {C10D}"]
    at = [trace(rank, "barrier" if others == "barrier" else ends) for rank in range(1, 64)]
    once = [saving(0, runs=True), *at]
    for story in (snapshot(once, once, once), snapshot(once)):
        for stalled_s in (None, 60.0, 300.0):
            verdict = diagnose(replace(story, job=replace(story.job, stalled_s=stalled_s)), WIDE)
            assert verdict.kind in (Kind.NONE, Kind.UNDETERMINED) and not verdict.evict.machines
            assert verdict.causes[StallCause.DEPENDENCY] < 0.3 > verdict.causes[StallCause.MACHINE]


def test_it_is_named_where_it_sleeps_waits_for_its_device_or_has_stood_for_long() -> None:
    others = look({"1-63": "barrier"})
    asleep_, runs = [saving(0, runs=False), *others], [saving(0, runs=True), *others]
    copies = Frame("cudaStreamSynchronize", "libcudart.so.12", 0, "libcudart.so.12")
    main = runs[0].threads[0]
    by_device = [structs.replace(runs[0], threads=(structs.replace(main, frames=(*main.frames, copies)),)), *others]
    for once, stalled_s in ((asleep_, None), (by_device, None), (runs, 7200.0)):
        story = snapshot(once, once)
        verdict = diagnose(replace(story, job=replace(story.job, stalled_s=stalled_s)), WIDE)
        assert verdict.kind is not Kind.NONE and verdict.culprit is not None and verdict.culprit.ranks == (0,)


def test_another_rank_that_is_still_writing_is_later_than_its_peers() -> None:
    once = [*look({"0-38,40-63": "barrier"}), saving(39, runs=True)]
    verdict = diagnose(snapshot(once, once), WIDE)
    assert verdict.kind is not Kind.NONE and first(verdict) == (39,)


def test_storage_that_lets_some_of_its_writers_run_serves_them() -> None:
    written = [saving(rank, runs=rank % 3 == 0) for rank in range(40)]
    blocked = [saving(rank, runs=False) for rank in range(40)]
    others = look({"40-63": "barrier"})
    serves, silent = (diagnose(snapshot([*at, *others], [*at, *others]), WIDE) for at in (written, blocked))
    assert serves.kind is Kind.UNDETERMINED and "many-at-a-service" in codes(serves.because)
    assert silent.kind is Kind.DEPENDENCY


@pytest.mark.parametrize(("through", "kind"), [(0, Kind.DEPENDENCY), (1, Kind.DEPENDENCY), (9, Kind.NONE)])
def test_ranks_that_come_through_one_by_one_show_that_the_storage_answers(through: int, kind: Kind) -> None:
    """All load a checkpoint, and those that are done wait for the rest; where nobody gets on, its storage does not answer."""
    load = ["<module> train.py", "load train.py", "dcp_load checkpoint.py", "load torch/serialization.py"]
    done = ["<module> train.py", "step train.py", f"all_reduce {C10D}"]

    def at(number: int) -> list[ProcessTrace]:
        here = 40 + through * number
        return [trace(rank, done if rank < here else load, state="S") for rank in range(64)]

    verdict = diagnose(snapshot(at(0), at(1)), WIDE)
    assert (verdict.kind, verdict.evict.machines) == (kind, ())


@pytest.mark.parametrize(
    ("woken", "stalled_s", "kind"),
    [(0, None, Kind.DEPENDENCY), (500, None, Kind.NONE), (500, 3600.0, Kind.UNDETERMINED)],
)
def test_where_all_wait_for_their_loaders_and_get_on_a_phase_reads_its_data(
    woken: int, stalled_s: float | None, kind: Kind
) -> None:
    """An evaluation that its data hold back: each rank is woken for each batch. A stated stall says that no step comes of it."""

    def at(number: int) -> list[ProcessTrace]:
        found = []
        for rank in range(64):
            one = trace(rank, "loader", state="S")
            assert one.state is not None
            state = structs.replace(one.state, wakes=woken * number, cpu_s=1.0 + woken * number / 5000)
            found.append(structs.replace(one, state=state))
        return found

    story = snapshot(at(0), at(1))
    verdict = diagnose(replace(story, job=replace(story.job, stalled_s=stalled_s)), WIDE)
    assert (verdict.kind, verdict.evict.machines) == (kind, ())
