"""What all ranks conclude from the same reports: which copy is next, which is whole, and whose shards it lacks."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from hangdog.backup.agreement import RankReport, kept_everywhere, misplaced, next_copy, whole_copies
from hangdog.backup.shard_memory import Shard

ONE = RankReport("m0", "a:1", "new")


def held(rank: int, copy: str = "x", step: int = 10, world: int = 2) -> Shard:
    return Shard(rank, copy, step, world, 5, f"digest-{rank}")


def test_one_rank_that_waits_lets_all_wait() -> None:
    why = "still copies step 4"
    assert next_copy([ONE, replace(ONE, waits=why)]).waits == f"rank 1 {why}"
    assert next_copy([replace(ONE, copies=("a", "b")), replace(ONE, copies=("a",))]).keep == "a"


@given(st.lists(st.lists(st.sampled_from("abcd"), unique=True), min_size=1, max_size=5))
def test_what_counts_as_kept_is_kept_by_every_rank(copies: list[list[str]]) -> None:
    found = kept_everywhere([replace(ONE, copies=tuple(one)) for one in copies])
    common = set.intersection(*map(set, copies))
    assert (found in common) if common else found == ""


def test_a_backup_on_the_own_machine_is_misplaced() -> None:
    assert misplaced([ONE, ONE, replace(ONE, machine="m1")], [2, 0, 0]) == (1,)


def test_the_newest_whole_copy_is_first_and_the_rest_of_a_newer_one_is_said() -> None:
    found, lack = whole_copies(
        {"a:1": [held(0), held(0, "y", 20), held(0, "w", 5)], "b:1": [held(1), held(0), held(1, "w", 5)]}, 2
    )
    assert [one.step for one in found] == [10, 5] and found[0].sources[0][1] == ("a:1", "b:1")
    assert lack.startswith("step 20: no machine ") and lack.endswith(" ranks 1")


def test_two_copies_of_one_step_are_not_mixed() -> None:
    """After a restart from storage the same step is trained once more, by other bits."""
    assert whole_copies({"a:1": [held(0, "before")], "b:1": [held(1, "after")]}, 2)[0] == []


def test_a_shard_that_two_holders_list_differently_is_taken_from_the_first_alone() -> None:
    (found,), _ = whole_copies({"a:1": [held(0), held(1)], "b:1": [replace(held(0), digest="other")]}, 2)
    assert found.sources[0][1] == ("a:1",)


def test_shards_of_a_job_of_another_size_are_none() -> None:
    found, lack = whole_copies({"a:1": [held(0, world=4), held(7)]}, 2)
    assert not found and lack.startswith("no machine ") and lack.endswith(" 2 ranks")
