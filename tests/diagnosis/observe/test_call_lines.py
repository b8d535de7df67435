"""Who stands at another line of the function that its like are in is told from them, and lines that merely jitter tell nothing."""

from collections.abc import Mapping

import pytest

from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.ranks import Rank, parse_ranks
from hangdog_models.stack import Frame, ProcessState, ProcessTrace, Thread
from hangdog_models.topology import Topology
from hangdog_models.verdict import Kind, Verdict
from support.cases.stories import C10D, first, job, snapshot, trace, twice

REPLICAS = job(dp=8, per_machine=1)
#: A function that calls an operation, at the line that is asked for.
CALLS = ("<module> train.py 3", "main train.py 40", "average train.py {}")
REDUCES, BROADCASTS, SLEEPS = f"all_reduce {C10D} 900", f"broadcast {C10D} 800", "poll mine.py 7"


def frames(*written: str) -> tuple[Frame, ...]:
    return tuple(Frame(name, file, int(line)) for name, file, line in (text.split() for text in written))


def standing(rank: int, stack: tuple[Frame, ...], *, active: bool | None = False) -> ProcessTrace:
    thread = Thread("MainThread", 1000 + rank, stack, active)
    if active is None:  # as of a tool that does not tell
        return ProcessTrace(Rank(rank), pid=1000 + rank, threads=(thread,))
    return ProcessTrace(
        Rank(rank), pid=1000 + rank, threads=(thread,), state=ProcessState(1000 + rank, "R" if active else "S")
    )


def at_lines(lines: Mapping[str, int], *inner: str, active: bool | None = False) -> list[ProcessTrace]:
    """Traces from `{"0": 103, "1-7": 100}`: ranks by the line at which they call what is further in."""
    found = []
    for ranks, line in lines.items():
        stack = frames(*(call.format(line) for call in CALLS), *inner)
        found += [standing(rank, stack, active=active) for rank in parse_ranks(ranks)]
    return found


def judged(traces: list[ProcessTrace], topology: Topology = REPLICAS, *, looks: int = 2) -> Verdict:
    return diagnose(twice(traces) if looks > 1 else snapshot(traces), topology)


def test_one_rank_in_another_call_of_the_same_function_is_the_odd_one() -> None:
    verdict = judged(at_lines({"3": 103, "0-2,4-7": 100}, REDUCES))
    assert (verdict.kind, first(verdict), verdict.evict.machines) == (Kind.SOFTWARE, (3,), ())
    assert "at line 103" in verdict.suspects[0].because[0].text


def test_one_rank_asleep_at_another_line_of_the_same_function_is_the_odd_one() -> None:
    verdict = judged(at_lines({"3": 103, "0-2,4-7": 100}))
    assert first(verdict) == (3,) and not verdict.evict.machines


@pytest.mark.parametrize(
    ("lines", "inner"),
    [
        ({"0-7": 100}, [REDUCES]),
        ({"0": 101, "1": 102, "2": 103, "3-7": 100}, [REDUCES]),  # they spread
        ({"0-3": 101, "4-7": 100}, [REDUCES]),  # halves: neither is the odd one
        ({"0-1": 101, "2-7": 100}, [REDUCES]),  # two machines
        ({"0": 101, "1-7": 0}, [REDUCES]),  # a tool that tells no lines
        ({"0": 103, "1-7": 100}, [BROADCASTS]),  # the source of a broadcast calls it at a line of its own
    ],
)
def test_lines_without_a_clear_odd_one_are_one_place(lines: Mapping[str, int], inner: list[str]) -> None:
    alike = judged(at_lines({"0-7": 100}, *inner))
    verdict = judged(at_lines(lines, *inner))
    assert (verdict.kind, [one.ranks for one in verdict.suspects]) == (
        alike.kind,
        [one.ranks for one in alike.suspects],
    )


def test_halves_tell_nothing_even_where_each_is_a_machine() -> None:
    topology = job(dp=8, per_machine=4)
    verdict = judged(at_lines({"0-3": 101, "4-7": 100}, REDUCES), topology)
    assert verdict.kind is judged(at_lines({"0-7": 100}, REDUCES), topology).kind


def test_another_version_of_the_files_is_no_other_call() -> None:
    """All lines of rank 3 are others, those of its callers, too."""
    shifted = frames("<module> train.py 5", "main train.py 42", "average train.py 102", REDUCES)
    traces = [*at_lines({"0-2,4-7": 100}, REDUCES), standing(3, shifted)]
    assert judged(traces).kind is judged(at_lines({"0-7": 100}, REDUCES)).kind is Kind.UNDETERMINED


def test_a_rank_whose_line_changes_between_looks_is_in_a_loop() -> None:
    before = at_lines({"3": 100, "0-2,4-7": 100}, REDUCES)
    after = at_lines({"3": 103, "0-2,4-7": 100}, REDUCES)
    assert diagnose(snapshot(before, after), REPLICAS).kind is Kind.UNDETERMINED


@pytest.mark.parametrize("active", [True, False])
def test_lines_of_a_hot_function_accuse_nobody_in_one_look(active: bool) -> None:
    verdict = judged(at_lines({"3": 103, "0-2,4-7": 100}, active=active), looks=1)
    alike = judged(at_lines({"0-7": 100}, active=active), looks=1)
    assert (verdict.kind, verdict.evict, len(verdict.suspects)) == (alike.kind, alike.evict, len(alike.suspects))


@pytest.mark.parametrize("active", [True, None])
def test_lines_of_a_hot_function_accuse_nobody_in_two_looks(active: bool | None) -> None:
    verdict = judged(at_lines({"3": 103, "0-2,4-7": 100}, active=active))
    alike = judged(at_lines({"0-7": 100}, active=active))
    assert (verdict.kind, len(verdict.suspects)) == (alike.kind, len(alike.suspects))


def test_stages_of_a_pipeline_are_compared_each_with_its_own() -> None:
    """The last stage calls it at a line of its own: its ranks are alike."""
    topology = job(pp=4, dp=2, per_machine=2)
    last = [rank for group in topology.groups["pp"] for rank in group[-1:]]
    others = [rank for rank in range(8) if rank not in last]
    traces = at_lines({",".join(map(str, last)): 103, ",".join(map(str, others)): 100}, REDUCES)
    plain = at_lines({"0-7": 100}, REDUCES)
    verdict, alike = judged(traces, topology), judged(plain, topology)
    assert len(topology.machines_of(last)) == 1
    assert (verdict.kind, first(verdict)) == (alike.kind, first(alike))


def test_who_waits_for_a_culprit_needs_no_line_of_its_own() -> None:
    """A host at fault is named all the same, where one of the ranks that wait for it waits at another line."""
    traces = [trace(0, "loader"), *at_lines({"3": 103, "1-2,4-7": 100}, REDUCES)]
    assert first(judged(traces)) == (0,)
