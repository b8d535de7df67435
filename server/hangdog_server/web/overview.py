"""What is true now: the jobs and how they are, open incidents, machines that the latest verdicts suspect."""

import json
from dataclasses import dataclass, replace

from markupsafe import Markup

from hangdog_models.counts import named
from hangdog_models.incident import Incident, IncidentState
from hangdog_models.ranks import format_ranks
from hangdog_models.reading.printable import printable
from hangdog_models.verdict import StallCause, from_json
from hangdog_models.views.answer_text import BLAMELESS, LEAST, RECENT_S, accuses
from hangdog_models.views.job_state import Headline, JobCondition, headline
from hangdog_server.cluster.communicators import JobCommunicators
from hangdog_server.cluster.connection import PastConnection
from hangdog_server.cluster.fleet import Fleet
from hangdog_server.cluster.job_states import JobStates, KnownJob, jobs_mark
from hangdog_server.etag import digest
from hangdog_server.settings import ServerSettings
from hangdog_server.store import actions
from hangdog_server.store.actions import ActionRecord, ActionState, in_short
from hangdog_server.store.store import Store
from hangdog_server.web.pictures.activity_strip import activity_strip

#: Verdicts whose suspects are shown, of as many jobs; suspects of each.
VERDICTS, SUSPECTS = 10, 3
#: Characters of the machines that are suspected, in the headline.
SHOWN = 60
#: States of an act in which nobody has to decide about its machine any more.
DECIDED = (ActionState.DISMISSED, ActionState.DONE, ActionState.MARKED, ActionState.RELEASED)


@dataclass(frozen=True, slots=True)
class SuspectView:
    """What a recent verdict suspects, in one sentence; `since` is the verdict's Unix time.

    `state` says what was decided about its machines, and whether its job moves again; then nobody needs to act: `over`.
    """

    machines: tuple[str, ...]
    ranks: str
    probability: float
    reason: str
    job: str
    incident: str
    verdict: str
    evict: bool
    since: float = 0.0
    state: str = ""
    over: bool = False


@dataclass(frozen=True, slots=True)
class Present:
    """Everything of the page *Now*; `mark` changes when it does."""

    jobs: tuple[KnownJob, ...]
    incidents: tuple[Incident, ...]
    suspects: tuple[SuspectView, ...]

    @property
    def headline(self) -> Headline:
        """The state of all jobs; where all move, and somebody is to decide about a machine, that."""
        stated = headline([(job.name, job.state) for job in self.jobs])
        open_ = sorted({machine for one in self.suspects if not one.over for machine in one.machines})
        if stated.tone == "bad" or not open_:
            return stated
        return Headline(f"{stated.text}; {printable(named(open_), SHOWN)} suspected", "warn")

    @property
    def mark(self) -> str:
        return digest(
            jobs_mark(self.jobs),
            [(one.incident, one.machines, one.state) for one in self.suspects],
            self.incidents_mark,
        )

    @property
    def incidents_mark(self) -> str:
        """Changes when what is known of an incident does."""
        return digest(
            [
                (one.id, str(one.state), one.changed, one.went_on_s, str(one.settled), one.response.entries)
                for one in self.incidents
            ]
        )


class Observatory:
    """Looks at the fleet, the states of the jobs, and the store; `now` is in Unix seconds."""

    def __init__(self, fleet: Fleet, states: JobStates, store: Store, settings: ServerSettings) -> None:
        self._fleet = fleet
        self._states = states
        self._store = store
        self._settings = settings
        self._read: dict[tuple[str, float], list[SuspectView]] = {}

    async def present(self, now: float) -> Present:
        """What is true now; raises StoreFailed."""
        latest, jobs = await self._store.latest("", self._settings.listed), await self._states.known()
        return Present(jobs, latest, await self._suspects(latest, jobs, now))

    def activity(self, job: str) -> Markup:
        """How many ranks of a job moved over the last half hour, as a picture; empty of one that this server did not watch."""
        return activity_strip(self._states.activity(job))

    async def communicators(self, job: str) -> JobCommunicators:
        """How the communicators of a job go on; raises WrongUse where no connected machine runs it."""
        return await self._states.communicators(job)

    def machine(self, name: str) -> PastConnection | None:
        """One machine whose agent is here, or was lately; None where none is known."""
        return self._fleet.machine(name)

    async def _suspects(
        self, latest: tuple[Incident, ...], jobs: tuple[KnownJob, ...], now: float
    ) -> tuple[SuspectView, ...]:
        """What the latest verdicts suspect, of jobs that are known now: of one that has ended nobody is in the way."""
        known = {"", *(job.name for job in jobs)}
        newest: dict[str, Incident] = {}
        for one in latest:
            if one.state is IncidentState.JUDGED and now - one.began < RECENT_S and one.job in known:
                newest.setdefault(one.job, one)
        held_up = [one for one in newest.values() if one.evict or not one.went_on]  # else nobody was to blame
        named = [one for one in held_up if accuses(one.kind) or one.kind in BLAMELESS][:VERDICTS]
        acts = await self._store.ask(actions.of_each, [one.id for one in named])
        read: dict[tuple[str, float], list[SuspectView]] = {}
        for one in named:  # a verdict may have megabytes, and open pages have us look every second
            key = one.id, one.changed
            read[key] = self._read[key] if key in self._read else _suspected(await self._store.find(one.id))
        self._read = read
        moving = {job.name for job in jobs if job.state.condition is JobCondition.MOVING}
        found = [
            _decided(suspect, one, [row for row in acts if row.incident == one.id], one.job in moving)
            for one, suspects in zip(named, read.values(), strict=True)
            for suspect in suspects
        ]
        return tuple(sorted(found, key=lambda one: (one.over, not one.evict, -one.probability)))


def _decided(suspect: SuspectView, incident: Incident, acts: list[ActionRecord], moves: bool) -> SuspectView:
    """A suspect with what is decided about its machines, and whether its job moves again."""
    mine = [row for row in acts if row.machine in suspect.machines]
    states = list(dict.fromkeys(in_short(row) for row in mine))
    if incident.settled is not None:
        states.append(str(incident.settled))
    if incident.went_on or moves:
        states.append("the job moves again")
    decided = bool(mine) and all(row.state in DECIDED for row in mine)
    over = decided or moves or bool(incident.went_on or incident.settled)
    return replace(suspect, since=incident.changed, state="; ".join(states), over=over)


def _suspected(incident: Incident) -> list[SuspectView]:
    try:
        verdict = from_json(json.loads(incident.verdict))
    except (KeyError, TypeError, ValueError):  # of another version of ours
        return []
    found = [(one.ranks, one.machines, one.probability, one.because) for one in verdict.suspects[:SUSPECTS]]
    if not accuses(str(verdict.kind)):  # it may still be the machine of whoever holds the job up
        by_machine = verdict.culprit.causes.get(StallCause.MACHINE, 0.0) if verdict.culprit else 0.0
        found = [(one.ranks, one.machines, by_machine, one.because) for one in (verdict.culprit,) if one]
    return [
        SuspectView(
            machines,
            format_ranks(ranks),
            probability,
            because[0].text if because else "",
            incident.job,
            incident.id,
            str(verdict.kind),
            bool(machines) and set(machines) <= set(verdict.evict.machines),
        )
        for ranks, machines, probability, because in found
        if probability >= LEAST
    ]
