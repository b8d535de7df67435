"""A machine of which nobody has a stack: an agent that fell silent there tells more than a collector that did not get in."""

import pytest

from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.ranks import Rank
from hangdog_models.stack import Missing, ProcessTrace, Reason
from hangdog_models.verdict import Kind, StallCause, Verdict
from support.cases.stories import first, job, look, snapshot

LAST = tuple(range(56, 64))


def unread(reason: Reason, looks: int) -> Verdict:
    silent = [ProcessTrace(Rank(rank), missing=Missing(reason, "")) for rank in LAST]
    return diagnose(snapshot(*[[*look({"0-55": "gather"}), *silent]] * looks), job(dp=64, per_machine=8))


@pytest.mark.parametrize("reason", [Reason.UNREACHABLE, Reason.TIMED_OUT])
def test_a_machine_that_the_collector_did_not_reach_is_named_and_not_evicted(reason: Reason) -> None:
    """As `ssh: connect to host node-7 port 22: Connection timed out` in a bundle."""
    for looks, least, most in ((1, 0.84, 0.92), (2, 0.84, 0.95)):
        verdict = unread(reason, looks)
        assert (first(verdict), verdict.evict.machines) == (LAST, ())
        assert least < verdict.causes[StallCause.MACHINE] < most


def test_a_machine_whose_agent_fell_silent_is_evicted() -> None:
    for looks in (1, 2):
        verdict = unread(Reason.NO_AGENT, looks)
        assert (verdict.kind, verdict.evict.machines) == (Kind.MACHINE, ("node-7",))
