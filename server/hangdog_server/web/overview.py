"""What is true now: the jobs and how they are, open incidents, machines that the latest verdicts suspect."""

import json
from dataclasses import asdict, dataclass

from hangdog_models.incident import UNDER_WAY, Incident, IncidentState
from hangdog_models.machine_history import MachineRecord
from hangdog_models.ranks import format_ranks
from hangdog_models.verdict import StallCause, from_json
from hangdog_models.views.answer_text import BLAMELESS, LEAST, RECENT_S, accuses
from hangdog_server.cluster.fleet import Fleet
from hangdog_server.cluster.stalls import StallTracker
from hangdog_server.etag import digest
from hangdog_server.incidents.round_capture import steady
from hangdog_server.settings import ServerSettings
from hangdog_server.store import machine_history
from hangdog_server.store.store import Store

#: Verdicts whose suspects are shown, of as many jobs; suspects of each.
VERDICTS, SUSPECTS = 10, 3


@dataclass(frozen=True, slots=True)
class JobView:
    """A job that runs: on how many machines, how many ranks, and in words how it is. `status` is ok, suspected or open.

    `incident` is the one under way, of a job that seems to stand still its latest one; else empty.
    """

    name: str
    machines: int
    ranks: int
    status: str
    message: str
    incident: str = ""


@dataclass(frozen=True, slots=True)
class SuspectView:
    """What a recent verdict suspects, in one sentence."""

    machines: tuple[str, ...]
    ranks: str
    probability: float
    reason: str
    job: str
    incident: str
    verdict: str
    evict: bool


@dataclass(frozen=True, slots=True)
class MachineNow:
    """A machine as it is, and as verdicts of all jobs saw it. `silent_s`: seconds since its agent spoke, None: never here."""

    name: str
    connected: bool
    silent_s: float | None
    version: str
    jobs: tuple[str, ...]
    findings: tuple[str, ...]
    convicted: int = 0
    suspected: int = 0
    cleared: int = 0
    weight: float = 0.0
    last: float = 0.0


@dataclass(frozen=True, slots=True)
class Present:
    """Everything of the page *Now*; `mark` changes when it does."""

    jobs: tuple[JobView, ...]
    incidents: tuple[Incident, ...]
    suspects: tuple[SuspectView, ...]

    @property
    def mark(self) -> str:
        return digest(
            [(one.name, one.machines, one.ranks, one.status, one.incident) for one in self.jobs],
            [(one.id, str(one.state), one.changed, one.went_on_s, str(one.settled)) for one in self.incidents],
        )


class Observatory:
    """Looks at the fleet, the watch over the jobs, and the store; `now` is in Unix seconds."""

    def __init__(self, fleet: Fleet, monitor: StallTracker, store: Store, settings: ServerSettings) -> None:
        self._fleet = fleet
        self._stalls = monitor
        self._store = store
        self._settings = settings
        self._read: dict[tuple[str, float], list[SuspectView]] = {}

    async def present(self, now: float) -> Present:
        """What is true now; raises StoreFailed."""
        latest = await self._store.latest("", self._settings.listed)
        return Present(self._jobs(latest), latest, await self._suspects(latest, now))

    async def machines(self, now: float) -> tuple[MachineNow, ...]:
        """All machines that are known: here, or in the ledger; those most convicted and suspected first."""
        limit, clock = self._settings.max_listed, steady()
        records = {one.machine: one for one in await self._store.ask(machine_history.worst, 0.0, limit)}
        found = []
        for seen in self._fleet.machines(clock):
            record = records.pop(seen.machine, MachineRecord(seen.machine))
            findings = tuple(f"{one.code}: {one.what}" for one in seen.findings)
            silent = max(0.0, clock - seen.last_message)
            found.append(_machine(record, seen.connected, silent, seen.version, tuple(seen.jobs), findings))
        found += [_machine(record, False, None, "", (), ()) for record in records.values()]
        found.sort(key=lambda one: (-one.convicted, -one.weight, not one.findings, one.connected, one.name))
        return tuple(found[:limit])

    def machine(self, name: str) -> MachineNow | None:
        """One machine that is here, as it is; None where no agent speaks for it."""
        clock = steady()
        for seen in self._fleet.machines(clock):
            if seen.machine == name:
                findings = tuple(f"{one.code}: {one.what}" for one in seen.findings)
                silent = max(0.0, clock - seen.last_message)
                return _machine(MachineRecord(name), seen.connected, silent, seen.version, tuple(seen.jobs), findings)
        return None

    def _jobs(self, latest: tuple[Incident, ...]) -> tuple[JobView, ...]:
        clock = steady()
        under_way = {one.job: one for one in reversed(latest) if one.state in UNDER_WAY}
        newest = {one.job: one for one in reversed(latest)}
        found = []
        for job in self._fleet.jobs():
            running = self._fleet.asked(job)
            incident = under_way.get(job)
            suspicion = self._stalls.suspicion(job, running, clock, self._fleet.mute(job, clock))
            state, words = "ok", "no sign of a standstill"
            if suspicion is not None:
                state, words = "suspected", f"seems to stand still: {suspicion.why}"
            if incident is not None:
                state, words = "open", f"{incident.state}: {incident.note or incident.why or 'somebody asked'}"
            ranks = sum(len(local.ranks) for local in running.values())
            incident = incident or (newest.get(job) if suspicion is not None else None)
            found.append(JobView(job, len(running), ranks, state, words, incident.id if incident else ""))
        return tuple(sorted(found, key=lambda one: (one.status == "ok", one.name)))

    async def _suspects(self, latest: tuple[Incident, ...], now: float) -> tuple[SuspectView, ...]:
        newest: dict[str, Incident] = {}
        for one in latest:
            if one.state is IncidentState.JUDGED and now - one.began < RECENT_S:
                newest.setdefault(one.job, one)
        held_up = [one for one in newest.values() if one.evict or not one.went_on]  # else nobody was to blame
        named = [one for one in held_up if accuses(one.kind) or one.kind in BLAMELESS][:VERDICTS]
        read: dict[tuple[str, float], list[SuspectView]] = {}
        for one in named:  # a verdict may have megabytes, and open pages have us look every second
            key = one.id, one.changed
            read[key] = self._read[key] if key in self._read else _suspected(await self._store.find(one.id))
        self._read = read
        found = (suspect for suspects in read.values() for suspect in suspects)
        return tuple(sorted(found, key=lambda one: (not one.evict, -one.probability)))


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
            because[0] if because else "",
            incident.job,
            incident.id,
            str(verdict.kind),
            bool(machines) and set(machines) <= set(verdict.evict.machines),
        )
        for ranks, machines, probability, because in found
        if probability >= LEAST
    ]


def _machine(
    record: MachineRecord,
    connected: bool,
    silent: float | None,
    version: str,
    jobs: tuple[str, ...],
    findings: tuple[str, ...],
) -> MachineNow:
    stated = asdict(record)
    return MachineNow(stated.pop("machine"), connected, silent, version, jobs, findings, **stated)
