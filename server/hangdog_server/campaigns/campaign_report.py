"""What came of a campaign, as one JSON object (`hangdog.campaign/1`), and in one line."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from hangdog_models.counts import named
from hangdog_models.planning.campaign.assurance import bought
from hangdog_models.planning.campaign.belief import Belief
from hangdog_models.planning.campaign.fault import FaultSite
from hangdog_models.planning.campaign.launch import LaunchResult
from hangdog_models.planning.campaign.replay_planner import PHASES, groups
from hangdog_models.planning.campaign.round_planner import Because, Stop
from hangdog_server.campaigns.campaign_request import CampaignPlanRequest
from hangdog_server.store.campaigns import Campaign, Convict, StoredCampaign

SCHEMA = "hangdog.campaign/1"
#: Where more than so large a share of the machines would be convicted, and more than a few of them, what they share is the
#: likelier cause: the test itself, its libraries, a setting. The planner knows no such fault, and six at once are its most.
SHARE, FEW = 0.25, 2
#: Words of failed launches that stand with a conviction.
_REASONS = 4


class CampaignVerdict(StrEnum):
    """What all launches together say, in the words of `hangdog test local`. There is no `healthy`."""

    CONVICTED = "convicted"
    FAILED = "failed"
    OPEN = "inconclusive"
    NOT_CONVICTED = "not convicted"


@dataclass(frozen=True, slots=True)
class CampaignEnd:
    """How a campaign ended: the planner's last word, or with what was known when it was cut short, and `because`."""

    stop: Stop
    reason: str
    cut: bool = False


def convicts(end: CampaignEnd, asked: CampaignPlanRequest, launches: Sequence[StoredCampaign]) -> tuple[Convict, ...]:
    """Whom it convicts, with the parts that their own failed tests named; nobody where it would be a crowd."""
    if _crowd(end, asked):
        return ()
    likely = {place.names: probability for place, probability in end.stop.ranked}
    found = []
    for machine in end.stop.evict:
        parts = {part for one in launches for part in one.parts.get(machine, ())}
        found.append(Convict(machine, likely.get((machine,), 1.0), tuple(sorted(parts))))
    return tuple(found)


def verdict(
    end: CampaignEnd, asked: CampaignPlanRequest, belief: Belief, launches: Sequence[StoredCampaign]
) -> CampaignVerdict:
    """One word for all of it: open as soon as a machine passed nothing that would show one of the ways to fail, or failed."""
    if end.stop.evict and not _crowd(end, asked):
        return CampaignVerdict.CONVICTED
    results = [one.came.result for one in launches if one.came]
    if end.stop.tell or end.stop.evict or end.stop.reason is Because.SHARED:
        return CampaignVerdict.FAILED
    passed = {(one.machine, mode) for one in bought(belief) for mode, shown in one.detection.items() if shown}
    wanted = {(machine, mode.name) for machine in asked.prior for mode in belief.modes}
    if end.cut or LaunchResult.FAIL in results or not wanted <= passed:
        return CampaignVerdict.OPEN
    return CampaignVerdict.NOT_CONVICTED


def untested(asked: CampaignPlanRequest, launches: Sequence[StoredCampaign]) -> dict[str, dict[str, str]]:
    """By machine, then by diagnostic, why it had no result in any launch: no answer, nothing to test, or no end."""
    found: dict[str, dict[str, str]] = {machine: {"": why} for machine, why in asked.unable.items()}
    ended = [(one, one.came) for one in launches if one.came]
    reported = {
        (name, one.test) for one, came in ended if came.result is not LaunchResult.INCONCLUSIVE for name in one.machines
    }
    for one, came in ended:
        silent = {**came.silent, **came.unable} or dict.fromkeys(one.machines, came.reason)
        for machine, why in silent.items():
            if (machine, one.test) not in reported:
                found.setdefault(machine, {})[one.test] = why
    return found


def document(
    campaign: Campaign,
    asked: CampaignPlanRequest,
    end: CampaignEnd,
    belief: Belief,
    launches: Sequence[StoredCampaign],
    at: float,
) -> dict[str, Any]:
    """The report for programs; `at` is Unix seconds."""
    stop = end.stop
    convicted = convicts(end, asked, launches)
    because = f"{len(stop.evict)} of {len(asked.prior)} machines fail: what they share is the likelier cause"
    return {
        "schema": SCHEMA,
        "campaign": campaign.id,
        "verdict": str(verdict(end, asked, belief, launches)),
        "because": because if _crowd(end, asked) else end.reason,
        "began": _utc(campaign.began),
        "ended": _utc(at),
        "why": campaign.why,
        "who": campaign.who,
        "incident": campaign.incident or None,
        "levels": list(asked.levels),
        "budget_s": asked.budget_s,
        "replay": _replay(asked, launches),
        "machines": list(asked.prior),
        "convicted": [
            {
                "machine": one.machine,
                "probability": round(one.probability, 4),
                "parts": list(one.parts),
                "because": _reasons(one.machine, launches),
            }
            for one in convicted
        ],
        "tell": [_place(place) for place in stop.tell],
        "covered": round(stop.covered, 4),
        "none": round(stop.none, 4),
        "ranked": [{**_place(place), "probability": round(probability, 4)} for place, probability in stop.ranked],
        "instead": list(stop.instead),
        "not_convicted": [
            {
                "machine": one.machine,
                "by": one.diagnostic,
                "launches": one.launches,
                "repetitions": one.repetitions,
                "would_have_shown": {mode: round(value, 4) for mode, value in one.detection.items() if value},
            }
            for one in bought(belief)
            if one.machine not in stop.evict
        ],
        "untested": [
            {"machine": machine, "by": test or None, "why": why}
            for machine, each in sorted(untested(asked, launches).items())
            for test, why in each.items()
        ],
        "launches": [_launch(one) for one in launches],
    }


def sentence(document: Mapping[str, Any]) -> str:
    """The end in one line for people."""
    convicted = [one["machine"] for one in document["convicted"]]
    silent = sorted({one["machine"] for one in document["untested"]})
    left = f"; not tested in full: {named(silent)}" if silent else ""
    tests = f"{len(document['launches'])} launch{'' if len(document['launches']) == 1 else 'es'}"
    if convicted:
        return f"convicted: {named(convicted)}, after {tests}{left}"
    if document["tell"]:
        reported = ", ".join(f"{one['where']} {' - '.join(one['names'])}" for one in document["tell"])
        return f"at fault is no machine but {reported}, after {tests}{left}"
    proof = ", which is no proof of health" if document["verdict"] == CampaignVerdict.NOT_CONVICTED else ""
    return f"{document['verdict']} after {tests} ({document['because']}){proof}{left}"


def _crowd(end: CampaignEnd, asked: CampaignPlanRequest) -> bool:
    """Whether so many would be convicted that something else is the matter."""
    return len(end.stop.evict) > max(FEW, SHARE * len(asked.prior))


def _reasons(machine: str, launches: Sequence[StoredCampaign]) -> list[str]:
    mine = [one for one in launches if machine in one.machines and one.came and one.came.result is LaunchResult.FAIL]
    with_ = [(one, [other for other in one.machines if other != machine]) for one in mine]
    reported = [
        f"{one.test}{f' with {named(others)}' if others else ''}: {one.came.reason}"
        for one, others in with_
        if one.came
    ]
    return reported[:_REASONS]


def _replay(asked: CampaignPlanRequest, launches: Sequence[StoredCampaign]) -> dict[str, Any] | None:
    """What was replayed and in which phases; `crossed` are the machines that were in failed groups of these, and no other."""
    if not asked.replays:
        return None
    size, rounds = asked.group_size, {one.round for one in launches}
    ran = [at for at in range(len(groups(asked.able, size))) if at + 1 in rounds]
    ended = [(one.machines, one.came.result) for one in launches if one.came and one.round - 1 in ran]
    failed, passed = (
        {name for names, result in ended if result is wanted for name in names}
        for wanted in (LaunchResult.FAIL, LaunchResult.PASS)
    )
    return {
        "name": asked.replay.name or None,
        "group_size": size,
        "seconds": asked.replay.seconds,
        "phases": [PHASES[at] for at in ran],
        "crossed": [name for name in asked.able if name in failed - passed],
    }


def _launch(one: StoredCampaign) -> dict[str, Any]:
    return {
        "launch": one.number,
        "round": one.round,
        "test": one.test,
        "machines": list(one.machines),
        "repetitions": one.repetitions,
        "result": str(one.came.result) if one.came else "inconclusive",
        "says": one.came.reason if one.came else "",
        "seconds": round(max(0.0, one.ended - one.began), 1),
    }


def _place(place: FaultSite) -> dict[str, Any]:
    return {"where": str(place.where), "names": list(place.names)}


def _utc(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")
