"""The work of a diagnosis grows with the ranks of a job and not with their square: counted in calls, which no busy machine changes."""

import sys
from collections.abc import Callable
from types import FrameType

import pytest

from hangdog_models.diagnosis.judge import diagnose
from support.cases.stories import job, look, twice

#: A job of eight times the ranks may make so many times the calls: eight and what sorting and chance add.
AT_MOST = 10.0


def calls(work: Callable[[], object]) -> int:
    """How many Python functions and generators are entered."""
    count = 0

    def seen(frame: FrameType, event: str, _: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(seen)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize(
    "at",
    ["loader", "write", "upload", "user"],
    ids=["storm of loaders", "storm of writers", "storm of requests", "crowd at work"],
)
def test_one_on_every_machine_costs_no_more_than_the_machines(at: str) -> None:
    def storm(ranks: int) -> int:
        odd = ",".join(str(rank) for rank in range(5, ranks, 8))
        others = ",".join(str(rank) for rank in range(ranks) if rank % 8 != 5)
        seen, shape = twice(look({others: "metrics", odd: at})), job(tp=8, dp=ranks // 8, per_machine=8)
        return calls(lambda: diagnose(seen, shape))

    storm(64)  # what is read and compiled once
    assert storm(4096) / storm(512) < AT_MOST
