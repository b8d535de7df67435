"""Three published traces of slow jobs, as flight recorder dumps: the worker that was slowed is named first, and nobody in the others."""

from functools import cache
from pathlib import Path

import pytest

from hangdog.evidence.open_bundle import open_bundle
from hangdog_models.collectives import RankCounters
from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.process_groups import with_seen
from hangdog_models.ranks import Rank
from hangdog_models.reading.collectives import flight_recorder
from hangdog_models.snapshot import Job, Snapshot
from hangdog_models.topology import Layout, build
from hangdog_models.verdict import Kind, Verdict
from straggler_traces.dumps import dumps, write
from straggler_traces.parquet import StrangeFile, columns
from straggler_traces.trace import TRUTH, Trace, read

TRACES = Path(__file__).parents[4] / "shared" / "corpus" / "straggler"
pytestmark = pytest.mark.skipif(
    not TRACES.is_dir(), reason="no published traces beside the repository (../shared/corpus/straggler)"
)
#: Steps that the dumps hold, of 32 to 44: the ring of a recorder holds as few of a job with many micro-batches.
STEPS = 5


@cache
def trace(name: str) -> Trace:
    return read(TRACES, name)


@cache
def records(name: str, timed: bool) -> tuple[RankCounters, ...]:
    """A dump of every rank in the middle of a step."""
    one = trace(name)
    cut_s = sum(one.borders_s[STEPS - 1 : STEPS + 1]) / 2
    return tuple(flight_recorder.read(dump, Rank(rank)) for rank, dump in dumps(one, cut_s, timed=timed))


def verdict(name: str, *, ranks_per_machine: int | None = None, timed: bool = True) -> Verdict:
    """On one dump of every rank, of a job that is known to have moved."""
    found = records(name, timed)
    every = tuple(record.rank for record in found)
    topology, _ = build(with_seen(Layout(ranks_per_machine=ranks_per_machine), found, ()), max(every))
    return diagnose(Snapshot(Job(name), (), counters=found, got_on=every), topology)


@pytest.mark.parametrize(("ranks_per_machine", "evicted"), [(None, ()), (4, ("node-0",)), (8, ("node-0",))])
def test_the_slowed_worker_is_named_first(ranks_per_machine: int | None, evicted: tuple[str, ...]) -> None:
    answer = verdict("AR", ranks_per_machine=ranks_per_machine)
    guilty, _ = TRUTH["AR"]
    assert (answer.kind, answer.suspects[0].ranks, answer.evict.machines) == (Kind.SLOW, guilty, evicted)
    assert answer.suspects[0].probability > 0.95


@pytest.mark.parametrize("ranks_per_machine", [None, 2, 8])
@pytest.mark.parametrize("name", ["SE", "ST"])
def test_nobody_is_named_for_uneven_samples_or_a_longer_stage(name: str, ranks_per_machine: int | None) -> None:
    answer = verdict(name, ranks_per_machine=ranks_per_machine)
    assert (answer.kind, answer.suspects, answer.evict.machines) == (Kind.NONE, (), ())


@pytest.mark.parametrize("name", ["AR", "ST"])
def test_without_times_nobody_is_named(name: str) -> None:
    answer = verdict(name, timed=False)
    assert (answer.kind, answer.suspects) == (Kind.NONE, ())


def test_two_rounds_of_dumps_alone_show_a_job_that_moves(tmp_path: Path) -> None:
    write(trace("ST"), tmp_path / "bundle")
    snapshot, layout = open_bundle(tmp_path / "bundle")
    topology, _ = build(layout, snapshot.highest_rank())
    answer = diagnose(snapshot, topology)
    assert (answer.kind, answer.evidence.unreadable) == (Kind.NONE, {})
    assert topology.groups["dp"][-1] == (6, 7) and topology.groups["mp"][0] == (0, 2, 4, 6)


@pytest.mark.parametrize(
    ("name", "rows", "steps", "stage", "seconds"),
    [("AR", 117_216, 44, 0, 32 * (0.546 + 0.869)), ("ST", 6_784, 32, 3, 1.373)],
)
def test_the_traces_are_read_as_published(name: str, rows: int, steps: int, stage: int, seconds: float) -> None:
    """What the first replica's worker in one stage computes in a step, as counted by others."""
    table = columns(TRACES / f"trace-{name}.parquet")
    assert {len(values) for values in table.values()} == {rows} and len(set(table["step"])) == steps
    rows_of_worker = zip(table["optype"], table["dp_rank"], table["stage"], table["duration"], strict=True)
    computed = sum(
        float(took) for kind, dp, at, took in rows_of_worker if "compute" in str(kind) and (dp, at) == (0, stage)
    )
    assert computed / steps == pytest.approx(seconds, rel=0.01)


@pytest.mark.parametrize("damage", [slice(0, 100), slice(0, 400_000), slice(1, None)])
def test_a_damaged_trace_is_refused(damage: slice, tmp_path: Path) -> None:
    path = tmp_path / "trace.parquet"
    path.write_bytes((TRACES / "trace-AR.parquet").read_bytes()[damage])
    with pytest.raises(StrangeFile):
        columns(path)
