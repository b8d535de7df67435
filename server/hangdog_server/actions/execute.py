"""Carries out what is written down: marks, moves, releases, and reads back; tries again while somebody is away.

A server that ends anywhere between is followed by one that looks first: marks and moves happen once however often they
are tried.
"""

import asyncio
import contextlib
import logging
from dataclasses import replace

from hangdog_models.actions.caps import Mode
from hangdog_models.errors import HangdogError, WrongUse
from hangdog_models.planning.checkpoint import Copies
from hangdog_server.actions import policy
from hangdog_server.actions.backends.actions_config import Chosen
from hangdog_server.actions.backends.backend import Actor, ActorFailed, Case, Mark, Mover, Standing, left_alone
from hangdog_server.auth.audit_log import Audit, Deed
from hangdog_server.incidents.incident_run import Means
from hangdog_server.incidents.round_capture import steady
from hangdog_server.store import actions
from hangdog_server.store.actions import Act, Intent
from hangdog_server.store.leases import NotOurs

#: What stands between why somebody wants a machine back and why they have it not yet.
_NOT_YET = "; not yet: "

log = logging.getLogger(__name__)


class Carrying:
    """One server's hands. `moving`: a job is about to start again, so that it is worth looking soon."""

    def __init__(self, means: Means, audit: Audit, chosen: Chosen) -> None:
        self._means = means
        self._audit = audit
        self._chosen = chosen
        self._told: dict[tuple[str, str], float] = {}
        self.moving = False

    async def carry(self, rows: list[Intent]) -> None:
        """One step of all that is to be done for one incident; raises StoreFailed."""
        with contextlib.suppress(NotOurs):  # another server leads the job since a moment ago, and goes on with it
            await self._carry(rows)

    async def copies(self, job: str) -> tuple[Copies | None, str]:
        """Who holds copies of the job's checkpoint, None where nobody says; and why what is said cannot be read."""
        if self._chosen.copies is None:
            return None, ""
        try:
            copies = await self._chosen.copies.of(job)
        except WrongUse as error:
            return None, _said(error)
        if copies is None:
            log.warning("nobody says who holds the checkpoint of job %s: copies in memory go with its machines", job)
        return copies, ""

    async def note(self, row: Intent, what: str, outcome: str) -> None:
        """Tells the log and the record."""
        named = ", ".join(actor.name for actor in self._chosen.actors)
        log.warning("incident %s: %s %s by %s: %s", row.incident, what, row.machine, named, outcome)
        deed = Deed(f"{what} {row.machine}", row.who, "", named, "", row.job, row.because, row.incident, outcome)
        await self._audit.note(deed)

    async def _carry(self, rows: list[Intent]) -> None:
        acts = self._chosen.mode in (Mode.APPROVE, Mode.AUTO)  # else only what people want back is touched
        held = await self._gated(rows) if acts else ""
        for row in rows:
            if row.state is Act.RELEASING:
                await self._release(row)
            elif row.state is Act.PENDING and acts:
                await self._mark(row, held)
            elif row.marked:
                await self._hold(row)
        fresh = await self._means.store.ask(actions.of, rows[0].incident)
        taken = [row for row in fresh if row.state is Act.MARKED]
        if (
            acts and taken and not any(row.state is Act.PENDING for row in fresh)
        ):  # else it might come back to one of them
            await self._move(taken)

    async def _gated(self, rows: list[Intent]) -> str:
        """Why the job's checkpoint forbids now what was allowed when it was decided: copies move while a scheduler is away."""
        machines = [row.machine for row in rows if row.state is Act.PENDING]
        if self._chosen.copies is None or not machines:
            return ""
        copies, unread = await self.copies(rows[0].job)
        gone = await self._means.store.ask(actions.out)
        return policy.gated(machines, gone.difference(machines), copies, unread)

    async def _mark(self, row: Intent, held: str) -> None:
        """Marks a machine; where nothing of ours stands on it yet, not while something holds it back."""
        case = _case(row)
        try:
            await self._unopposed(case)
            for actor in self._chosen.actors:
                before = (await actor.look(case)).mark
                if before is not Mark.OURS:
                    self._still_true(row, "nothing was done")
                    if held and not row.marked:
                        raise ActorFailed(held, again=True)
                if before in (Mark.NONE, Mark.UNKNOWN) and not row.marked:
                    if not await self._means.store.write(row.incident, actions.may, row):
                        return  # somebody dismissed it a moment ago
                    row = replace(row, marked=True)
                await actor.mark(case)
                standing = await actor.look(case)
                _of_this(case, standing)
                if standing.mark is Mark.NONE:
                    raise ActorFailed(f"{actor.name} does not show the mark on {row.machine}", again=True)
                self._told[case.key, actor.name] = steady()
        except ActorFailed as error:
            await self._failed(row, error)
            return
        await self._moved(row, Act.MARKED, "out of use", marked=True)

    async def _unopposed(self, case: Case) -> None:
        """Raises ActorFailed where an actor whose turn comes later would refuse: what those before it did would stand in vain.

        Whoever is away refuses nothing. The first actor is looked at in its turn, which is before all marks.
        """
        later = self._chosen.actors[1:]
        found = await asyncio.gather(*(actor.look(case) for actor in later), return_exceptions=True)
        for actor, standing in zip(later, found, strict=True):
            if isinstance(standing, ActorFailed) and standing.again:
                continue
            if isinstance(standing, BaseException):
                raise standing
            if standing.mark is Mark.ANOTHERS:
                raise left_alone(actor.name, case.machine, standing)
            _of_this(case, standing)

    async def _move(self, rows: list[Intent]) -> None:
        """Has the job start again without any of these machines, once it is known what of it ran on each."""
        machines, done = [row.machine for row in rows], True
        for mover in self._chosen.actors:
            if not isinstance(mover, Mover):
                continue
            for number, row in enumerate(rows):
                try:
                    rows[number] = await self._ran(row, mover, mover.name)
                except ActorFailed as error:
                    await self._failed(row, error)
                    return
            for row in rows:
                done &= await self._moves(row, mover, row.runs[mover.name], machines)
        self.moving |= not done
        if done:
            moved = any(run for row in rows for run in row.runs.values())
            words = "out of use, its job starts elsewhere" if moved else "out of use"
            for row in rows:
                await self._moved(row, Act.DONE, words, marked=True)

    async def _ran(self, row: Intent, mover: Mover, name: str) -> Intent:
        """The row with what of the job runs there, which is kept before anything moves: afterwards it would be another run."""
        if name in row.runs:
            return row
        runs = {**row.runs, name: await mover.run_of(_case(row))}
        await self._means.store.write(row.incident, actions.ran, row, runs)
        return replace(row, runs=runs)

    async def _moves(self, row: Intent, mover: Mover, run: str, machines: list[str]) -> bool:
        """Whether the job starts elsewhere; one that cannot is said to have failed."""
        try:
            if not run or await mover.move(_case(row), run, machines):
                return True
            self._still_true(row, "its job did not start again")
        except ActorFailed as error:
            await self._failed(row, error)
        return False

    async def _release(self, row: Intent) -> None:
        words = why = row.words.partition(_NOT_YET)[0]
        for actor in self._chosen.actors:
            try:
                await actor.unmark(_case(row))
            except ActorFailed as error:
                if error.again:
                    late = f"{why}{_NOT_YET}{_said(error)}"
                    await self._moved(row, Act.RELEASING, late, row.marked, tell=late != row.words)
                    return
                if await self._holds(actor, row, unasked=False):
                    await self._moved(row, Act.FAILED, f"{why}; not released: {_said(error)}", row.marked)
                    return
                words = f"{words}; {error}"
        await self._moved(row, Act.RELEASED, words, marked=False)

    async def _hold(self, row: Intent) -> None:
        """Makes marks again that do not last by themselves."""
        case = _case(row)
        for actor in self._chosen.actors:
            last = self._told.get((case.key, actor.name), float("-inf"))
            if not actor.again_s or steady() - last < actor.again_s:
                continue
            try:
                await actor.mark(case)
            except ActorFailed as error:
                log.warning("%s is not told again of %s: %s", actor.name, row.machine, error)
            else:
                self._told[case.key, actor.name] = steady()

    def _still_true(self, row: Intent, what: str) -> None:
        """Raises ActorFailed once the evidence is too old, or of another start of the machine."""
        there, age = self._means.fleet.bodies().get(row.machine), self._means.clock() - row.evidence_at
        if not age <= self._chosen.caps.evidence_s:
            raise ActorFailed(f"{what} until the evidence was too old{f' ({row.words})' if row.words else ''}")
        if there is not None and there != row.body:
            raise ActorFailed(f"{row.machine} was started anew since the evidence, or is other hardware")

    async def _failed(self, row: Intent, error: ActorFailed) -> None:
        """Notes that it is tried again, or given up: then a mark of ours is one only where it is seen, or cannot be.

        What may have been marked is tried until whoever is away tells; what surely was not only while its evidence holds.
        """
        if error.again and (row.state is Act.MARKED or not row.marked):
            try:
                self._still_true(row, "its job did not start again" if row.state is Act.MARKED else "nothing was done")
            except ActorFailed as late:
                error = late
        if error.again:
            await self._moved(row, row.state, _said(error), row.marked, tell=_said(error) != row.words)
            return
        marked = row.marked and any([await self._holds(actor, row) for actor in self._chosen.actors])
        await self._moved(row, Act.FAILED, _said(error), marked)

    async def _holds(self, actor: Actor, row: Intent, unasked: bool = True) -> bool:
        """Whether our mark stands; `unasked` where nobody can be asked."""
        try:
            standing = await actor.look(_case(row))
        except ActorFailed:
            return True
        if standing.mark is Mark.UNKNOWN:
            return unasked
        return standing.mark is Mark.OURS and standing.incident == row.incident

    async def _moved(self, row: Intent, state: Act, words: str, marked: bool, tell: bool = True) -> None:
        now, store = self._means.clock(), self._means.store
        if await store.write(row.incident, actions.move, row, state, now, words, marked) and tell:
            await self.note(row, "release" if row.state is Act.RELEASING else "isolate", f"{state}: {words}")


def _case(row: Intent) -> Case:
    # what told the job apart here is no part of its name, by which whoever runs it knows it
    name = row.job.removesuffix(f"@{row.owner}") if row.owner.known else row.job
    return Case(row.incident, row.machine, name, row.because, row.owner, row.pods)


def _of_this(case: Case, standing: Standing) -> None:
    """Raises ActorFailed where a mark of ours is another incident's."""
    if standing.mark is Mark.OURS and standing.incident != case.incident:
        raise ActorFailed(f"{case.machine} is marked for incident {standing.incident} already")


def _said(error: HangdogError) -> str:
    return f"{error} ({error.hint})" if error.hint else str(error)
