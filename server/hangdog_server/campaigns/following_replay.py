"""Whether replays follow a campaign of the other levels that convicted nobody: on which machines, and if not, why."""

from collections.abc import Mapping
from typing import Any

from hangdog_models.counts import counted
from hangdog_models.errors import WrongUse
from hangdog_models.planning.campaign.level_planner import REPLAY
from hangdog_models.planning.campaign.replay_planner import group_size
from hangdog_server.campaigns.campaign_report import CampaignVerdict
from hangdog_server.campaigns.campaign_request import ReplayRequest
from hangdog_server.store.campaigns import Campaign, CampaignState

#: Rounds that are paid for. Three phases cross at one machine, and with three machines five rounds do; one more is for a
#: group that did not answer. Replays that pass take less than their time, so a sound set has more rounds.
ROUNDS = 6


def replays(campaign: Campaign) -> bool:
    """Whether a campaign is one of replays."""
    return REPLAY in campaign.asked.get("levels", ())


def unexplained(campaign: Campaign, report: Mapping[str, Any]) -> bool:
    """Whether a campaign came to its end and found nothing to which a job's hang could be put down."""
    open_ = (CampaignVerdict.NOT_CONVICTED, CampaignVerdict.OPEN)
    return campaign.state is CampaignState.DONE and not replays(campaign) and report.get("verdict") in open_


def following(
    report: Mapping[str, Any], replay: ReplayRequest | None, most: int, out: Mapping[str, frozenset[str]]
) -> tuple[str, ...] | str:
    """The machines on which a replay follows the campaign with this report, or why it does not.

    `out` are the machines that are out of use and can be tested, each with the names that it can replay. A machine on
    which no other level came to an end is left out: its tests are what is wrong.
    """
    if replay is None:
        return "nothing is named that replays this job"
    if len(out) > most:
        return f"{counted(len(out), 'machine')}, and {most} at most are replayed"
    tested = {name for one in report["launches"] if one["result"] != "inconclusive" for name in one["machines"]}
    able = tuple(name for name, names in out.items() if name in tested and (not replay.name or replay.name in names))
    try:
        group_size(len(able), replay.size)
    except WrongUse as error:
        knows = f" that know {replay.name!r}" if replay.name else ""
        return f"tested{knows}: {counted(len(able), 'machine')}; {error}"
    return able
