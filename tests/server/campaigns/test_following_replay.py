"""Which machines a replay follows on after a campaign of the other levels, and who passed in it: no server runs here."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from hangdog_server.campaigns.campaign_request import ReplayRequest
from hangdog_server.campaigns.following_replay import following, replays, unexplained
from hangdog_server.isolation_tests import passed
from hangdog_server.store.campaigns import Campaign, CampaignState

FOUR = ("m0", "m1", "m2", "m3")
KNOWS = dict.fromkeys(FOUR, frozenset({"llama"}))


def launch(result: str, *machines: str, test: str = "replay") -> dict[str, Any]:
    return {"test": test, "machines": list(machines), "result": result}


def said(*launches: Mapping[str, Any], verdict: str = "not convicted", untested: Sequence[str] = ()) -> dict[str, Any]:
    ended = {name for one in launches if one["result"] == "pass" for name in one["machines"]}
    silent = [{"machine": name, "by": "replay", "why": "silent"} for name in untested]
    tested = [{"machine": name} for name in sorted(ended)]
    return {"verdict": verdict, "launches": list(launches), "not_convicted": tested, "untested": silent}


def ended(
    report: Mapping[str, Any], *convicted: str, state: CampaignState = CampaignState.DONE, level: int = 1
) -> Campaign:
    asked = {"levels": [level], "prior": [[name, 0.2] for name in FOUR]}
    return Campaign("c", 0.0, "hangdog", "", "0a", asked, state, 1.0, convicted, "", json.dumps(report))


ALONE = said(*(launch("pass", name, test="one device") for name in FOUR))


def test_it_follows_on_those_that_were_tested_and_know_the_name() -> None:
    assert following(ALONE, ReplayRequest("llama"), 4, KNOWS) == FOUR
    assert following(ALONE, ReplayRequest(), 4, dict.fromkeys(FOUR, frozenset())) == FOUR, "the small GPT has no name"
    assert following(ALONE, ReplayRequest("llama"), 4, KNOWS | {"m3": frozenset({"other"})}) == FOUR[:3]
    some = said(*(launch("pass", name) for name in FOUR[:3]), launch("inconclusive", "m3"), verdict="inconclusive")
    assert following(some, ReplayRequest("llama"), 4, KNOWS) == FOUR[:3]
    failed = said(*(launch("pass", name) for name in FOUR[:3]), launch("fail", "m3"), verdict="inconclusive")
    assert following(failed, ReplayRequest("llama"), 4, KNOWS) == FOUR, "who failed once is suspected all the more"


@pytest.mark.parametrize(
    ("replay", "most", "out", "because"),
    [
        (None, 4, FOUR, "nothing is named"),
        (ReplayRequest("llama"), 3, FOUR, "4 machines, and 3 at most"),
        (ReplayRequest("llama"), 4, FOUR[:2], "'llama': 2 machines; level 5 needs 3"),
        (ReplayRequest("mixtral"), 4, FOUR, "'mixtral': 0 machines"),
        (ReplayRequest("llama", size=4), 4, FOUR, "groups of 4 cross"),
        (ReplayRequest(), 4, FOUR[:1], "tested: 1 machine; level 5"),
    ],
)
def test_where_it_does_not_the_reason_is_in_words(
    replay: ReplayRequest | None, most: int, out: tuple[str, ...], because: str
) -> None:
    found = following(ALONE, replay, most, {name: KNOWS[name] for name in out})
    assert isinstance(found, str) and because in found


@pytest.mark.parametrize(
    ("campaign", "open_"),
    [
        (ended(ALONE), True),
        (ended(ALONE | {"verdict": "inconclusive"}), True),
        (ended(ALONE | {"verdict": "convicted"}, "m1"), False),
        (ended(ALONE | {"verdict": "failed"}), False),
        (ended(ALONE, state=CampaignState.ABORTED), False),
        (ended(ALONE, state=CampaignState.FAILED), False),
        (ended(ALONE, level=5), False),
    ],
    ids=["passed", "open", "convicted", "link", "ended by people", "broken", "replays"],
)
def test_it_follows_a_campaign_that_came_to_its_end_and_explains_nothing(campaign: Campaign, open_: bool) -> None:
    assert unexplained(campaign, json.loads(campaign.report)) is open_
    assert replays(campaign) is (campaign.asked["levels"] == [5])


CROSSED = (
    launch("fail", "m0", "m1"),
    launch("pass", "m2", "m3"),
    launch("pass", "m0", "m3"),
    launch("fail", "m1", "m2"),
)


def test_a_group_that_failed_with_the_guilty_in_it_says_nothing_about_the_others() -> None:
    guilty = ended(said(*CROSSED, verdict="convicted"), "m1", level=5)
    assert [name for name in FOUR if passed(guilty, name)] == ["m0", "m2", "m3"]
    open_ = ended(said(*CROSSED), level=5)
    assert [name for name in FOUR if passed(open_, name)] == ["m3"], "nobody is convicted to whom it could be put down"


def test_who_passed_nowhere_what_it_failed_with_the_guilty_has_not_passed() -> None:
    alone = launch("pass", "m0", test="one device")
    guilty = ended(said(launch("fail", "m0", "m1"), alone, launch("pass", "m2", "m3"), verdict="convicted"), "m1")
    assert not passed(guilty, "m0") and passed(guilty, "m2")
    silent = ended(said(*CROSSED, verdict="convicted", untested=("m2",)), "m1", level=5)
    assert not passed(silent, "m2") and passed(silent, "m0")
