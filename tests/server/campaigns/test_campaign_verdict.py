"""What all launches of a campaign say together, and when they say nothing."""

from dataclasses import replace

import pytest

from hangdog_models.planning.campaign.belief import Belief, update
from hangdog_models.planning.campaign.launch import Launch, Result
from hangdog_models.planning.campaign.level_planner import LADDER, Conclusion, outcomes
from hangdog_models.planning.campaign.round_planner import Because, Stop
from hangdog_server.campaigns.campaign_report import End, Verdict, convicts, verdict
from hangdog_server.campaigns.campaign_request import Asked
from hangdog_server.store.campaigns import Kept

MACHINES = tuple(f"m{number}" for number in range(16))
ASKED = Asked((1,), 600.0, dict.fromkeys(MACHINES, 1 / 32), 0.5, 0.0, 0.05, {})
NOBODY = Stop(Because.SETTLED, (), (), 1.0, 1.0, (), (), ())


def ended(result: Result, *machines: str) -> list[Kept]:
    """A launch of its own for each."""
    came = Conclusion(result)
    return [Kept(at, 1, LADDER[1].name, (name,), 1, 0.0, 60.0, came=came) for at, name in enumerate(machines)]


def learnt(launches: list[Kept]) -> Belief:
    belief = ASKED.belief()
    for one in launches:
        assert one.came is not None
        belief = update(belief, outcomes(Launch(LADDER[1], one.machines, one.repetitions), one.came))
    return belief


@pytest.mark.parametrize(
    ("launches", "end", "says"),
    [
        (ended(Result.PASS, *MACHINES), End(NOBODY, ""), Verdict.NOT_CONVICTED),
        (ended(Result.PASS, *MACHINES[1:]), End(NOBODY, ""), Verdict.OPEN),  # one passed nothing
        ([*ended(Result.PASS, *MACHINES), *ended(Result.FAIL, "m3")], End(NOBODY, ""), Verdict.OPEN),
        (ended(Result.PASS, *MACHINES), End(NOBODY, "", cut=True), Verdict.OPEN),
        (ended(Result.FAIL, "m3"), End(replace(NOBODY, evict=("m3",)), ""), Verdict.CONVICTED),
    ],
)
def test_nobody_is_cleared_by_less_than_a_pass_of_all(launches: list[Kept], end: End, says: Verdict) -> None:
    assert verdict(end, ASKED, learnt(launches), launches) is says


def test_a_quarter_may_be_convicted_and_no_more() -> None:
    for many, named in ((4, 4), (5, 0)):
        end = End(replace(NOBODY, evict=MACHINES[:many]), "")
        assert len(convicts(end, ASKED, ())) == named
        assert verdict(end, ASKED, ASKED.belief(), ()) is (Verdict.CONVICTED if named else Verdict.FAILED)
