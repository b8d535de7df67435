"""Carries verdicts out: writes down what follows from each, does it, reads it back, and tries again while somebody is away.

Nothing is done that is not in the store before, and nothing is believed that was not seen afterwards. A server that ends
anywhere between is followed by one that looks first: marks and moves happen once however often they are tried.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterable
from dataclasses import replace
from itertools import groupby

import sqlalchemy as sa

from hangdog_models.acting.caps import Mode
from hangdog_models.acting.history import Body, Wanted
from hangdog_models.errors import HangdogError
from hangdog_models.reading.job import read_job
from hangdog_server import intents
from hangdog_server.actors.actor import Actor, ActorFailed, Case, Mark, Mover
from hangdog_server.actors.chosen import Chosen
from hangdog_server.audit import Audit, Deed
from hangdog_server.capturing import steady
from hangdog_server.failures import StoreFailed
from hangdog_server.incident import Means
from hangdog_server.intents import Act, Facts, Intent, Rule
from hangdog_server.leading import Leading
from hangdog_server.lease import NotOurs
from hangdog_server.settings import Settings
from hangdog_server.store import Incident

#: Between two tries, and between two looks at what is to be done where nobody says that there is something. Seconds.
TICK_S = 5.0
#: Between two looks at whether a job has started again: a scheduler takes some seconds for it.
MOVING_S = 1.0

log = logging.getLogger(__name__)


class Acting:
    """What follows from verdicts on one server; `keep` does it until it is cancelled."""

    def __init__(self, means: Means, settings: Settings, leading: Leading, audit: Audit, chosen: Chosen) -> None:
        self.chosen = chosen
        self._means = means
        self._settings = settings
        self._leading = leading
        self._audit = audit
        self._began = steady()
        self._told: dict[tuple[str, str], float] = {}
        self._moving = False

    async def keep(self) -> None:
        """Does again and again what is to be done; raises nothing."""
        while True:
            try:
                await self.tick()
            except StoreFailed as error:
                log.error("nothing is done to machines now: %s", error)
            except Exception:  # a bug met in one act must not keep all others from being done
                log.exception("what is to be done was not done")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(MOVING_S if self._moving else TICK_S):
                    await self._means.judged.wait()
            self._means.judged.clear()

    async def close(self) -> None:
        """Lets go of what the actors hold."""
        for actor in self.chosen.actors:
            await actor.close()

    async def tick(self) -> None:
        """Writes down what follows from new verdicts, and does one step of all that is written; raises StoreFailed."""
        self._moving = False
        if self.stopped():
            return
        await self._propose()
        rows = sorted(await self._means.store.ask(intents.under_way), key=lambda row: row.incident)
        groups = [list(group) for _, group in groupby(rows, lambda row: row.incident)]
        mine = [group for group in groups if await self._leading.leads(group[0].job)]
        await asyncio.gather(*map(self._led, mine))

    def stopped(self) -> bool:
        """Whether the file is there with which an operator stops everything."""
        return self.chosen.stop is not None and self.chosen.stop.exists()

    def rule(self) -> Rule:
        """How far hangdog may go now."""
        return Rule(self.chosen.mode, self.chosen.caps, self._means.clock())

    async def facts(self, incident: str) -> Facts:
        """What is known of all machines, and what the job's description says of those of an incident."""
        fleet = self._means.fleet
        asked, _ = await self._means.store.kept(incident)
        domains: dict[str, str] = {}
        if asked.get("job_toml"):
            switches = read_job(asked["job_toml"])[1].switches
            domains = {machine: switch for switch, machines in sorted(switches.items()) for machine in machines}
        there = {seen.machine for seen in fleet.machines(steady())} | fleet.bodies().keys()
        there |= {*asked.get("asked", {}), *asked.get("absent", {})}
        return Facts(len(there), fleet.free(), fleet.bodies(), domains)

    async def _propose(self) -> None:
        if self.chosen.mode is Mode.OBSERVE:
            return
        store, rule = self._means.store, self.rule()
        judged = await store.evicting(rule.now - rule.caps.evidence_s)
        known = await store.ask(intents.known, [incident.id for incident in judged]) if judged else frozenset()
        for incident in judged:
            if incident.id in known or not await self._leading.leads(incident.job):
                continue
            asked, _ = await store.kept(incident.id)
            bodies = _bodies(asked.get("bodies"))
            if self._awaited(incident.evict, bodies):
                continue
            wanted = Wanted(incident.id, incident.job, incident.evict, incident.began, bodies)
            try:
                facts = await self.facts(incident.id)
            except HangdogError as error:
                log.error("incident %s: nothing follows from it: %s", incident.id, error)
                continue
            try:
                rows = await self._written(wanted, _because(incident), facts, rule)
            except NotOurs:
                continue
            for row in rows:
                await self._note(row, "isolate", f"{row.state}{f': {row.words}' if row.words else ''}")

    async def _written(self, wanted: Wanted, because: str, facts: Facts, rule: Rule) -> tuple[Intent, ...]:
        store = self._means.store

        def propose(connection: sa.Connection) -> tuple[Intent, ...]:
            store.one_at_a_time(connection, intents.TURN)
            return intents.propose(connection, wanted, because, facts, rule)

        return await store.write(wanted.incident, propose)

    def _awaited(self, machines: Iterable[str], bodies: dict[str, Body]) -> bool:
        """Whether agents may still come back to a server that has just begun, and tell that a machine was started anew."""
        known = self._means.fleet.bodies()
        late = any(machine in bodies and machine not in known for machine in machines)
        return late and steady() - self._began < self._settings.returned_s

    async def _led(self, rows: list[Intent]) -> None:
        with contextlib.suppress(NotOurs):  # another server leads the job since a moment ago, and goes on with it
            await self._carry(rows)

    async def _carry(self, rows: list[Intent]) -> None:
        """One step of all that is to be done for one incident."""
        for row in rows:
            if row.state is Act.RELEASING:
                await self._release(row)
            elif row.state is Act.PENDING:
                await self._mark(row)
            else:
                await self._hold(row)
        fresh = await self._means.store.ask(intents.of, rows[0].incident)
        taken = [row for row in fresh if row.state is Act.MARKED]
        if taken and not any(row.state is Act.PENDING for row in fresh):  # else the job might come back to one of them
            await self._move(taken)

    async def _mark(self, row: Intent) -> None:
        case, done = _case(row), False
        try:
            for actor in self.chosen.actors:
                if (await actor.look(case)).mark is not Mark.OURS:
                    self._still_true(row)
                await actor.mark(case)
                standing = await actor.look(case)
                if standing.mark is Mark.OURS and standing.incident != row.incident:
                    raise ActorFailed(f"{row.machine} is marked for incident {standing.incident} already")
                if standing.mark is Mark.NONE:
                    raise ActorFailed(f"{actor.name} does not show the mark on {row.machine}", again=True)
                done = True
                self._told[case.key, actor.name] = steady()
        except ActorFailed as error:
            await self._failed(row, error, done)
            return
        await self._moved(row, Act.MARKED, "out of use", marked=True)

    async def _move(self, rows: list[Intent]) -> None:
        """Has the job start again without any of these machines."""
        machines = [row.machine for row in rows]
        movers = [actor for actor in self.chosen.actors if isinstance(actor, Mover)]
        under_way = False
        for actor in movers:
            for number, row in enumerate(rows):
                try:
                    if actor.name not in row.runs:  # of all machines before anything moves
                        runs = {**row.runs, actor.name: await actor.run_of(_case(row))}
                        await self._means.store.write(row.incident, intents.ran, row, runs)
                        rows[number] = replace(row, runs=runs)
                except ActorFailed as error:
                    await self._failed(row, error, marked=True)
                    return
            for row in rows:
                run = row.runs[actor.name]
                try:
                    under_way |= bool(run) and not await actor.move(_case(row), run, machines)
                    if under_way:
                        self._still_true(row, "its job did not start again")
                except ActorFailed as error:
                    await self._failed(row, error, marked=True)
                    under_way = True
        self._moving |= under_way
        if under_way:
            return
        moved = any(run for row in rows for run in row.runs.values())
        for row in rows:
            await self._moved(
                row, Act.DONE, "out of use, its job starts elsewhere" if moved else "out of use", marked=True
            )

    async def _release(self, row: Intent) -> None:
        words = "released"
        for actor in self.chosen.actors:
            try:
                await actor.unmark(_case(row))
            except ActorFailed as error:
                if error.again:
                    await self._moved(row, Act.RELEASING, _said(error), row.marked, tell=str(error) not in row.words)
                    return
                words = f"released; {error}"
        await self._moved(row, Act.RELEASED, words, marked=False)

    async def _hold(self, row: Intent) -> None:
        """Makes marks again that do not last by themselves."""
        for actor in self.chosen.actors:
            if (
                actor.again_s
                and steady() - self._told.get((_case(row).key, actor.name), float("-inf")) >= actor.again_s
            ):
                try:
                    await actor.mark(_case(row))
                except ActorFailed as error:
                    log.warning("%s is not told again of %s: %s", actor.name, row.machine, error)
                else:
                    self._told[_case(row).key, actor.name] = steady()

    def _still_true(self, row: Intent, what: str = "nothing was done") -> None:
        """Raises ActorFailed once the evidence is too old, or of another start of the machine."""
        rule, there = self.rule(), self._means.fleet.bodies().get(row.machine)
        if not rule.now - row.evidence_at <= rule.caps.evidence_s:
            raise ActorFailed(f"{what} until the evidence was too old{f' ({row.words})' if row.words else ''}")
        if there is not None and there != row.body:
            raise ActorFailed(f"{row.machine} was started anew since the evidence, or is other hardware")

    async def _failed(self, row: Intent, error: ActorFailed, marked: bool) -> None:
        state = row.state if error.again else Act.FAILED
        tell = not error.again or _said(error) != row.words
        await self._moved(row, state, _said(error), marked or row.marked, tell)

    async def _moved(self, row: Intent, state: Act, words: str, marked: bool, tell: bool = True) -> None:
        now, store = self._means.clock(), self._means.store
        if await store.write(row.incident, intents.move, row, state, now, words, marked) and tell:
            await self._note(row, "release" if row.state is Act.RELEASING else "isolate", f"{state}: {words}")

    async def _note(self, row: Intent, what: str, outcome: str) -> None:
        named = ", ".join(actor.name for actor in self.chosen.actors)
        log.warning("incident %s: %s %s by %s: %s", row.incident, what, row.machine, named, outcome)
        deed = Deed(f"{what} {row.machine}", row.who, "", named, "", row.job, row.because, row.incident, outcome)
        await self._audit.note(deed)


def _case(row: Intent) -> Case:
    return Case(row.incident, row.machine, row.job, row.because)


def _because(incident: Incident) -> str:
    return f"{incident.kind} ({incident.confidence:.0%}), hangdog show {incident.id}"


def _said(error: ActorFailed) -> str:
    return f"{error} ({error.hint})" if error.hint else str(error)


def _bodies(told: object) -> dict[str, Body]:
    return {machine: Body(*body) for machine, body in told.items()} if isinstance(told, dict) else {}


def actors_named(actors: Iterable[Actor]) -> list[str]:
    """The actors by name."""
    return [actor.name for actor in actors]
