"""A process that a tool does not find: it ended, or its number was an older one's. Neither convicts a machine."""

import pytest

from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.stack import Reason
from hangdog_models.verdict import Kind, StallCause
from support.cases.stories import job, look, snapshot, trace

WIDE = job(dp=32, per_machine=2)
GONE = [trace(rank, Reason.EXITED) for rank in (5, 21)]


@pytest.mark.parametrize("looks", [1, 2])
def test_two_that_are_gone_on_two_machines_convict_neither(looks: int) -> None:
    """One alone convicts none either: an exception, the launcher or a hand ends processes."""
    seen = [*look({"0-4,6-20,22-31": "gather"}), *GONE]
    verdict = diagnose(snapshot(*[seen] * looks), WIDE)
    assert verdict.evict.machines == () and verdict.causes[StallCause.SOFTWARE] > 0.2
    assert verdict.culprit is not None and verdict.culprit.ranks == (5, 21)


def test_a_job_that_moves_on_has_all_of_its_processes() -> None:
    places = ("gather", "scatter", "metrics", "item")
    moves = [[*look({"0-4,6-20,22-31": place}), *GONE] for place in places]
    verdict = diagnose(snapshot(*moves), WIDE)
    assert (verdict.kind, verdict.evict.machines) == (Kind.NONE, ())
    stands = diagnose(snapshot(moves[0], *[moves[1]] * 3), WIDE)
    assert stands.evict.machines == ()


@pytest.mark.parametrize("reason", [Reason.TRACED, Reason.NOT_PYTHON, Reason.NOT_PERMITTED])
def test_why_a_process_was_not_read_tells_nothing_of_it(reason: Reason) -> None:
    """Several of 64 were not read: the one that another tool traces is no likelier than the rest."""

    def likeliest(why: Reason) -> list[float]:
        seen = [*look({"0,7-8,10-63": "item"}), trace(6, Reason.TIMED_OUT), trace(9, why)]
        verdict = diagnose(snapshot(*[seen] * 10), job(dp=64, per_machine=4))
        return [round(one.probability, 3) for one in verdict.suspects]

    assert likeliest(reason) == likeliest(Reason.TOOL_FAILED)
