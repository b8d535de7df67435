"""What is done about incidents and machines, in words: acts, campaigns of tests, and what a machine was convicted of before."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from hangdog_models.actions.by_hand import NO_SCHEDULER, isolating
from hangdog_models.incident import Incident, ResponseEntry
from hangdog_models.machine_history import MachineTests, VerdictMention
from hangdog_models.owner import UNKNOWN
from hangdog_server.etag import digest
from hangdog_server.grpc_api.action_service import ActionService, ActionsOverview, concerned
from hangdog_server.settings import ServerSettings
from hangdog_server.store import actions, machine_history, test_results
from hangdog_server.store import campaigns as records
from hangdog_server.store.actions import OPEN, ActionRecord, ActionState
from hangdog_server.store.campaigns import Campaign, Glimpse
from hangdog_server.store.history import responses
from hangdog_server.store.store import Store

#: What ended is told of on the first page for so long: a shift and its hand-over. Seconds.
LATELY_S = 12 * 3600.0
#: Acts, campaigns and tests on one page: more is what commands and the JSON are for.
MOST = 100
#: How an act looks; its sentence says the same.
TONES = {
    ActionState.WAITING: "warn", ActionState.REFUSED: "warn", ActionState.FAILED: "bad", ActionState.PENDING: "bad", ActionState.MARKED: "bad", ActionState.DONE: "bad",
    ActionState.RELEASED: "good",
}  # fmt: skip


#: What stands before an order.
_NOW = "Do now"
_WHEN: Mapping[ActionState | None, str] = {
    ActionState.PENDING: "Being done", ActionState.MARKED: "Being done", ActionState.DONE: "Done", ActionState.DISMISSED: "Dismissed",
    ActionState.REFUSED: "Do by hand", ActionState.FAILED: "Do by hand", ActionState.RELEASING: "Being undone", ActionState.RELEASED: "Done and undone",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ActionView:
    """What is done about one incident: its acts by machine, and the campaigns about it, the oldest first.

    `entries` are what people did about the incident itself.
    """

    incident: str
    acts: tuple[ActionRecord, ...]
    campaigns: tuple[Campaign, ...]
    overview: ActionsOverview
    entries: tuple[ResponseEntry, ...] = ()

    @property
    def mark(self) -> str:
        """Changes when what a page shows of it does; empty while nothing is done."""
        return _mark(self.acts, self.campaigns)

    def open(self, what: str) -> tuple[str, ...]:
        """The machines that approving or dismissing would be about, none where it would be refused for all of them."""
        if what == "approve" and (not self.overview.acts or self.overview.breaker):
            return ()
        return tuple(row.machine for row in concerned(what, self.acts))

    @property
    def because(self) -> str:
        """Why nothing can be approved of, where something is open."""
        if not any(row.state in OPEN for row in self.acts):
            return ""
        if not self.overview.acts:
            return f"The server is in mode {self.overview.mode}: nothing is done, whoever approves."
        breaker = self.overview.breaker
        return f"The breaker is open ({breaker}); hangdog actions --close-breaker closes it." if breaker else ""

    def by_hand(self, machines: Collection[str]) -> tuple[str, ...]:
        """Commands that isolate those of these machines that hangdog will not isolate, or what to do where none is known."""
        rows = {row.machine: row for row in self.acts}
        lines: list[str] = []
        for machine in machines:
            row = rows.get(machine)
            if self._left_to_people(row):
                owner = row.owner if row is not None else UNKNOWN
                lines += isolating(machine, self.incident, self.overview.actors, owner) or (NO_SCHEDULER,)
        return tuple(dict.fromkeys(lines))

    def _left_to_people(self, row: ActionRecord | None) -> bool:
        if row is None or row.state is ActionState.WAITING:
            return not self.overview.acts or bool(row and (self.overview.breaker or self.overview.stopped))
        return row.state in (ActionState.DRY_RUN, ActionState.REFUSED, ActionState.FAILED)

    def when(self, machines: Collection[str]) -> str:
        """How far it is to take these machines out of use, which is all of the order or nothing."""
        of = {row.machine: row.state for row in self.acts}
        states = {of.get(machine) for machine in machines}
        return _WHEN.get(states.pop(), _NOW) if len(states) == 1 else _NOW


@dataclass(frozen=True, slots=True)
class Lately:
    """What is under way or ended lately, over all incidents, newest first."""

    done: tuple[ActionView, ...]
    campaigns: tuple[Campaign, ...]
    overview: ActionsOverview

    @property
    def mark(self) -> str:
        """Changes when what a page shows of it does."""
        return _lately_mark([row for one in self.done for row in one.acts], self.campaigns, self.overview)


@dataclass(frozen=True, slots=True)
class MachineLife:
    """What is kept of one machine: tests and convictions, what verdicts said, what was done to it."""

    past: MachineTests
    ledger: tuple[VerdictMention, ...]
    acts: tuple[ActionRecord, ...]

    def __bool__(self) -> bool:
        return bool(self.past.tests or self.past.convictions or self.ledger or self.acts)


class History:
    """Reads it from the store; `clock` gives Unix seconds. Everything raises HangdogError."""

    def __init__(
        self, store: Store, actions: ActionService, settings: ServerSettings, clock: Callable[[], float]
    ) -> None:
        self._store = store
        self._actions = actions
        self._settings = settings
        self._clock = clock

    async def of(self, incident: str) -> ActionView:
        """What is done about an incident."""
        acts = await self._store.ask(actions.of, incident)
        tested, entries = await self._store.ask(records.about, incident), await self._store.ask(responses.of, incident)
        return ActionView(incident, acts, tested, await self._actions.overview(), entries)

    async def acts_of(self, prefix: str) -> tuple[Incident, tuple[ActionRecord, ...]]:
        """The one incident whose name begins so, and its acts; raises WrongUse."""
        incident = await self._store.find(prefix)
        return incident, await self._store.ask(actions.of, incident.id)

    async def acts_on(self, machine: str) -> tuple[ActionRecord, ...]:
        """The acts on a machine, the newest first."""
        return await self._store.ask(actions.of_machine, machine)

    async def lately(self) -> Lately:
        """What is done now, and was lately."""
        since, state = self._clock() - LATELY_S, await self._actions.overview()
        rows = await self._store.ask(actions.lately, since, MOST)
        campaigns = await self._store.ask(records.lately, since, MOST)
        by: dict[str, list[ActionRecord]] = {}
        for row in rows:
            by.setdefault(row.incident, []).append(row)
        done = tuple(ActionView(incident, tuple(acts), (), state) for incident, acts in by.items())
        return Lately(done, campaigns, state)

    async def marks(self, incidents: Collection[str]) -> tuple[str, dict[str, str]]:
        """The mark of `lately`, and of each of these incidents that something is done about the mark of that."""
        since, state = self._clock() - LATELY_S, await self._actions.overview()
        rows = await self._store.ask(actions.lately, since, MOST)
        acts = await self._store.ask(actions.of_each, incidents)
        about, recent = await self._store.ask(records.glimpses, incidents, since, MOST)
        found = {}
        for incident in {row.incident for row in acts} | {one.incident for one in about}:
            mine = [row for row in acts if row.incident == incident]
            found[incident] = _mark(mine, [one for one in about if one.incident == incident][: records.ABOUT])
        return _lately_mark(rows, recent, state), found

    async def actions_mark(self) -> str:
        """Changes when it does how far the server goes by itself."""
        return digest(await self._actions.overview())

    async def life(self, machine: str) -> MachineLife:
        """What is kept of a machine."""
        found = await self._store.ask(test_results.of, machine, MOST, self._settings.probation_s)
        stated = await self._store.ask(machine_history.of, machine, 0.0, MOST)
        acts = await self._store.ask(actions.of_machine, machine)
        return MachineLife(found, stated, acts[:MOST])

    async def probation(self, machines: Collection[str]) -> frozenset[str]:
        """Those of the machines that are on probation, by their own convictions or those of parts that are in them."""
        if not self._settings.probation_s:
            return frozenset()
        since = self._clock() - self._settings.probation_s
        known = await self._store.ask(test_results.offences, machines, since)
        return frozenset(machine for machine, serials in known.serials.items() if any(map(known.counts.get, serials)))


def mark(incident: Incident, done: str) -> str:
    """Changes whenever the page of an incident would, about which `done` is the mark of what is done."""
    over = f"@{incident.went_on_s:.0f}" if incident.went_on_s else ""
    settled = f"@{incident.settled.at:.3f}" if incident.settled is not None else ""
    answered = f"@{incident.response.entries}" if incident.response.entries else ""
    return f"{incident.state}@{incident.changed:.3f}{over}{settled}{answered}{f'@{done}' if done else ''}"


def _lately_mark(acts: Iterable[ActionRecord], campaigns: Iterable[Campaign | Glimpse], state: ActionsOverview) -> str:
    return _mark(acts, campaigns, state.breaker, state.stopped, state.mode)


def _mark(acts: Iterable[ActionRecord], campaigns: Iterable[Campaign | Glimpse], *more: str) -> str:
    """In whatever order they are."""
    shown = sorted((row.incident, row.machine, str(row.state), row.message, row.who, row.marked) for row in acts)
    tested = sorted((one.id, str(one.state)) for one in campaigns)
    if not shown and not tested and not any(more):
        return ""
    return digest(shown, tested, more)
