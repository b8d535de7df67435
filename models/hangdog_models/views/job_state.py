"""How a job is, in the words of whoever is on call: one answer for the pages, the commands and the notices."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from hangdog_models.counts import counted, named
from hangdog_models.incident import RUNS_ON, SLOWED_WHY, SUSPECTED_WHY, UNDER_WAY, Incident, IncidentState
from hangdog_models.reading.printable import printable
from hangdog_models.stall_timeouts import OVER_S, Suspicion
from hangdog_models.verdict import Kind
from hangdog_models.views.answer_text import CODE_BUG, HALF, MACHINES, some

#: Characters of why a job is looked at, and of its name in a headline.
WHY, NAME = 200, 80
#: How words end that clear all machines.
NO_MACHINE = ", no machine is at fault"
#: How a verdict reads behind a job that stands still. Where it names machines to evict, those hold the job up.
_FOUND = {
    Kind.MACHINE: "a machine is at fault, none is sure enough to isolate",
    Kind.GROUP: "a link, a switch or a device of one group is at fault",
    Kind.SOFTWARE: CODE_BUG,
    Kind.DEPENDENCY: f"a service that its ranks share blocks it{NO_MACHINE}",
    Kind.UNDETERMINED: "cause unknown",
}
#: Verdicts that deny a standstill: a job in which one is suspected all the same may stand still in another way.
_DENIES = (Kind.NONE, Kind.SLOW)


class JobCondition(StrEnum):
    """How a job is, in a word; the worst first."""

    STUCK = "stuck"  # a verdict says that it stands still, and nothing was seen of it since
    SUSPECTED = "suspected"  # it seems to stand still
    EXAMINED = "examined"  # its machines are being looked at
    LOST = "lost"  # some of its agents are gone
    SLOWER = "slower"
    UNKNOWN = "unknown"  # just started, or not known yet
    MOVING = "moving"  # it is seen to move
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What is known of one job at `now` (Unix seconds).

    `here`: a machine says that it runs. `began`: when its start was seen, 0 where it ran before anybody watched.
    `lost` are its machines whose agents are gone or silent. `moving` of its `ranks` are seen to move; so they are for
    `moving_s` while none of them shows anything else. `works`: others wait, and a rank is seen to get on with something.
    `incidents` are its latest ones, newest first.
    """

    now: float
    here: bool = True
    began: float = 0.0
    lost: Sequence[str] = ()
    ranks: int = 0
    moving: int = 0
    moving_s: float = 0.0
    works: bool = False
    suspicion: Suspicion | None = None
    slower: str = ""
    incidents: Sequence[Incident] = ()


@dataclass(frozen=True, slots=True)
class JobState:
    """How a job is; `text` goes on after its name. `incident` says so, and `since` is a Unix time, 0 where unknown."""

    condition: JobCondition
    text: str
    incident: str = ""
    since: float = 0.0

    @property
    def tone(self) -> str:
        """How it looks: good only where the job is seen to move."""
        if self.condition is JobCondition.MOVING:
            return "good"
        if self.condition in (JobCondition.UNKNOWN, JobCondition.ENDED):
            return ""
        return "bad" if self.condition is JobCondition.STUCK else "warn"


@dataclass(frozen=True, slots=True)
class Headline:
    """The state of all jobs in one line, and how it looks."""

    text: str
    tone: str


def job_state(facts: JobFacts) -> JobState:
    """How a job is. A verdict that it stands still holds until it is seen to go on, ends, or people say what it was."""
    if not facts.here and not facts.lost:
        return JobState(JobCondition.ENDED, "has ended")
    under_way = next((one for one in facts.incidents if one.state in UNDER_WAY), None)
    stuck = verdict_in_force(facts)
    if stuck is not None:
        again = ", is being looked at again" if under_way is not None else ""
        gone = f", {_agents(facts)} {'is' if len(facts.lost) == 1 else 'are'} gone" if facts.lost else ""
        has = f", {printable(stuck.response.acknowledged_by, NAME)} has it" if stuck.response.acknowledged_by else ""
        text = f"stands still: {found(stuck)}{has}{gone}{again}"
        return JobState(JobCondition.STUCK, text, stuck.id, stuck.began)
    newest = next((one for one in facts.incidents if one.state not in UNDER_WAY), None)
    if under_way is not None:
        why = printable(under_way.note or under_way.why.removeprefix(SUSPECTED_WHY).strip() or "somebody asked", WHY)
        return JobState(JobCondition.EXAMINED, f"is being looked at: {why}", under_way.id, under_way.began)
    if facts.suspicion is not None:
        why = f"seems to stand still: {facts.suspicion.why}"
        return JobState(JobCondition.SUSPECTED, why, newest.id if newest else "", facts.now - facts.suspicion.seconds)
    if facts.lost:
        return JobState(JobCondition.LOST, f"has lost {_agents(facts)}")
    if facts.slower:
        looked = newest if newest is not None and newest.why.startswith(SLOWED_WHY) else None
        return JobState(JobCondition.SLOWER, f"moves more slowly: {facts.slower}", looked.id if looked else "")
    if facts.moving:
        return JobState(JobCondition.MOVING, f"moves: {facts.moving} of {counted(facts.ranks, 'rank')} seen to")
    if facts.works:
        return JobState(JobCondition.MOVING, "moves: a rank gets on with something, and the others wait for it")
    return JobState(JobCondition.UNKNOWN, "just started or not known yet: neither progress nor a standstill is seen")


def verdict_in_force(facts: JobFacts) -> Incident | None:
    """The incident by which a job stands still now; None where none does.

    A look that failed takes no verdict back.
    """
    for one in facts.incidents:
        if one.state in UNDER_WAY or one.why.startswith((*RUNS_ON, SLOWED_WHY)):
            continue
        if one.state == IncidentState.FAILED and not one.why.startswith(SUSPECTED_WHY):
            continue
        if is_over(one, facts):
            return None
        if one.state == IncidentState.FAILED:
            return one
        asked = one.kind == Kind.UNDETERMINED and not one.why.startswith(SUSPECTED_WHY)  # nobody says that it hangs
        return None if one.kind in _DENIES or asked else one
    return None


def is_over(incident: Incident, facts: JobFacts) -> bool:
    """Whether what an incident says of its job is over: it went on, ended, began anew, or people said what it was."""
    moved = OVER_S <= facts.moving_s < facts.now - incident.changed
    anew = facts.began > incident.began
    return bool(
        incident.went_on_s
        or incident.settled
        or incident.response.closed
        or moved
        or anew
        or (not facts.here and not facts.lost)
    )


def found(incident: Incident) -> str:
    """What the verdict of an incident says, in a few words; why there is none."""
    if not incident.kind:
        return f"there is no verdict ({printable(incident.note, WHY)})" if incident.note else "there is no verdict"
    if incident.evict:
        names = some(incident.evict, MACHINES)
        return f"{names} {'hold' if len(incident.evict) > 1 else 'holds'} it up"
    words = next((text for kind, text in _FOUND.items() if kind == incident.kind), printable(incident.kind, WHY))
    if incident.kind == Kind.UNDETERMINED or incident.confidence >= HALF:
        return words
    return f"perhaps {words.removesuffix(NO_MACHINE)}"  # where one cause is not sure, another one is not ruled out


def headline(jobs: Sequence[tuple[str, JobState]]) -> Headline:
    """The worst of all jobs; green only where every one is seen to move."""
    if not jobs:
        return Headline("No job is known", "")
    name, state = min(jobs, key=lambda one: (severity(one[1]), one[0]))
    alike = sum(one.condition is state.condition for _, one in jobs)
    if state.condition is JobCondition.MOVING and len(jobs) > 1:
        return Headline("All jobs move", state.tone)
    if state.condition is JobCondition.UNKNOWN and len(jobs) > 1:
        return Headline(f"No standstill is seen; {alike} of {len(jobs)} jobs are not known to move yet", state.tone)
    text = _ALONE.get(state.condition, printable(state.text, WHY))
    more = f"; {counted(alike - 1, 'more job')} {_LIKE[state.condition][alike > 2]}" if alike > 1 else ""
    return Headline(f"{printable(name, NAME)} {text}{more}", state.tone)


#: How one job is spoken of in a headline, where that is shorter than its own words.
_ALONE = {JobCondition.MOVING: "moves", JobCondition.UNKNOWN: "is not known to move yet"}
#: How more jobs of the same condition are spoken of: one, and several.
_LIKE = {
    JobCondition.STUCK: ("stands still", "stand still"),
    JobCondition.SUSPECTED: ("seems to stand still", "seem to stand still"),
    JobCondition.EXAMINED: ("is being looked at", "are being looked at"),
    JobCondition.LOST: ("has lost agents", "have lost agents"),
    JobCondition.SLOWER: ("moves more slowly", "move more slowly"),
    JobCondition.ENDED: ("has ended", "have ended"),
}
_ORDER = tuple(JobCondition)


def severity(state: JobState) -> int:
    """The place of a state among all, the worst first."""
    return _ORDER.index(state.condition)


def _agents(facts: JobFacts) -> str:
    """Whose agents are gone."""
    return f"the {'agent' if len(facts.lost) == 1 else 'agents'} of {printable(named(facts.lost), WHY)}"
