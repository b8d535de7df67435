"""What a page shows of a case: each rank in one kind and on one place of the map, counts that add up, exports that open."""

import json
import re
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from hangdog_models.ranks import Rank, format_runs, parse_ranks, size
from hangdog_models.snapshot import Round
from hangdog_models.stack import Frame, ProcessTrace, Thread
from hangdog_models.topology import Layout, build
from hangdog_models.views import grid, unique_stacks
from hangdog_models.views.exports import collapsed, speedscope
from hangdog_models.views.incident_json import document
from hangdog_models.views.postmortem import markdown, plain
from support.cases.stalled import LOADER, judged, renamed, stalled
from support.cases.stories import trace
from support.cases.strategies import TEXT, verdicts

SIZES = st.fixed_dictionaries({dim: st.integers(1, 4) for dim in ("tp", "cp", "dp", "pp")})


def unrolled(text: str) -> list[int]:
    """Reads back what `run_lengths` wrote, as the page's script does."""
    found: list[int] = []
    for part in text.split():
        value, _, times = part.partition("*")
        found += [int(value)] * int(times or 1)
    return found


@given(st.lists(st.integers(-1, 5), max_size=60))
def test_run_lengths_read_back(values: list[int]) -> None:
    assert unrolled(grid.run_lengths(values)) == values


@given(
    SIZES,
    st.sampled_from([("tp", "cp", "dp", "pp"), ("tp", "pp", "dp", "cp"), ("pp", "dp", "tp", "cp")]),
    st.integers(1, 5),
)
@settings(max_examples=25)
def test_a_rank_lies_where_it_stands_in_its_group(sizes: dict[str, int], order: tuple[str, ...], per: int) -> None:
    topology, _ = build(Layout(order=order, sizes=sizes, ranks_per_machine=per), None)
    laid = grid.laid_out(topology, [])
    for axis in laid.axes:
        for rank in map(Rank, range(topology.world_size)):
            group = topology.group(axis.dim, rank)
            machine = topology.machine(rank)
            members = group if axis.dim != grid.MACHINE else None
            at = members.index(rank) if members else int(str(machine).removeprefix("node-"))
            assert axis.place(rank) == at


def test_a_rank_without_a_group_lies_nowhere_and_odd_groups_are_told_in_full() -> None:
    groups = {"pp": ((Rank(0), Rank(3)), (Rank(2), Rank(1)))}
    topology, _ = build(Layout(world_size=5, groups=groups), None)
    laid = grid.laid_out(topology, [(Rank(4),)])
    assert laid.axes == (grid.Axis("pp", 2, places=(0, 1, 0, 1, grid.NOWHERE)),)
    assert laid.clusters == (-1, -1, -1, -1, 0)


def test_ranks_lie_behind_the_switches_of_their_machines() -> None:
    machines = {"a": (Rank(0), Rank(1)), "b": (Rank(2), Rank(3)), "c": (Rank(4), Rank(5)), "d": (Rank(6),)}
    switches = {"leaf-2": ("b", "c", "nobody"), "leaf-1": ("a",), "leaf-3": ("b",), "empty": ()}
    topology, _ = build(Layout(world_size=7, machines=machines, switches=switches), None)
    laid = grid.laid_out(topology, [])
    (axis,) = [axis for axis in laid.axes if axis.dim == grid.SWITCH]
    assert laid.switches == ("leaf-1", "leaf-2")
    assert [axis.place(Rank(rank)) for rank in range(7)] == [0, 0, 1, 1, 1, 1, grid.NOWHERE]
    one, _ = build(Layout(world_size=7, machines=machines, switches={"leaf-1": ("a", "b")}), None)
    assert grid.SWITCH not in [axis.dim for axis in grid.laid_out(one, []).axes], "one place for all divides nothing"


def test_machines_are_alike_whose_ranks_are_in_the_same_clusters() -> None:
    topology, _ = build(Layout(world_size=8, ranks_per_machine=2), None)
    laid = grid.laid_out(topology, [(Rank(0), Rank(2), Rank(4), Rank(5)), (Rank(1), Rank(3))])
    assert laid.alike == (0, 0, 1, 2), "the last one is in no cluster"


@pytest.mark.parametrize(
    ("sizes", "usual"),
    [
        ({"tp": 2, "dp": 2, "pp": 2}, ("pp", "dp")),
        ({"tp": 8}, ("machine", "")),
        ({"dp": 4, "tp": 2}, ("dp", "tp")),
        ({}, ("", "")),
    ],
)
def test_a_map_begins_with_what_tells_most(sizes: dict[str, int], usual: tuple[str, str]) -> None:
    topology, _ = build(Layout(world_size=None if sizes else 2, sizes=sizes, ranks_per_machine=2), None)
    assert grid.laid_out(topology, []).usual == usual


def test_every_rank_is_of_one_kind_and_alike_ranks_are_of_one() -> None:
    snapshot, topology = stalled(64)
    _, shown = judged(snapshot, topology)
    assert Counter(rank for kind in shown.kinds.kinds for rank in kind.ranks) == Counter(range(64))
    assert [len(kind.ranks) for kind in shown.kinds.kinds] == [56, 6, 1, 1], (
        "waiters of two sorts; two were read deeper"
    )


def test_the_stack_of_the_look_that_saw_one_is_shown_where_the_last_saw_none() -> None:
    found = unique_stacks.of([Round(0, (trace(0, "loader"),)), Round(1, (trace(0, "timed out"),))])
    assert [len(process.threads) for process in found.kinds[0].processes] == [1]


def test_threads_of_other_names_tell_ranks_apart_and_ids_do_not() -> None:
    def one(rank: int, name: str) -> ProcessTrace:
        return ProcessTrace(Rank(rank), pid=7 * rank, threads=(Thread(name, 7 * rank, LOADER),))

    found = unique_stacks.of([Round(0, (one(1, "MainThread"), one(2, "MainThread"), one(3, "other")))])
    assert [kind.ranks for kind in found.kinds] == [(1, 2), (3,)]


def test_what_is_shown_of_many_kinds_is_bounded_and_begins_with_the_suspects() -> None:
    stacks = tuple((Frame(f"f{at}", "x.py"),) * 10 for at in range(50))
    traces = tuple(ProcessTrace(Rank(at), threads=(Thread("MainThread", 0, stack),)) for at, stack in enumerate(stacks))
    found = unique_stacks.of([Round(0, traces)])
    told = unique_stacks.shown(found.kinds, frozenset({Rank(31)}), found.stacks, most=60)
    assert [kind.ranks for kind in told] == [(31,), (0,), (1,), (2,), (3,)]


def test_waiters_of_the_suspect_are_told_with_their_group() -> None:
    verdict, shown = judged(*stalled(64))
    assert verdict.suspects[0].ranks == (5,)
    around = shown.surroundings[0]
    assert [(wait.dim, format_runs(wait.inside), wait.known) for wait in around.waited_for_by] == [
        ("tp", "0-4,6-7", "by counters"),
        ("pp", "13,21,29,37,45,53,61", "by frames"),
    ]
    assert "data loader" in around.stands[0]


def test_the_least_progressed_of_a_group_come_first() -> None:
    _, shown = judged(*stalled(64))
    group = shown.progress.groups[0]
    assert [(format_runs(at.ranks), at.completed, at.enqueued) for at in group.at] == [
        ("5", 809, 810),
        ("0-4,6-7", 810, 811),
    ]
    assert group.stuck


def test_collapsed_stacks_count_every_rank_once() -> None:
    _, shown = judged(*stalled(64))
    lines = collapsed(shown.kinds).splitlines()
    assert sum(int(line.rpartition(" ")[2]) for line in lines) == 64
    assert all(re.fullmatch(r"[^;]+(;[^;]+)* \d+", line) for line in lines)


def test_speedscope_names_frames_that_are_there_and_weighs_ranks() -> None:
    _, shown = judged(*stalled(64))
    file = json.loads(json.dumps(speedscope(shown.kinds, "job")))
    (profile,) = file["profiles"]
    assert profile["endValue"] == sum(profile["weights"]) == 64
    assert max(at for sample in profile["samples"] for at in sample) == len(file["shared"]["frames"]) - 1


@given(TEXT | st.text(max_size=50))
@settings(max_examples=25)
def test_exports_hold_hostile_names_in_one_line(name: str) -> None:
    snapshot, topology = stalled(8, 2, 2, 2)
    _, shown = judged(renamed(snapshot, name), topology)
    assert all(re.fullmatch(r".+ \d+", line) for line in collapsed(shown.kinds).split("\n")[:-1])
    assert "\n" not in plain(name) and "<" not in re.sub(r"\\<", "", plain(name))


@given(verdicts())
@settings(max_examples=25)
def test_a_post_mortem_is_written_of_any_verdict(verdict: object) -> None:
    text = markdown(verdict)  # type: ignore[arg-type]
    assert all(sign.isprintable() or sign == "\n" for sign in text)


def test_the_document_of_a_large_job_names_each_stack_once() -> None:
    verdict, shown = judged(*stalled(1024))
    told = document(verdict, shown)
    assert len(told["stacks"]) == 5
    covered = [rank for ranks, _ in told["kinds"] for rank in parse_ranks(ranks)]
    assert sorted(covered) == list(range(1024))
    assert len(json.dumps(told)) < 20_000
    assert unrolled(told["clusters"])[69] == next(one.id for one in verdict.clusters if 69 in one.ranks)


def test_the_tree_of_a_case_has_every_rank_that_has_a_stack() -> None:
    _, shown = judged(*stalled(1024))
    ends = Counter(rank for node in shown.tree for rank in parse_ranks(format_runs(node.ends)))
    assert ends == Counter(set(range(1024)) - {1021})
    assert size(shown.tree[0].ranks) == 1023


@pytest.mark.parametrize("look", [0, 1])
def test_what_moved_between_looks_is_told(look: int) -> None:
    snapshot, topology = stalled(64)
    first = snapshot.rounds[0]
    odd = structs.replace(first.traces[9], threads=(Thread("MainThread", 0, LOADER, False, False),))
    before = replace(first, traces=tuple(odd if one.rank == 9 else one for one in first.traces))
    _, shown = judged(replace(snapshot, rounds=(before, snapshot.rounds[1])), topology)
    assert format_runs(shown.looks[look].moved) == ("9" if look else "")
