"""From pairs to what broke: slow pairs beside the faster ones, and an end or a link to blame."""

import itertools

import pytest

from hangdog_models.planning.pairs import Pair, blame, slow_pairs

FOUR = list(itertools.combinations("abcd", 2))


def of(end: str) -> list[Pair]:
    return [pair for pair in FOUR if end in pair]


@pytest.mark.parametrize(
    ("bad", "ends", "links"),
    [
        ([], (), ()),
        ([("b", "a")], (), (("a", "b"),)),
        (of("c"), ("c",), ()),
        ([*of("c"), ("a", "b")], ("c",), (("a", "b"),)),
        ([*of("c"), *of("d")], ("c", "d"), ()),
        ([("a", "c"), ("b", "c")], ("c",), ()),
        ([("a", "b"), ("c", "d")], (), (("a", "b"), ("c", "d"))),
    ],
)
def test_an_end_that_fails_with_most_is_blamed_and_other_pairs_are_links(
    bad: list[Pair], ends: tuple[str, ...], links: tuple[Pair, ...]
) -> None:
    blamed, left = blame(FOUR, bad)
    assert (set(blamed), left) == (set(ends), links)


def test_an_end_that_fails_with_half_of_its_partners_is_not_blamed() -> None:
    five = list(itertools.combinations("abcde", 2))
    assert blame(five, [("a", "b"), ("a", "c")]) == ((), (("a", "b"), ("a", "c")))


def test_one_pair_alone_never_blames_an_end() -> None:
    assert blame([("a", "b")], [("a", "b")]) == ((), (("a", "b"),))


def test_a_slow_end_of_three_is_seen_although_most_pairs_are_slow() -> None:
    assert slow_pairs({("a", "b"): 10.0, ("a", "c"): 1.0, ("b", "c"): 1.1}, drop=0.3).keys() == {("a", "c"), ("b", "c")}


def test_a_slow_link_is_told_with_what_the_others_reach() -> None:
    rates = dict.fromkeys(FOUR, 10.0) | {("a", "d"): 6.9}
    ((pair, told),) = slow_pairs(rates, drop=0.3).items()
    assert pair == ("a", "d") and told.startswith("6.9, ") and told.endswith(" 10")
    assert not slow_pairs(dict.fromkeys(FOUR, 10.0) | {("a", "d"): 7.1}, drop=0.3)


def test_a_pair_alone_has_only_the_floor() -> None:
    assert not slow_pairs({("a", "b"): 1.0}, drop=0.3)
    ((pair, told),) = slow_pairs({("a", "b"): 1.0}, drop=0.3, floor=2.0).items()
    assert pair == ("a", "b") and told.startswith("1, ") and told.endswith(" floor of 2")
