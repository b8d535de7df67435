"""The checkpoint gate: no eviction takes the last copy of a shard unseen."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.planning.checkpoint import Price, forbids, gate, lost, read_copies

COPIES = {"shard-0": ("a", "c"), "shard-1": ("b", "d"), "shard-2": ("c", "a")}


def test_a_set_that_leaves_copies_may_go() -> None:
    answer = gate([["a", "b"]], COPIES)
    assert (answer.machines, answer.lost) == (("a", "b"), {})
    assert len(answer.reasons) == 1 and "a, b" in answer.reasons[0]


def test_the_next_set_is_taken_and_the_shards_are_named() -> None:
    answer = gate([["a", "c"], ["a"]], COPIES)
    assert answer.machines == ("a",)
    assert answer.lost == {("a", "c"): ("shard-0", "shard-2")}
    assert "shards shard-0, shard-2" in answer.reasons[0]


def test_nobody_goes_where_every_set_loses_something_and_the_price_is_told() -> None:
    answer = gate([["a", "c"], ["b", "d"]], COPIES, Price(1200.0, 1024))
    assert not answer.machines
    assert len(answer.lost) == 2
    assert "20 min" in answer.reasons[-1] and "341.3 GPU hours" in answer.reasons[-1]


def test_without_a_manifest_the_copies_in_memory_count_as_lost() -> None:
    answer = gate([["a"]], None, Price(60.0))
    assert answer.machines == ("a",)
    unknown, price = answer.reasons
    assert price.endswith(f": {Price(60.0)}") and "1 min" in price and "GPU" not in price
    assert gate([["a"]], None).reasons == (unknown,)
    assert gate([[], []], None).machines == ()


def test_machines_that_hold_the_last_copy_together_are_forbidden_and_a_part_that_may_go_is_named() -> None:
    assert forbids(["a", "b"], (), COPIES) == ""
    told = forbids(["a", "c", "a"], (), COPIES)
    assert told.startswith("taking a, c would ") and "shards shard-0, shard-2, taking a alone" in told
    told = forbids("abc", (), {"x": ("a", "b", "c")})
    assert told.startswith("taking a, b, c would ") and "shard x, taking a, b alone" in told
    told = forbids(["a"], (), {"x": ("a",)})
    assert told.startswith("taking a would ") and told.endswith(" shard x")


def test_copies_on_machines_that_are_out_count_for_nothing_and_what_is_lost_already_forbids_nothing() -> None:
    assert forbids(["a"], {"c"}, COPIES).endswith(" shards shard-0, shard-2")
    assert forbids(["b"], {"a", "c"}, COPIES) == "" and forbids(["b"], (), {"x": ()}) == ""


def test_what_a_shard_is_called_is_shown_in_one_line_of_some_length() -> None:
    told = forbids(["a"], (), {"x\x00\x1b[2J\n\ud800": ("a",), "y" * (1 << 20): ("a",)})
    assert told.isprintable() and "shards x\\x00\\x1b[2J \\ud800, yyy" in told and len(told) < 300


@pytest.mark.parametrize("text", ["", "[]", '{"x": "a"}', '{"x": [1]}', '{"x": null}', '{"x": ["a"]', "[" * 9999])
def test_what_says_nothing_of_copies_is_refused(text: str) -> None:
    with pytest.raises(UnreadableEvidence):
        read_copies(text)
    assert read_copies('{"x": ["a", "b"]}') == {"x": ["a", "b"]}


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
    assert answer.reasons
    if not answer.machines:
        assert all(lost(machines, copies) for machines in choices)
