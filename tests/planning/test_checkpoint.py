"""The checkpoint gate: no eviction takes the last copy of a shard unseen."""

from hypothesis import given
from hypothesis import strategies as st

from hangdog_models.planning.checkpoint import Price, gate, lost

COPIES = {"shard-0": ("a", "c"), "shard-1": ("b", "d"), "shard-2": ("c", "a")}


def test_a_set_that_leaves_copies_may_go() -> None:
    answer = gate([["a", "b"]], COPIES)
    assert (answer.machines, answer.lost) == (("a", "b"), {})
    assert "every shard keeps a copy" in answer.because[-1]


def test_the_next_set_is_taken_and_the_shards_are_named() -> None:
    answer = gate([["a", "c"], ["a"]], COPIES)
    assert answer.machines == ("a",)
    assert answer.lost == {("a", "c"): ("shard-0", "shard-2")}
    assert "shards shard-0, shard-2" in answer.because[0]


def test_nobody_goes_where_every_set_loses_something_and_the_price_is_told() -> None:
    answer = gate([["a", "c"], ["b", "d"]], COPIES, Price(1200.0, 1024))
    assert not answer.machines
    assert len(answer.lost) == 2
    assert "20 min of training are done again, 341.3 GPU hours" in answer.because[-1]


def test_without_a_manifest_the_copies_in_memory_count_as_lost() -> None:
    answer = gate([["a"]], None, Price(60.0))
    assert answer.machines == ("a",)
    assert answer.because == (
        "nobody says who holds copies of the checkpoint",
        "copies in memory count as lost: 1 min of training are done again",
    )
    assert gate([["a"]], None).because == ("nobody says who holds copies of the checkpoint",)
    assert gate([[], []], None).machines == ()


MACHINES = st.sampled_from("abcdef")


@given(
    st.dictionaries(st.text("xyz", min_size=1), st.frozensets(MACHINES, min_size=1), max_size=6),
    st.lists(st.lists(MACHINES, min_size=1, unique=True), max_size=4),
)
def test_whoever_may_go_leaves_a_copy_of_every_shard(
    copies: dict[str, frozenset[str]], choices: list[list[str]]
) -> None:
    answer = gate(choices, copies)
    assert all(holders - set(answer.machines) for holders in copies.values())
    assert answer.because
    if not answer.machines:
        assert all(lost(machines, copies) for machines in choices)
