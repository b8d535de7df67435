"""A rank that waits for its data loader: who it is is certain, and why is told by the loader's workers, if by anything."""

import pytest

from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.ranks import Rank
from hangdog_models.stack import Missing, ProcessState, ProcessTrace, Reason, Thread
from hangdog_models.verdict import Kind, StallCause, Verdict
from support.cases.reasons import codes
from support.cases.stories import frames, job, trace, twice

WIDE = job(world=32, per_machine=8)
LOOP = "_worker_loop torch/utils/data/_utils/worker.py"
ITEM = (
    "_worker_loop torch/utils/data/_utils/worker.py",
    "fetch torch/utils/data/_utils/fetch.py",
    "__getitem__ dataset.py",
)


def worker(rank: int, *own: str, state: ProcessState | None = None, missing: Missing | None = None) -> ProcessTrace:
    """A worker of a rank's data loader, asleep at the end of its frames."""
    threads = (Thread("MainThread", 900, frames(own), False, False),) if own else ()
    return ProcessTrace(Rank(rank), "dataloader-0", 900, threads, state, missing)


def judged(late: range, *workers: ProcessTrace) -> Verdict:
    seen = [trace(rank, "loader" if rank in late else "gather", state="S") for rank in range(32)]
    return diagnose(twice([*seen, *workers]), WIDE)


def first(verdict: Verdict) -> tuple[int, ...]:
    return verdict.culprit.ranks if verdict.culprit else ()


@pytest.mark.parametrize("rank", [0, 13])
def test_who_waits_for_its_loader_is_named_and_no_machine_is_evicted_for_it(rank: int) -> None:
    verdict = judged(range(rank, rank + 1))
    assert first(verdict) == (rank,) and verdict.culprit is not None and verdict.culprit.probability > 0.95
    assert not verdict.evict.machines and verdict.causes[StallCause.MACHINE] < 0.6
    assert "collect-loader-workers" in codes(verdict.because)


def test_where_all_loaders_of_one_machine_stand_it_is_the_machine() -> None:
    whole, half = judged(range(8, 16)), judged(range(8, 12))
    assert whole.kind is Kind.MACHINE and whole.causes[StallCause.MACHINE] > 0.8 > half.causes[StallCause.MACHINE]


def test_a_worker_at_a_lock_is_the_codes_fault() -> None:
    locked = worker(13, *ITEM, "info logging/__init__.py", "handle logging/__init__.py", "acquire logging/__init__.py")
    verdict = judged(range(13, 14), locked)
    assert (verdict.kind, first(verdict), verdict.evict.machines) == (Kind.SOFTWARE, (13,), ())
    assert verdict.because[0].code == "waits-for-lock" and "data loader" in verdict.because[0].text
    assert "collect-loader-workers" not in codes(verdict.because)


def test_a_worker_that_storage_holds_in_the_kernel_is_its_machines_fault() -> None:
    stuck = Missing(Reason.UNINTERRUPTIBLE, "state D")
    verdict = judged(range(13, 14), worker(13, state=ProcessState(900, "D", "folio_wait_bit_common"), missing=stuck))
    assert (verdict.kind, first(verdict)) == (Kind.MACHINE, (13,)) and verdict.causes[StallCause.MACHINE] > 0.8
    remote = judged(range(13, 14), worker(13, state=ProcessState(900, "D", "nfs_wait_bit_killable"), missing=stuck))
    assert remote.causes[StallCause.DEPENDENCY] > verdict.causes[StallCause.DEPENDENCY]


def test_what_healthy_workers_do_as_well_says_nothing() -> None:
    idle = worker(13, LOOP, "get multiprocessing/queues.py", "poll multiprocessing/connection.py")
    reads = worker(
        13, *ITEM, "read_bytes pathlib.py", state=ProcessState(900, "D", "folio_wait_bit_common")
    )  # in D for a moment
    alone = judged(range(13, 14))
    for workers in ((idle,), (reads,)):
        assert judged(range(13, 14), *workers).causes == alone.causes


ASLEEP = ProcessState(900, "S", "anon_pipe_read")


def test_a_worker_that_sleeps_in_a_batch_waits_for_what_another_process_gives() -> None:
    """A loader's worker read a named pipe that nobody filled, in five frameworks: a disk's reader is in state D."""
    verdict = judged(range(13, 14), worker(13, *ITEM, "_read dataset.py", state=ASLEEP))
    assert (verdict.kind, first(verdict), verdict.evict.machines) == (Kind.DEPENDENCY, (13,), ())
    assert verdict.causes[StallCause.MACHINE] < 0.2 < verdict.causes[StallCause.SOFTWARE]
    assert "_read" in verdict.because[0].text
    idle = judged(range(13, 14), worker(13, LOOP, "get multiprocessing/queues.py", state=ASLEEP))
    assert idle.causes == judged(range(13, 14)).causes


def test_where_workers_of_most_ranks_sleep_at_one_call_it_is_what_they_ask_for() -> None:
    """Even where all loaders of one machine have run dry first."""
    asleep = [worker(rank, *ITEM, "_read dataset.py", state=ASLEEP) for rank in range(32)]
    verdict = judged(range(8, 16), *asleep)
    assert (verdict.kind, verdict.evict.machines) == (Kind.DEPENDENCY, ())
    assert verdict.causes[StallCause.MACHINE] < 0.2
    others = (*range(8), *range(16, 32))
    idle = [worker(rank, LOOP, "get multiprocessing/queues.py", state=ASLEEP) for rank in others]
    apart = judged(range(8, 16), *asleep[8:16], *idle)
    assert apart.causes[StallCause.DEPENDENCY] < 0.5 < verdict.causes[StallCause.DEPENDENCY]
