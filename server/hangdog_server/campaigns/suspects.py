"""Finds out whom a campaign is about, and what is believed of them before anybody is tested."""

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from hangdog_models.counts import counted, named
from hangdog_models.errors import WrongUse
from hangdog_models.planning.campaign.level_planner import LADDER, REPLAY, diagnostics, modes
from hangdog_models.planning.campaign.prior import FURTHER, NONE, begin
from hangdog_models.planning.campaign.replay_planner import LEAST_REPLAY_S, MOST_NAME, MOST_REPLAY_S, group_size
from hangdog_models.verdict import from_json
from hangdog_server.campaigns.campaign_request import LEVELS, CampaignPlanRequest, CampaignRequest, ReplayRequest
from hangdog_server.cluster.fleet import Fleet
from hangdog_server.settings import ServerSettings
from hangdog_server.store import machine_history, test_results
from hangdog_server.store.store import Store

#: Nothing that the tests could show, where no incident is behind it: a machine that is tested before it joins a job is
#: sound more often than not. Our choice; where an incident is, something is wrong, and the planner's own holds.
UNASKED = 0.5
#: A faulty link between two machines, where links are tested: some twentieth of faults that stop a job are in the network.
LINK = 0.05


async def asked(
    request: CampaignRequest, fleet: Fleet, store: Store, settings: ServerSettings, clock: Callable[[], float]
) -> CampaignPlanRequest:
    """All that planning takes; raises HangdogError when it makes no sense or nobody can be asked."""
    levels, budget_s = _levels(request), request.budget_s or settings.campaign_s
    if not (math.isfinite(budget_s) and 0 < budget_s <= settings.max_campaign_s):
        raise WrongUse(f"{budget_s:g} s is no budget", f"give up to {settings.max_campaign_s:g} s", code="out-of-range")
    if REPLAY in levels:
        _replay(request.replay, budget_s)
    machines, suspected = await _machines(request, fleet, store)
    if len(machines) > settings.campaign_machines:
        raise WrongUse(
            f"{len(machines)} machines; {settings.campaign_machines} at most",
            "name fewer with --machines",
            code="too-many",
        )
    unable = {name: why for name in machines if (why := fleet.untestable(name))}
    if len(unable) == len(machines):
        raise WrongUse(
            f"no machine can be tested: {_unable_text(unable)}",
            "hangdog machines lists those that are connected",
            code="nothing-to-test",
        )
    if REPLAY in levels:
        group_size(len(machines) - len(unable), request.replay.size)
    chosen = diagnostics(levels, len(machines))
    if not chosen:
        raise WrongUse(
            f"level {levels[0]} needs two machines or more",
            "name another with --machines, or another level",
            code="too-few-machines",
        )
    since = clock() - settings.probation_s if settings.probation_s else math.inf
    offences = await store.ask(test_results.offences, machines, since)
    link = LINK if any(one.network for one in chosen) else 0.0
    none = NONE if request.incident else UNASKED
    prior = begin(
        machines,
        suspected,
        none=none,
        link=link,
        modes=modes(chosen),
        serials=offences.serials,
        offences=offences.counts,
    )
    prior_of = dict(prior.machines)
    return CampaignPlanRequest(levels, budget_s, prior_of, none, link, FURTHER, unable, replay=request.replay)


def _levels(request: CampaignRequest) -> tuple[int, ...]:
    levels = tuple(sorted(set(request.levels))) or LEVELS
    if strange := [level for level in levels if level not in LADDER]:
        raise WrongUse(
            f"a server cannot request level {strange[0]}",
            f"levels over a server are {', '.join(map(str, LADDER))}",
            code="unknown-choice",
        )
    if REPLAY in levels and len(levels) > 1:
        raise WrongUse(
            "level 5 is launched in groups of its own, in which every machine takes part",
            "start a campaign of level 5 alone, and another of the other levels",
            code="conflicting-options",
        )
    if REPLAY not in levels and request.replay != ReplayRequest():
        raise WrongUse("only level 5 replays a program", "add --level 5", code="missing-option")
    return levels


def _replay(wanted: ReplayRequest, budget_s: float) -> None:
    """Raises WrongUse where it cannot be replayed whichever the machines are."""
    if len(wanted.name) > MOST_NAME or not wanted.name.isprintable():
        raise WrongUse("that is no name of a replay", f"give {MOST_NAME} characters at most", code="bad-name")
    if not LEAST_REPLAY_S <= wanted.seconds <= MOST_REPLAY_S:  # not a number is never between
        raise WrongUse(
            f"{wanted.seconds:g} s is no time for one replay",
            f"give {LEAST_REPLAY_S:g} to {MOST_REPLAY_S:g} s",
            code="out-of-range",
        )
    if wanted.seconds > budget_s:
        raise WrongUse(
            f"one replay may take {wanted.seconds:g} s, and the budget is {budget_s:g} s",
            "give a larger --budget: each phase takes as long, where a replay hangs",
            code="out-of-range",
        )


async def _machines(request: CampaignRequest, fleet: Fleet, store: Store) -> tuple[tuple[str, ...], dict[str, float]]:
    """The machines in order, and how suspicious an incident makes each."""
    if not request.machines and not request.incident:
        raise WrongUse(
            "no machines to test are named",
            "name them with --machines, or an incident with --incident",
            code="no-machine-named",
        )
    if not request.incident:
        return tuple(dict.fromkeys(request.machines)), {}
    incident = await store.find(request.incident)
    if not incident.verdict:
        raise WrongUse(
            f"incident {incident.id} has no verdict yet",
            "wait for it, or name machines with --machines",
            code="no-verdict-yet",
        )
    weights = suspicion(json.loads(incident.verdict))
    kept, _ = await store.kept(incident.id)
    machines = request.machines or tuple(sorted({*kept["asked"], *kept["absent"], *weights}))
    if not machines:
        raise WrongUse(f"incident {incident.id} names no machine", "name them with --machines", code="no-machine-named")
    return tuple(dict.fromkeys(machines)), {name: weight for name, weight in weights.items() if name in set(machines)}


def suspicion(document: Mapping[str, Any]) -> dict[str, float]:
    """How suspicious a verdict (JSON) makes each machine: a hypothesis of several is shared by them."""
    found: dict[str, float] = {}
    for suspect in from_json(document).suspects:
        for machine in suspect.machines if len(suspect.machines) <= machine_history.MOST else ():
            found[machine] = found.get(machine, 0.0) + suspect.probability / len(suspect.machines)
    return {machine: weight for machine, weight in found.items() if weight > 0}


def _unable_text(unable: Mapping[str, str]) -> str:
    if len(unable) > 3:
        return f"{counted(len(unable), 'machine')}, such as {named(list(unable)[:3])}"
    return "; ".join(f"{name}: {why}" for name, why in unable.items())
