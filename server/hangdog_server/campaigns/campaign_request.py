"""What somebody asks to have tested, and what is believed beforehand."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from hangdog_models.planning.campaign.belief import Belief
from hangdog_models.planning.campaign.launch import Diagnostic
from hangdog_models.planning.campaign.level_planner import LADDER, REPLAY, REPLAY_S, diagnostics, modes
from hangdog_models.planning.campaign.replay_planner import group_size

#: The levels that are used when nobody says which.
LEVELS = (1, 2, 3, 4)


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """What level 5 replays: the program that the machines' own administrator named so; "" is the one that hangdog brings.

    A group has `size` machines, 0: as many as tell machines apart best; one replay takes `seconds` at most.
    """

    name: str = ""
    size: int = 0
    seconds: float = REPLAY_S


@dataclass(frozen=True, slots=True)
class CampaignRequest:
    """What somebody asks for; empty and 0 stand for the server's own choice."""

    machines: tuple[str, ...] = ()
    incident: str = ""
    levels: tuple[int, ...] = ()
    budget_s: float = 0.0
    why: str = ""
    who: str = ""
    replay: ReplayRequest = field(default_factory=ReplayRequest)


@dataclass(frozen=True, slots=True)
class CampaignPlanRequest:
    """All that planning a campaign takes beside its launches; kept as JSON, so that it goes on with the same.

    `prior` is the probability of each machine, as in Belief; `unable` are machines that cannot be asked at all, and why.
    `attempt`: how often a server has taken it up that the one before left unfinished.
    """

    levels: tuple[int, ...]
    budget_s: float
    prior: Mapping[str, float]
    none: float
    link: float
    further: float
    unable: Mapping[str, str]
    attempt: int = 0
    replay: ReplayRequest = field(default_factory=ReplayRequest)

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        if not self.replays:
            return diagnostics(self.levels, len(self.prior))
        exactly = self.replay.size or LADDER[REPLAY].least  # whoever names a size has a program that needs it
        return (replace(LADDER[REPLAY], seconds=self.replay.seconds, least=exactly, most=self.group_size),)

    @property
    def replays(self) -> bool:
        """Whether this is a campaign of replays, in the phases of which every machine takes part."""
        return REPLAY in self.levels

    @property
    def able(self) -> tuple[str, ...]:
        """The machines that could be asked when it began, in the topology's order."""
        return tuple(name for name in self.prior if name not in self.unable)

    @property
    def group_size(self) -> int:
        """Machines of a group of replays; raises WrongUse when there are too few machines."""
        return group_size(len(self.able), self.replay.size)

    def belief(self) -> Belief:
        """What is believed before any launch."""
        chosen = modes(self.diagnostics)
        return Belief(dict(self.prior), self.none, link=self.link, further=self.further, modes=chosen)

    def to_json(self) -> dict[str, Any]:
        # the machines' order is the topology's, which a database of JSON need not keep
        return {**asdict(self), "levels": list(self.levels), "prior": [list(one) for one in self.prior.items()]}


def from_json(document: Mapping[str, Any]) -> CampaignPlanRequest:
    """What `to_json` wrote."""
    replay = ReplayRequest(**document.get("replay", {}))  # one that an older server began has none
    given = {"levels": tuple(document["levels"]), "prior": dict(document["prior"]), "replay": replay}
    return CampaignPlanRequest(**{**document, **given})
