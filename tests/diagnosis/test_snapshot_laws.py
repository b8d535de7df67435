"""Laws of the nouns around a diagnosis: parts unite in any order, and what we write reads back as it was."""

import json
import tempfile
from itertools import permutations
from pathlib import Path
from random import Random
from zipfile import ZipFile

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hangdog.demo.evidence import write_trace
from hangdog.evidence.open_bundle import open_bundle
from hangdog_models.collectives import FLIGHT_RECORDER, WATCHDOG, RankCounters, RasCommunicator, RasReport
from hangdog_models.errors import WrongUse
from hangdog_models.findings import Finding, Impact
from hangdog_models.ranks import Rank, format_ranks, parse_ranks
from hangdog_models.snapshot import Account, Job, Round, Snapshot, merged
from hangdog_models.stack import ProcessTrace
from hangdog_models.verdict import Verdict, from_json, to_json
from support.cases.stories import STACKS, trace
from support.cases.strategies import verdicts
from support.refused import refused

#: Milliseconds each, where nothing else runs; a busy machine must not fail them.
RANKS = st.integers(0, 3)
TRACES = st.builds(
    trace, RANKS, st.sampled_from([*STACKS, "timed out", "exited"]), state=st.sampled_from(["", "S", "D"])
)
COUNTERS = st.builds(
    lambda rank, number, source: RankCounters(Rank(rank), {"0": number}, {"0": number - 1}, (), {}, {}, source=source),
    RANKS,
    st.integers(0, 3),
    st.sampled_from([FLIGHT_RECORDER, WATCHDOG]),
)
REPORTS = st.builds(
    lambda size, at_s: RasReport((RasCommunicator("0xfeed", size),), at_s=at_s),
    st.integers(1, 3),
    st.none() | st.floats(0, 9),
)
FINDINGS = st.builds(
    lambda code, machine: Finding("kernel", code, Impact.SUSPECTS, "an event", machine),
    st.sampled_from(["Xid 79", "Xid 48"]),
    st.sampled_from("ab"),
)
PATHS = st.sampled_from(["a.txt", "b.txt", "c.txt"])
ACCOUNTS = st.builds(
    Account,
    st.integers(0, 9),
    st.lists(PATHS, max_size=2).map(tuple),
    st.dictionaries(PATHS, st.sampled_from(["empty", "not JSON"]), max_size=2),
    st.lists(st.sampled_from(["one remark", "another"]), max_size=2).map(tuple),
)


@st.composite
def parts(draw: st.DrawFn) -> Snapshot:
    """What one sender knows, contradicting others as it may."""
    numbers = draw(st.lists(st.integers(0, 2), unique=True, max_size=3))
    traces = st.lists(TRACES, max_size=3, unique_by=lambda noun: noun.rank).map(tuple)
    return Snapshot(
        job=Job(
            draw(st.sampled_from(["", "j"])),
            draw(st.sampled_from(["", "fsdp", "megatron"])),
            draw(st.sampled_from([None, 20.0, 1800.0])),
        ),
        rounds=tuple(Round(number, draw(traces)) for number in sorted(numbers)),
        interval_s=draw(st.sampled_from([None, 1.0, 2.0])),
        counters=tuple(draw(st.lists(COUNTERS, max_size=2, unique_by=lambda noun: (noun.rank, noun.source)))),
        ras=tuple(draw(st.lists(REPORTS, max_size=2))),
        findings=tuple(draw(st.lists(FINDINGS, max_size=2))),
        account=draw(ACCOUNTS),
    )


@given(st.lists(parts(), min_size=3, max_size=3))
def test_merging_is_associative_and_its_order_does_not_matter(several: list[Snapshot]) -> None:
    whole = merged(several)
    for a, b, c in permutations(several):
        assert merged([a, b, c]) == whole
        assert merged([merged([a, b]), c]) == merged([a, merged([b, c])]) == whole


@given(parts())
def test_merging_what_is_merged_changes_nothing(one: Snapshot) -> None:
    assert merged([merged([one])]) == merged([one])


@given(parts(), parts())
def test_merging_loses_nobody(one: Snapshot, other: Snapshot) -> None:
    whole = merged([one, other])
    for part in (one, other):
        for round_ in part.rounds:
            there = next(r for r in whole.rounds if r.number == round_.number)
            assert {(t.rank, t.role) for t in round_.traces} <= {(t.rank, t.role) for t in there.traces}
        assert set(part.findings) <= set(whole.findings)
        assert {(c.rank, c.source) for c in part.counters} <= {(c.rank, c.source) for c in whole.counters}


def test_of_two_traces_of_a_rank_the_one_with_stacks_is_kept() -> None:
    failed, seen = trace(0, "timed out"), trace(0, "loader")
    for pair in ((failed, seen), (seen, failed)):
        both = merged(Snapshot(Job("j"), (Round(0, (one,)),)) for one in pair)
        assert both.rounds[0].traces == (seen,)


def test_parts_of_two_jobs_are_refused() -> None:
    with refused("different-jobs", WrongUse, "one", "two"):
        merged([Snapshot(Job("one"), ()), Snapshot(Job("two"), ())])
    with pytest.raises(WrongUse):
        merged([])


@given(verdicts())
def test_a_verdict_reads_back_as_it_was_written(verdict: Verdict) -> None:
    written = json.loads(json.dumps(to_json(verdict)))
    assert to_json(from_json(written)) == written


@given(st.sets(st.integers(0, 300)))
def test_a_rank_set_reads_back_as_it_was_written(ranks: set[int]) -> None:
    assert parse_ranks(format_ranks(ranks)) == tuple(sorted(ranks))


@given(st.lists(st.sets(st.integers(0, 60), min_size=1), min_size=1, max_size=4))
def test_a_rank_set_is_written_in_one_way(sets: list[set[int]]) -> None:
    joined = ",".join(format_ranks(ranks) for ranks in sets)
    assert format_ranks(parse_ranks(joined)) == format_ranks(set().union(*sets))


STORIES = st.lists(st.sampled_from([*STACKS]), min_size=1, max_size=6)
KERNEL = st.sampled_from(["", "S", "R", "D"])


def told(stacks: list[str], kernel: str) -> list[ProcessTrace]:
    return [trace(rank, stack, state=kernel, active=False, gil=False) for rank, stack in enumerate(stacks)]


@settings(max_examples=25)
@given(STORIES, KERNEL)
def test_a_written_bundle_reads_back_as_the_snapshot_it_was(stacks: list[str], kernel: str) -> None:
    traces = told(stacks, kernel)
    with tempfile.TemporaryDirectory() as folder:
        for one in traces:
            write_trace(Path(folder), msgspec.to_builtins(one))
        opened, _ = open_bundle(Path(folder))
    assert merged([opened]).rounds == (Round(0, tuple(traces)),)


@settings(max_examples=25)
@given(STORIES, st.randoms(use_true_random=False))
def test_the_order_of_files_does_not_matter(stacks: list[str], chance: Random) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "bundle"
        folder.mkdir()
        for one in told(stacks, "S"):
            write_trace(folder, msgspec.to_builtins(one))
        files = sorted(folder.iterdir())
        snapshots = []
        for number in range(2):
            with ZipFile(Path(name) / f"{number}.zip", "w") as archive:
                for file in files:
                    archive.write(file, file.name)
            snapshots.append(open_bundle(Path(name) / f"{number}.zip"))
            chance.shuffle(files)
    assert snapshots[0] == snapshots[1]
