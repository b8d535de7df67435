"""What somebody asks to have tested, and what is believed beforehand."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from hangdog_models.planning.campaign.belief import Belief
from hangdog_models.planning.campaign.launch import Diagnostic
from hangdog_models.planning.campaign.level_planner import diagnostics, modes

#: The levels that are used when nobody says which.
LEVELS = (1, 2, 3, 4)


@dataclass(frozen=True, slots=True)
class CampaignRequest:
    """What somebody asks for; empty and 0 stand for the server's own choice."""

    machines: tuple[str, ...] = ()
    incident: str = ""
    levels: tuple[int, ...] = ()
    budget_s: float = 0.0
    why: str = ""
    who: str = ""


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

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        return diagnostics(self.levels, len(self.prior))

    def belief(self) -> Belief:
        """What is believed before any launch."""
        chosen = modes(self.diagnostics)
        return Belief(dict(self.prior), self.none, link=self.link, further=self.further, modes=chosen)

    def to_json(self) -> dict[str, Any]:
        # the machines' order is the topology's, which a database of JSON need not keep
        return {**asdict(self), "levels": list(self.levels), "prior": [list(one) for one in self.prior.items()]}


def from_json(document: Mapping[str, Any]) -> CampaignPlanRequest:
    """What `to_json` wrote."""
    return CampaignPlanRequest(**{**document, "levels": tuple(document["levels"]), "prior": dict(document["prior"])})
