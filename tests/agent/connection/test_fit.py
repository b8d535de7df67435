"""A look that is too large for the server loses its largest stacks, never its processes."""

from hangdog_agent.connection.answer import fitting
from hangdog_models.ranks import Rank
from hangdog_models.stack import Frame, ProcessState, ProcessTrace, Reason, Thread
from hangdog_proto.codec.traces import unpack


def trace(rank: int, frames: int) -> ProcessTrace:
    stack = tuple(Frame(f"function_{rank}_{at}", f"file_{rank}_{at}.py", at) for at in range(frames))
    return ProcessTrace(
        Rank(rank), pid=rank + 1, threads=(Thread("MainThread", 1, stack),), state=ProcessState(rank + 1, "S")
    )


def test_what_fits_travels_whole() -> None:
    traces = [trace(0, 10), trace(1, 20)]
    assert unpack(fitting(traces, 1 << 20)) == tuple(traces)
    assert unpack(fitting(traces, 0)) == tuple(traces)


def test_the_largest_gives_way_and_says_so() -> None:
    there = unpack(fitting([trace(0, 10), trace(1, 500), trace(2, 12)], 4_000))
    assert [len(one.threads) for one in there] == [1, 0, 1]
    assert there[1].missing is not None and there[1].missing.reason is Reason.TOOL_FAILED
    assert there[1].state == ProcessState(2, "S")


def test_a_bound_nothing_can_meet_still_ends() -> None:
    assert [one.threads for one in unpack(fitting([trace(0, 5), trace(1, 5)], 1))] == [(), ()]
