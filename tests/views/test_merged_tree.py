"""The merged stack tree: every rank once, the rank sets of callers hold those of what they call, natives fall below."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from hangdog_models.ranks import Rank, format_runs, meet, parse_ranks, runs_of, size, united
from hangdog_models.stack import Frame
from hangdog_models.views.collapsed_tree import folded
from hangdog_models.views.stack_tree import Node, merged, path

FRAMES = st.builds(
    Frame,
    st.sampled_from(["main", "step", "all_reduce", "<b>x</b>", "f"]),
    st.sampled_from(["train.py", "c10d.py"]),
    st.integers(0, 3),
    st.sampled_from([None, None, "libc.so"]),
)
STACKS = st.lists(st.lists(FRAMES, max_size=6).map(tuple), min_size=1, max_size=12)


@st.composite
def jobs(draw: st.DrawFn) -> dict[tuple[Frame, ...], list[Rank]]:
    """Ranks by their stack, each rank once."""
    stacks = draw(st.lists(st.lists(FRAMES, min_size=1, max_size=6).map(tuple), min_size=1, max_size=8, unique=True))
    found: dict[tuple[Frame, ...], list[Rank]] = {}
    for rank in range(draw(st.integers(1, 40))):
        found.setdefault(draw(st.sampled_from(stacks)), []).append(Rank(rank))
    return found


def ends(nodes: tuple[Node, ...]) -> Counter[int]:
    return Counter(rank for node in nodes for rank in parse_ranks(format_runs(node.ends)))


@given(jobs())
@settings(max_examples=25)
def test_every_rank_is_in_the_tree_once(stacks: dict[tuple[Frame, ...], list[Rank]]) -> None:
    nodes = merged(stacks)
    assert ends(nodes) == Counter(rank for ranks in stacks.values() for rank in ranks)


@given(jobs())
@settings(max_examples=25)
def test_a_caller_has_the_ranks_of_what_it_calls_and_those_that_end_with_it(
    stacks: dict[tuple[Frame, ...], list[Rank]],
) -> None:
    nodes = merged(stacks)
    for at, node in enumerate(nodes):
        assert node.parent < at
        below = [callee for callee in nodes if callee.parent == at]
        assert united([node.ends, *(callee.ranks for callee in below)]) == node.ranks
        assert size(node.ends) + sum(size(callee.ranks) for callee in below) == size(node.ranks)
        assert all(callee.depth == node.depth + 1 for callee in below)
        assert len({callee.call for callee in below}) == len(below)


@given(jobs())
@settings(max_examples=25)
def test_a_rank_set_of_the_tree_reads_back(stacks: dict[tuple[Frame, ...], list[Rank]]) -> None:
    for node in merged(stacks):
        assert runs_of(parse_ranks(format_runs(node.ranks))) == node.ranks


@given(jobs())
@settings(max_examples=25)
def test_limbs_hold_every_call_of_the_tree_in_its_order(stacks: dict[tuple[Frame, ...], list[Rank]]) -> None:
    nodes = merged(stacks)
    limbs = folded(nodes)
    assert [call for limb in limbs for call in limb.calls] == [node.call for node in nodes]
    assert sum(size(limb.ends) for limb in limbs) == sum(map(len, stacks.values()))


@given(jobs(), st.integers(1, 4))
@settings(max_examples=25)
def test_limbs_that_are_left_out_are_counted_and_never_a_suspects_before_another(
    stacks: dict[tuple[Frame, ...], list[Rank]], most: int
) -> None:
    suspect = runs_of([0])
    everything = folded(merged(stacks), suspect)
    limbs = folded(merged(stacks), suspect, most)
    assert len(limbs) == min(most, len(everything))
    assert sum(limb.suspect for limb in limbs) == min(most, sum(limb.suspect for limb in everything))
    assert all(limb.suspect == meet(suspect, limb.ranks) for limb in limbs)
    if len(limbs) == len(everything):
        assert not any(limb.hidden for limb in limbs)


def test_native_frames_hang_below_the_python_frame_that_ranks_without_them_end_in() -> None:
    main, wait = Frame("main", "train.py", 3), Frame("all_reduce", "c10d.py", 9)
    native = Frame("poll", "", module="/usr/lib/libc.so.6")
    start = Frame("_start", "", module="python3")
    nodes = merged({(main, wait): [Rank(0)], (start, main, native, wait, native): [Rank(1)]})
    assert [node.call.function for node in nodes] == ["main", "all_reduce", "poll"]
    assert [format_runs(node.ranks) for node in nodes] == ["0-1", "0-1", "1"]
    assert path((start, native))[0].function == "_start", "a stack of native frames alone keeps them"


def test_a_recursion_of_thousands_is_bounded_and_costs_no_recursion_of_ours() -> None:
    deep = tuple(Frame(f"f{at}", "train.py") for at in range(5000))
    nodes = merged({deep: [Rank(7)]})
    assert nodes[0].call.function == "f0" and nodes[-1].call.function == "f4999" and len(nodes) == 400
    assert len(folded(nodes)) == 1
