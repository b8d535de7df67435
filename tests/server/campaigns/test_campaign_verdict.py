"""What all launches of a campaign say together, and when they say nothing."""

from dataclasses import replace

import pytest

from hangdog_models.planning.campaign.belief import Belief, update
from hangdog_models.planning.campaign.launch import Launch, LaunchResult
from hangdog_models.planning.campaign.level_planner import LADDER, Conclusion, outcomes
from hangdog_models.planning.campaign.round_planner import Because, Stop
from hangdog_server.campaigns.campaign_report import CampaignEnd, CampaignVerdict, convicts, verdict
from hangdog_server.campaigns.campaign_request import CampaignPlanRequest
from hangdog_server.store.campaigns import StoredCampaign

MACHINES = tuple(f"m{number}" for number in range(16))
ASKED = CampaignPlanRequest((1,), 600.0, dict.fromkeys(MACHINES, 1 / 32), 0.5, 0.0, 0.05, {})
NOBODY = Stop(Because.SETTLED, (), (), 1.0, 1.0, (), (), ())


def ended(result: LaunchResult, *machines: str) -> list[StoredCampaign]:
    """A launch of its own for each."""
    came = Conclusion(result)
    return [StoredCampaign(at, 1, LADDER[1].name, (name,), 1, 0.0, 60.0, came=came) for at, name in enumerate(machines)]


def learnt(launches: list[StoredCampaign]) -> Belief:
    belief = ASKED.belief()
    for one in launches:
        assert one.came is not None
        belief = update(belief, outcomes(Launch(LADDER[1], one.machines, one.repetitions), one.came))
    return belief


@pytest.mark.parametrize(
    ("launches", "end", "says"),
    [
        (ended(LaunchResult.PASS, *MACHINES), CampaignEnd(NOBODY, ""), CampaignVerdict.NOT_CONVICTED),
        (ended(LaunchResult.PASS, *MACHINES[1:]), CampaignEnd(NOBODY, ""), CampaignVerdict.OPEN),  # one passed nothing
        (
            [*ended(LaunchResult.PASS, *MACHINES), *ended(LaunchResult.FAIL, "m3")],
            CampaignEnd(NOBODY, ""),
            CampaignVerdict.OPEN,
        ),
        (ended(LaunchResult.PASS, *MACHINES), CampaignEnd(NOBODY, "", cut=True), CampaignVerdict.OPEN),
        (ended(LaunchResult.FAIL, "m3"), CampaignEnd(replace(NOBODY, evict=("m3",)), ""), CampaignVerdict.CONVICTED),
    ],
)
def test_nobody_is_cleared_by_less_than_a_pass_of_all(
    launches: list[StoredCampaign], end: CampaignEnd, says: CampaignVerdict
) -> None:
    assert verdict(end, ASKED, learnt(launches), launches) is says


def test_a_quarter_may_be_convicted_and_no_more() -> None:
    for many, named in ((4, 4), (5, 0)):
        end = CampaignEnd(replace(NOBODY, evict=MACHINES[:many]), "")
        assert len(convicts(end, ASKED, ())) == named
        assert verdict(end, ASKED, ASKED.belief(), ()) is (
            CampaignVerdict.CONVICTED if named else CampaignVerdict.FAILED
        )
