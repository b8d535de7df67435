"""The peer is what was published: its own figure comes out as printed, and where it is silent it is treated kindly."""

import pytest
from msgspec import structs

from accuracy.peer import aggregate, cleaned
from hangdog_models.snapshot import Snapshot
from hangdog_models.stack import Frame, ProcessTrace, Thread
from hangdog_models.topology import Layout, Topology, build
from support.cases.stories import look, snapshot, trace

RECEIVE = ["<module> train.py", "irecv torch/distributed/distributed_c10d.py"]
SEND = ["<module> train.py", "isend torch/distributed/distributed_c10d.py"]


def job(order: str = "tp-pp-dp", per_machine: int = 2, **sizes: int) -> Topology:
    topology, notes = build(Layout(order=tuple(order.split("-")), sizes=sizes, ranks_per_machine=per_machine), None)
    assert not notes
    return topology


def nodes(*numbers: int) -> tuple[str, ...]:
    return tuple(f"node-{number}" for number in numbers)


FIGURE = [
    *look({"0-23": "metrics", "30-31": "gather"}),
    *(trace(rank, RECEIVE) for rank in range(24, 28)),
    *(trace(rank, SEND) for rank in (28, 29)),
]


def test_the_papers_figure_loses_one_pipeline() -> None:
    """Fig. 7: sixteen machines of two GPUs, TP 2, PP 4, DP 4; the last pipeline stands in three odd places."""
    answer = aggregate(snapshot(FIGURE), job(tp=2, pp=4, dp=4))
    assert answer.outliers == tuple(range(24, 32))
    assert (answer.dim, answer.machines) == ("pp", nodes(12, 13, 14, 15))


def test_the_order_of_the_traces_changes_nothing() -> None:
    shape = job(tp=2, pp=4, dp=4)
    assert aggregate(snapshot(FIGURE[::-1]), shape) == aggregate(snapshot(FIGURE), shape)


def test_a_job_that_stands_in_one_place_loses_nobody() -> None:
    assert aggregate(snapshot(look({"0-31": "metrics"})), job(tp=2, pp=4, dp=4)).machines == ()


def test_nothing_seen_is_no_reason_to_evict() -> None:
    assert aggregate(snapshot(), job(tp=2, dp=4)).machines == ()
    assert aggregate(snapshot(look({"0-7": "timed out"})), job(tp=2, dp=4)).machines == ()


def test_outliers_without_a_shared_group_narrower_than_the_job_lose_nobody() -> None:
    shape = job(tp=2, pp=2, dp=4)  # node-0 and node-7 share neither a pipeline nor a stage
    answer = aggregate(snapshot(look({"0,15": "loader", "1-14": "metrics"})), shape)
    assert answer.outliers == (0, 15)
    assert answer.machines == ()


def test_a_group_as_wide_as_the_job_is_no_fault_domain() -> None:
    assert aggregate(snapshot(look({"0,7": "loader", "1-6": "metrics"})), job(dp=8)).machines == ()


def test_stages_are_compared_with_themselves() -> None:
    """Each stage of a sound pipeline has its own place, and the first is small beside the whole job."""
    shape = job("tp-dp-pp", tp=2, dp=4, pp=4)
    sound = look({"0-7": "metrics", "8-31": "stage"})
    assert aggregate(snapshot(sound), shape).outliers == ()
    sound[9] = trace(9, "loader")
    assert aggregate(snapshot(sound), shape).machines == nodes(4)


def test_halves_convict_nobody() -> None:
    assert aggregate(snapshot(look({"0-3": "gather", "4-7": "scatter"})), job(tp=2, dp=4)).outliers == ()


def test_lines_do_not_tell_places_apart() -> None:
    traces = [trace(rank, "metrics", shift=rank) for rank in range(8)]
    assert aggregate(snapshot(traces), job(tp=2, dp=4)).outliers == ()


def test_helper_threads_and_native_frames_do_not_tell_places_apart() -> None:
    traces = [trace(rank, "metrics") for rank in range(8)]
    main = traces[3].threads[0]
    deeper = structs.replace(main, frames=(*main.frames, Frame("poll", "", module="libc.so.6")))
    helper = Thread("pin_memory", 9, (Frame("wait", "threading.py"),))
    traces[3] = structs.replace(traces[3], threads=(helper, deeper))
    assert aggregate(snapshot(traces), job(tp=2, dp=4)).outliers == ()


def test_a_data_loader_counts_and_a_launcher_does_not() -> None:
    def crowd(role: str) -> list[ProcessTrace]:
        extra = [structs.replace(trace(rank, "write" if rank == 5 else "item"), role=role) for rank in range(8)]
        return [*look({"0-7": "metrics"}), *extra]

    shape = job(tp=2, dp=4)
    assert aggregate(snapshot(crowd("dataloader-0")), shape).machines == nodes(2)
    assert aggregate(snapshot(crowd("launcher")), shape).machines == ()


@pytest.mark.parametrize(("reason", "evicted"), [("exited", nodes(2)), ("tool failed", ()), ("timed out", ())])
def test_a_process_that_is_gone_tells_and_a_tool_that_failed_does_not(reason: str, evicted: tuple[str, ...]) -> None:
    named = {"exited": "exited", "tool failed": "capture tool failed", "timed out": "timed out"}[reason]
    traces = look({"0-3,6-7": "metrics", "4": named, "5": "metrics"})
    assert aggregate(snapshot(traces), job(tp=2, dp=4)).machines == evicted


def test_a_halted_process_is_told_by_its_state_and_not_by_its_stack() -> None:
    traces = [trace(rank, "metrics", state="T" if rank == 5 else "S") for rank in range(8)]
    assert aggregate(snapshot(traces), job(tp=2, dp=4)).machines == nodes(2)


def test_a_machine_that_gives_no_stack_is_an_outlier_and_half_of_them_are_the_collectors_fault() -> None:
    shape = job(tp=2, dp=4)
    assert aggregate(snapshot(look({"0-3,6-7": "metrics", "4-5": "timed out"})), shape).machines == nodes(2)
    assert aggregate(snapshot(look({"0-3,6-7": "metrics", "4": "timed out", "5": "metrics"})), shape).machines == ()
    half = snapshot(look({"0-3": "metrics", "4-7": "timed out"}))
    assert aggregate(half, job(tp=2, pp=2, dp=2)).machines == ()  # although the silent half is one pipeline


def test_cleaned_stacks_lose_what_hangdog_drops() -> None:
    helper = ["<module> train.py", "decorate_context torch/utils/_contextlib.py"]
    traces = look({"0-7": "metrics"})
    traces[3] = trace(3, [*helper, "log_metrics train.py", "all_reduce torch/distributed/distributed_c10d.py"])
    assert aggregate(snapshot(traces), job(tp=2, dp=4)).outliers == (3,)
    assert aggregate(snapshot(traces), job(tp=2, dp=4), cleaned).outliers == ()


def moving(odd: list[str], *rest: str) -> Snapshot:
    """Five looks at eight ranks that move on; in each the ranks named in `odd` stand apart."""
    rounds = []
    for number, ranks in enumerate(odd):
        place = "metrics" if number % 2 else "backward"
        away = set() if not ranks else {int(rank) for rank in ranks.split(",")}
        rounds.append([trace(rank, "user" if rank in away else place) for rank in range(8)])
    return snapshot(*rounds)


def test_a_slow_job_loses_the_group_flagged_most_often() -> None:
    shape = job(tp=2, dp=4)
    assert aggregate(moving(["4", "5", "0", "4,5", "1"]), shape).machines == nodes(2)
    assert aggregate(moving(["0", "5", "0", "4,5", "1"]), shape).machines == nodes(0)


def test_votes_are_counted_by_round_and_not_by_rank() -> None:
    shape = job(tp=2, dp=4)
    assert aggregate(moving(["2", "0,1", "2", "0,1", "2"]), shape).machines == nodes(1)


def test_a_slow_job_without_outliers_loses_nobody() -> None:
    assert aggregate(moving(["", "", "", "", ""]), job(tp=2, dp=4)).machines == ()


def test_five_looks_at_a_job_that_stands_are_one_look() -> None:
    shape = job(tp=2, pp=4, dp=4)
    assert aggregate(snapshot(*[FIGURE] * 5), shape).machines == nodes(12, 13, 14, 15)
