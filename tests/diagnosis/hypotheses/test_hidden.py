"""Waits that no Python frame names: who may be in one is looked at first and not evicted; beside other waits it still is."""

from collections.abc import Sequence
from dataclasses import replace

from msgspec import structs

from hangdog_models.collectives import RankCounters
from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.ranks import Rank
from hangdog_models.stack import Frame, ProcessTrace
from hangdog_models.verdict import Kind, Verdict
from support.cases.stories import STACKS, first, job, snapshot, trace

WIDE = job(dp=64, per_machine=8)
#: What the engine of autograd calls when all gradients are there, in a framework that no rule knows.
CALLED = [*STACKS["backward"], "after_backward shards.py", "finish shards.py"]
OPERATOR = ["<module> train.py", "_call_impl torch/nn/modules/module.py", "forward torch/nn/modules/linear.py"]
QUEUE = ["<module> train.py", "forward megatron/core/transformer/mlp.py"]
BUFFERS = ["<module> train.py", "_sync_buffers torch/nn/parallel/distributed.py"]
BUFFERS.append("_distributed_broadcast_coalesced torch/nn/parallel/distributed.py")


def beside(odd: ProcessTrace, others: str | Sequence[str], looks: int = 2, *, active: bool = False) -> Verdict:
    """Rank 5 as it stands, and all others where they wait."""
    state = "R" if active else "S"
    seen = [odd if rank == 5 else trace(rank, others, state=state, active=active) for rank in range(64)]
    return diagnose(snapshot(*[seen] * looks), WIDE)


def test_who_sleeps_while_the_others_do_where_backward_hides_their_waits_is_not_evicted() -> None:
    verdict = beside(trace(5, "user", state="S"), CALLED)
    assert (verdict.kind, first(verdict), verdict.evict.machines) == (Kind.UNDETERMINED, (5,), ())
    shown = beside(trace(5, "user", state="S"), "backward")
    assert (shown.kind, first(shown), shown.evict.machines) == (Kind.SOFTWARE, (5,), ()), "a frame that no rule knows"
    assert beside(trace(5, "user", state="T"), CALLED).evict.machines == ("node-0",)


def test_who_idles_in_an_operator_while_the_queues_of_the_others_are_full_may_have_a_full_one() -> None:
    for looks in (1, 2):
        assert beside(trace(5, OPERATOR), QUEUE, looks).evict.machines == ()
    # beside other waits, or where these spin as it would, too, it holds the job up, most likely by its machine
    outside = beside(trace(5, OPERATOR), "gather")
    spinning = beside(trace(5, OPERATOR), QUEUE, active=True)
    running = beside(trace(5, OPERATOR, active=True, gil=True), QUEUE)
    for verdict in (outside, spinning, running):
        assert (verdict.kind, first(verdict), verdict.evict.machines) == (Kind.MACHINE, (5,), ())


def test_a_broadcast_of_buffers_waits_for_those_who_left_it_out() -> None:
    verdict = beside(trace(5, BUFFERS), "metrics")
    assert (verdict.kind, verdict.evict.machines) == (Kind.SOFTWARE, ())


def test_native_frames_show_a_wait_of_gloo_that_no_python_frame_names() -> None:
    def sleeping(*native: str) -> ProcessTrace:
        plain = trace(5, "user", state="S")
        below = tuple(Frame(function, "libtorch_cpu.so", 0, "/usr/lib/libtorch_cpu.so") for function in native)
        thread = plain.threads[0]
        return structs.replace(plain, threads=(structs.replace(thread, frames=(*thread.frames, *below)),))

    shown = beside(sleeping("pthread_cond_wait"), "metrics")
    assert (shown.kind, first(shown), shown.evict.machines) == (Kind.SOFTWARE, (5,), ())
    waits = sleeping("c10d::ProcessGroupGloo::AsyncWork::wait", "c10d::Work::wait", "pthread_cond_wait")
    verdict = beside(waits, "metrics")
    assert (verdict.kind, verdict.evict.machines) == (Kind.SOFTWARE, ())


def test_who_asks_a_service_at_the_place_of_a_root_is_beside_it_whatever_its_counters_await() -> None:
    """One look at a data service that fails: rank 60 launched its collectives before it asked, rank 0 did not."""
    seen = [trace(rank, "disk") if rank in (0, 60) else trace(rank, "gather", state="S") for rank in range(64)]
    behind = {"0": 6}
    counters = tuple(
        RankCounters(Rank(r), behind if r == 0 else {"0": 7}, behind, (), {"0": tuple(map(Rank, range(64)))}, {})
        for r in range(64)
    )
    verdict = diagnose(replace(snapshot(seen), counters=counters), WIDE)
    assert verdict.evict.machines == ()
    alone = [*seen[:60], trace(60, "gather", state="S"), *seen[61:]]
    assert first(diagnose(replace(snapshot(alone), counters=counters), WIDE)) == (0,)
