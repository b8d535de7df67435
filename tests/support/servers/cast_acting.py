"""What the tests of acts share: a cluster that is connected, a verdict that is stored, and who leads what follows."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from hangdog_models.actions.action_history import Body
from hangdog_models.actions.caps import Caps, Mode
from hangdog_models.incident import Incident
from hangdog_models.ranks import Rank
from hangdog_models.snapshot import Job, Round, Snapshot
from hangdog_models.topology import Topology
from hangdog_models.verdict import Eviction, Kind
from hangdog_server.actions.backends.actions_config import ActionsConfig, PolicyOfTests
from hangdog_server.actions.backends.backend import Backend, BackendFailed, IsolationCase, MachineMark, Mark
from hangdog_server.actions.backends.exclude_file import ExcludeFile
from hangdog_server.actions.checkpoint_copies import Manifests
from hangdog_server.actions.reconcile import ActionLoop
from hangdog_server.auth.audit_log import AuditLog
from hangdog_server.cluster.fleet import Fleet
from hangdog_server.cluster.leadership import Leading
from hangdog_server.incidents.incident_run import IncidentServices
from hangdog_server.protocol.jobs import AnnouncedJob
from hangdog_server.store import actions
from hangdog_server.store.actions import ActionRecord, ActionState
from hangdog_server.store.store import Store
from support.servers.cast import NOON, PATIENT, Stage, stage, verdict
from support.servers.tested import QUICK

NOTHING = verdict(Snapshot(Job("llama"), (Round(0, ()),)), Topology(8, {}, {"a": (Rank(0),)}))
#: Bounds that are met by no story that is not about them.
WIDE = Caps(per_hour=100, per_job=100, per_domain=100, share=1.0, breaker_share=1.0)


def body(machine: str) -> Body:
    return Body(f"start of {machine}", "")


@dataclass
class World:
    """One server's part; time stands still until `now` is set."""

    store: Store
    actors: tuple[Backend, ...]
    folder: Path
    mode: Mode = Mode.AUTO
    caps: Caps = WIDE
    now: float = NOON
    copies: Manifests | None = None
    fleet: Fleet = field(default_factory=lambda: Fleet(PATIENT))

    def __post_init__(self) -> None:
        self.means = IncidentServices(self.fleet, self.store, lambda *_: NOTHING, lambda: self.now)
        self.leading = Leading(self.store, self.fleet, PATIENT, "here:1")  # who comes after it has not to wait
        self.begin()

    def begin(self) -> None:
        """A server that has just started."""
        chosen = ActionsConfig(self.mode, self.caps, self.actors, self.folder / "stop", self.copies)
        self.audit = AuditLog(self.folder / "audit.jsonl", lambda: self.now)
        self.acting = ActionLoop(self.means, replace(PATIENT, returned_s=0.0), self.leading, self.audit, chosen)

    def connect(self, machine: str, job: str = "", told: Body | None = None) -> None:
        """Its agent is there, and says what runs on it."""
        connection = self.fleet.connect(machine, "1", "here", 0.0, body=told or body(machine))
        if job:
            rank = Rank(ord(machine[-1]) % 64)  # its own: machines that claim one rank are in conflict
            self.fleet.announce(connection, {job: AnnouncedJob(job, (rank,), 64)}, 0.0)

    async def judged(
        self, name: str, *machines: str, job: str = "llama", ago: float = 30.0, job_toml: str = "",
        bodies: Mapping[str, Body] | None = None, pods: Mapping[str, Sequence[str]] | None = None,
    ) -> None:  # fmt: skip
        """A verdict that would evict these machines; `pods`: UIDs that their agents told of, by machine."""
        told = {one: [b.boot, b.serial] for one, b in (bodies or {one: body(one) for one in machines}).items()}
        of: Mapping[str, object] = (
            dict.fromkeys(machines) if pods is None else {one: {"pods": pods[one]} for one in pods}
        )
        asked = {"asked": of, "absent": {}, "job_toml": job_toml, "bodies": told}
        await self.store.begin(Incident(name, job, self.now - ago), asked)
        said = replace(NOTHING, kind=Kind.MACHINE, confidence=0.97, evict=Eviction(machines, 0.97))
        await self.store.judged(name, said, self.now)

    async def states(self, incident: str) -> dict[str, str]:
        return {row.machine: str(row.state) for row in await self.store.ask(actions.of, incident)}

    async def words(self, incident: str) -> str:
        return " | ".join(row.message for row in await self.store.ask(actions.of, incident))

    async def until(self, incident: str, *states: ActionState) -> None:
        """Ticks until all machines of an incident are so far."""
        for _ in range(200):
            found = set((await self.states(incident)).values())
            if found and found <= set(map(str, states)):
                return
            await self.acting.tick()
        raise AssertionError(await self.states(incident))


@asynccontextmanager
async def world(where: Path | str, folder: Path, *actors: Backend, **more: object) -> AsyncIterator[World]:
    """A cluster of three machines of llama and three without a job, upon a store."""
    folder.mkdir(exist_ok=True)
    store = Store(where)
    try:
        made = World(store, actors, folder, **more)  # type: ignore[arg-type]  # as its fields are
        for machine in "abc":
            made.connect(machine, "llama")
        for machine in "xyz":
            made.connect(machine)
        yield made
        await made.acting.close()
    finally:
        store.close()


Do = Callable[[World], object]


@dataclass
class Played:
    """A scheduler as the test plays it: who is out by whose reason, and every act in order."""

    name: str = "played"
    again_s: float = 0.0
    marks: dict[str, str] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)
    fails: BackendFailed | None = None
    runs: dict[str, str] = field(default_factory=dict)
    moving: int = 0

    async def look(self, case: IsolationCase) -> MachineMark:
        if self.fails:
            raise self.fails
        owner = self.marks.get(case.machine)
        kind = Mark.NONE if owner is None else Mark.ANOTHERS if owner == "ops" else Mark.OURS
        return MachineMark(kind, owner or "", owner or "")

    async def mark(self, case: IsolationCase) -> None:
        if (await self.look(case)).mark is Mark.ANOTHERS:
            raise BackendFailed(f"{case.machine} is left alone", "ask ops")
        if case.machine not in self.marks or self.again_s:
            self.marks[case.machine] = case.incident
            self.told.append(f"mark {case.machine}")

    async def unmark(self, case: IsolationCase) -> None:
        standing = await self.look(case)
        if standing.mark is Mark.ANOTHERS:
            raise BackendFailed(f"{case.machine} is left alone", "ask ops")
        if standing.incident == case.incident:
            del self.marks[case.machine]
            self.told.append(f"unmark {case.machine}")

    async def close(self) -> None:
        """Holds nothing."""


class Moving(Played):
    """One that also has jobs start again."""

    async def run_of(self, case: IsolationCase) -> str:
        return self.runs.get(case.machine, "")

    async def move(self, case: IsolationCase, run: str, machines: list[str]) -> bool:
        if self.fails:
            raise self.fails
        self.told.append(f"move {run} without {','.join(machines)}")
        self.moving -= 1
        return self.moving < 0


#: The incident of the stories about machines that are tested once they are out.
ISOLATING = "0a"


@asynccontextmanager
async def serving(
    folder: Path, testing: PolicyOfTests, mode: Mode = Mode.AUTO, returned_s: float = 0.0, lost_s: float | None = None
) -> AsyncIterator[Stage]:
    """A server that acts, tests whom it isolated, and hardly waits for who is lost; after a start for so many seconds."""
    does = ActionsConfig(mode, WIDE, (ExcludeFile(folder / "excluded"),), folder / "stop", testing=testing)
    waits = QUICK.campaign_lost_s if lost_s is None else lost_s
    settings = replace(QUICK, returned_s=returned_s, campaign_lost_s=waits)
    async with stage(folder / "s.db", settings=settings, does=does) as on:
        yield on


async def evicted(on: Stage, *names: str) -> None:
    """A verdict that takes these machines out."""
    bodies = {name: [f"start of {name}", ""] for name in names}
    asked = {"asked": dict.fromkeys(names), "absent": {}, "job_toml": "", "bodies": bodies}
    await on.store.begin(Incident(ISOLATING, "llama", NOON - 30.0), asked)
    said = replace(NOTHING, kind=Kind.GROUP, confidence=0.97, evict=Eviction(names, 0.97))
    await on.store.judged(ISOLATING, said, NOON)


async def rows(on: Stage) -> dict[str, ActionRecord]:
    return {row.machine: row for row in await on.store.ask(actions.of, ISOLATING)}


async def until(on: Stage, **states: str) -> dict[str, ActionRecord]:
    async with asyncio.timeout(40):
        while True:
            found = await rows(on)
            if {name: str(row.state) for name, row in found.items()} == states:
                return found
            await asyncio.sleep(0.05)


async def concluded(on: Stage, name: str) -> ActionRecord:
    """The act on a machine, once it tells what came of the campaign."""
    async with asyncio.timeout(40):
        while (row := (await rows(on)).get(name)) is None or "campaign " not in row.message:
            await asyncio.sleep(0.05)
    return row
