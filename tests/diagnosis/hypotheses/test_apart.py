"""Where all wait and no frame says for whom, those who stand apart together name their group, and nobody is evicted."""

from dataclasses import replace

import pytest

from hangdog_models.collectives import WATCHDOG, CollectiveRecord, RankCounters
from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.ranks import Rank
from hangdog_models.topology import Layout, Topology, build
from hangdog_models.verdict import Kind, Verdict
from support.cases.reasons import codes, words_of
from support.cases.stories import C10D, STACKS, first, job, trace, twice

#: Stacks by the ranks that have them.
Places = dict[tuple[int, ...], list[str]]

SHAPE = job(tp=4, dp=4, pp=4, per_machine=4)


def told(shape: Topology, elsewhere: Places, usual: list[str]) -> Verdict:
    """Everybody stands at one place but those named."""
    stacks = {rank: stack for ranks, stack in elsewhere.items() for rank in ranks}
    return diagnose(twice([trace(rank, stacks.get(rank, usual)) for rank in range(shape.world_size)]), shape)


def sync(place: str) -> list[str]:
    return ["<module> train.py", f"{place} train.py", "synchronize torch/cuda/__init__.py"]


def message(way: str) -> list[str]:
    schedules = "megatron/core/pipeline_parallel"
    return ["<module> train.py", f"{way} {schedules}/schedules.py", f"_communicate {schedules}/p2p_communication.py"]


def test_the_tensor_group_that_stands_elsewhere_is_named_with_what_would_tell_it_from_code() -> None:
    shape = job(tp=4, dp=16, per_machine=4)
    verdict = told(shape, {(20, 21, 22, 23): sync("forward")}, sync("report"))
    assert (verdict.kind, first(verdict), verdict.evict.machines) == (Kind.GROUP, (20, 21, 22, 23), ())
    assert "dumps-would-tell" in codes(verdict.because)


def test_a_tensor_group_that_waits_for_its_devices_may_wait_for_any_stage_of_its_pipelines() -> None:
    verdict = told(SHAPE, {(20, 21, 22, 23): sync("forward")}, sync("report"))
    assert (verdict.kind, verdict.evict.machines) == (Kind.GROUP, ())
    assert first(verdict) == tuple(rank for stage in range(4) for rank in range(16 * stage + 4, 16 * stage + 8))
    tensor = ["<module> train.py", "_reduce megatron/core/tensor_parallel/mappings.py", f"all_reduce {C10D}"]
    assert first(told(SHAPE, {(20, 21, 22, 23): tensor}, sync("report"))) == (20, 21, 22, 23)  # it waits for itself


def test_the_smallest_group_that_holds_them_all_is_meant() -> None:
    verdict = told(SHAPE, {(5,): sync("forward"), (21,): sync("loss")}, sync("report"))
    assert first(verdict) == (5, 21, 37, 53)  # one pipeline
    assert verdict.suspects[0].probability > 0.8  # a collective joins whole tensor groups: only messages part them so


def test_one_rank_alone_or_ranks_that_share_no_group_name_nobody() -> None:
    for odd in ((21,), (1, 22, 43)):
        verdict = told(SHAPE, {odd: sync("forward")}, sync("report"))
        assert verdict.kind is Kind.UNDETERMINED, odd


def test_a_replica_that_waits_for_nothing_may_as_well_have_been_led_there_by_the_code() -> None:
    verdict = told(job(tp=4, dp=16, per_machine=4), {(20, 21, 22, 23): STACKS["user"]}, sync("report"))
    assert (verdict.kind, first(verdict)) == (Kind.UNDETERMINED, (20, 21, 22, 23))
    assert "ranks 20-23" in words_of(verdict.because, "apart-in-group")


def test_messages_stuck_where_a_step_ends_are_told_from_those_that_hold_a_whole_pipeline_up() -> None:
    def stuck(stage: int) -> Verdict:
        ends = {
            tuple(range(16 * at + 4, 16 * at + 8)): message(way)
            for at, way in ((stage, "send_forward_recv_backward"), (stage + 1, "send_backward_recv_forward"))
        }
        last = {tuple(rank for rank in range(48, 64) if not 52 <= rank < 56): message("send_backward")}
        return told(SHAPE, {**last, (52, 53, 54, 55): message("send_backward"), **ends}, message("recv_backward"))

    assert (stuck(0).kind, first(stuck(0))) == (Kind.GROUP, (4, 5, 6, 7, 20, 21, 22, 23))
    assert (stuck(2).kind, first(stuck(2))) == (Kind.UNDETERMINED, (36, 37, 38, 39, 52, 53, 54, 55))


def test_who_is_elsewhere_while_others_are_at_a_barrier_went_another_way_through_the_code() -> None:
    barrier = ["<module> train.py", "after_loop train.py", f"barrier {C10D}"]
    assert told(SHAPE, {(20, 21, 22, 23): sync("forward")}, barrier).kind is not Kind.GROUP


def test_both_ends_of_a_message_are_named_where_their_tensor_peers_are_past_it() -> None:
    ends: Places = {(21,): message("send_forward_recv_backward"), (37,): message("send_backward_recv_forward")}
    stages: Places = {tuple(range(16)): message("recv_backward"), (20, 22, 23): message("recv_backward")}
    verdict = told(SHAPE, {**stages, **ends}, sync("report"))
    assert (verdict.kind, first(verdict), verdict.evict.machines) == (Kind.GROUP, (21, 37), ())
    assert "message-lost" in codes(verdict.because)


@pytest.mark.parametrize(
    ("here", "there"), [("_exec_send_activations", "_exec_recv_activations"), ("_exec_recv_grads", "_exec_send_grads")]
)
def test_deepspeeds_messages_tell_their_way_further_out(here: str, there: str) -> None:
    """Its engine calls `p2p.send` and `p2p.recv` either way (DeepSpeed 0.5 to 0.17, runtime/pipe/engine.py)."""

    def exchange(way: str) -> list[str]:
        engine, call = "deepspeed/runtime/pipe/engine.py", "send" if "send" in way else "recv"
        outer = ["<module> train.py", f"train_batch {engine}", f"_exec_schedule {engine}", f"{way} {engine}"]
        return [*outer, f"{call} deepspeed/runtime/pipe/p2p.py", f"{call} {C10D}"]

    verdict = told(SHAPE, {(21,): exchange(here), (37,): exchange(there)}, sync("report"))
    assert (verdict.kind, first(verdict), verdict.evict.machines) == (Kind.GROUP, (21, 37), ())


def test_two_ends_that_do_not_belong_to_one_message_are_no_pair() -> None:
    ends: Places = {(21,): message("send_forward"), (37,): message("send_forward")}
    assert first(told(SHAPE, ends, sync("report"))) != (21, 37)


def test_the_one_pipeline_that_waits_for_itself_is_named_and_not_the_code_of_two_sides() -> None:
    reduce = ["<module> train.py", "sync_gradients train.py", f"all_reduce {C10D}"]
    verdict = told(job(dp=16, pp=4, per_machine=4), {(3, 19, 35, 51): message("relay")}, reduce)
    assert (verdict.kind, first(verdict)) == (Kind.GROUP, (3, 19, 35, 51))


def test_a_group_on_most_machines_is_not_named() -> None:
    shape = job(dp=16, pp=2, per_machine=2)
    verdict = told(shape, {tuple(range(0, 12, 2)): sync("forward")}, sync("report"))
    assert verdict.kind is Kind.UNDETERMINED


def test_a_capture_that_failed_elsewhere_hides_nobody() -> None:
    odd, usual = sync("forward"), sync("report")
    traces = [trace(rank, "timed out" if rank == 50 else odd if 20 <= rank < 24 else usual) for rank in range(64)]
    verdict = diagnose(twice(traces), job(tp=4, dp=16, per_machine=4))
    assert (verdict.kind, first(verdict), verdict.evict.machines) == (Kind.GROUP, (20, 21, 22, 23), ())


def test_peers_that_nobody_saw_do_not_stand_elsewhere() -> None:
    ends = {21: message("send_forward"), 37: message("recv_forward"), 20: "timed out", 22: "timed out", 23: "timed out"}
    others = {rank: sync("report") for rank in range(64)} | {36: ends[37], 38: ends[37], 39: ends[37]}
    verdict = diagnose(twice([trace(rank, stack) for rank, stack in (others | ends).items()]), SHAPE)
    assert "message-lost" not in codes(verdict.because)


def test_a_switch_is_meant_only_where_all_below_it_stand_apart() -> None:
    leaves = {f"leaf-{at}": tuple(f"node-{machine}" for machine in range(4 * at, 4 * at + 4)) for at in range(8)}
    layout = Layout(sizes={"dp": 64}, ranks_per_machine=2, switches=leaves)
    shape, _ = build(layout, None)
    below = tuple(range(8, 16))
    assert first(told(shape, {below: sync("forward")}, sync("report"))) == below
    assert told(shape, {below[:6]: sync("forward")}, sync("report")).kind is Kind.UNDETERMINED


def test_a_rank_of_which_only_counters_are_known_is_no_side_of_its_own() -> None:
    """Its counters name an operation, and the others' frames a place: that may be the very same."""
    gathers = ["step train.py", f"all_gather_into_tensor {C10D}"]
    story = twice([trace(rank, gathers) for rank in range(8) if rank != 2])
    entry = CollectiveRecord("0", 7, "nccl:_all_gather_base", done=False)
    counters = RankCounters(Rank(2), {"0": 7}, {"0": 6}, (entry,), {}, {"0": "default_pg"}, source=WATCHDOG)
    verdict = diagnose(replace(story, counters=(counters,)), job(dp=8))
    assert verdict.kind is not Kind.SOFTWARE


def test_a_pipeline_whose_tensor_peer_left_no_stack_shows_no_lost_message() -> None:
    """Rank 3 was not captured. Its pipeline waits for it; the other one waits for a stage whose device waits for it."""
    shape = job(tp=4, dp=4, pp=4, per_machine=4)
    stacks = {rank: message("recv_forward") for rank in (18, 19, 34, 35, 50, 51)} | {2: message("send_forward")}
    seen = [trace(rank, stacks.get(rank, sync("clip"))) for rank in range(64) if rank != 3]
    verdict = diagnose(twice(seen), shape)
    assert verdict.culprit is not None and verdict.culprit.ranks == (3,)
    assert (verdict.kind, verdict.evict.machines) == (Kind.UNDETERMINED, ())
    complete = diagnose(twice([*seen, trace(3, message("send_forward"))]), shape)
    assert complete.culprit is None or complete.culprit.ranks != (3,)
