"""Flight records of two rounds tell whether a job moves, without any stack."""

from collections.abc import Callable
from pathlib import Path

import pytest

from hangdog.evidence.open_bundle import open_bundle
from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.topology import build
from hangdog_models.verdict import Kind
from support.cases.evidence import flight

Fill = Callable[[dict[str, bytes]], Path]


def rounds(*completed: tuple[int, ...]) -> dict[str, bytes]:
    """For each round how many operations each rank completed; the last rank never joins the next one."""
    return {
        f"round-{number}/rank{rank}.json": flight(done + (rank < len(ranks) - 1), done)
        for number, ranks in enumerate(completed)
        for rank, done in enumerate(ranks)
    }


@pytest.mark.parametrize(
    ("completed", "got_on", "stood"),
    [
        (((4, 4, 4, 4), (6, 6, 6, 6)), (0, 1, 2, 3), ()),
        (((4, 4, 4, 4), (4, 4, 4, 4)), (), (0, 1, 2, 3)),
        (((4, 4, 4, 4), (6, 6, 6, 6), (6, 6, 6, 6)), (), (0, 1, 2, 3)),  # it hangs since
        (((4, 4, 4, 4), (0, 0, 0, 0)), (), ()),  # it began anew
        (((6, 6, 6, 6),), (), ()),
    ],
)
def test_a_job_that_completes_operations_between_the_last_two_rounds_moves(
    fill: Fill, completed: tuple[tuple[int, ...], ...], got_on: tuple[int, ...], stood: tuple[int, ...]
) -> None:
    snapshot, layout = open_bundle(fill(rounds(*completed)))
    assert (snapshot.got_on, snapshot.stood) == (got_on, stood)
    assert len(snapshot.account.unreadable) == 4 * max(0, len(completed) - 2)  # the last two rounds are used
    topology, _ = build(layout, snapshot.highest_rank())
    verdict = diagnose(snapshot, topology)
    assert (verdict.kind is Kind.NONE) is bool(got_on)


def test_one_rank_alone_proves_nothing(fill: Fill) -> None:
    """A collective that completes frees two ranks at least."""
    snapshot, layout = open_bundle(fill(rounds((4, 4, 4, 4), (5, 4, 4, 4))))
    topology, _ = build(layout, snapshot.highest_rank())
    assert snapshot.got_on == (0,) and diagnose(snapshot, topology).kind is not Kind.NONE
