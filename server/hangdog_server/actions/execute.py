"""Carries out the actions in the store: marks, moves, releases, and reads back; tries again while a backend is away.

If the server ends in between, the next one reads back first. So marks and moves happen once, however often they are tried.
"""

import asyncio
import contextlib
import logging
from dataclasses import replace

from hangdog_models.actions.caps import Mode
from hangdog_models.errors import HangdogError, WrongUse
from hangdog_models.planning.checkpoint import Copies
from hangdog_server.actions import policy
from hangdog_server.actions.backends.actions_config import ActionsConfig
from hangdog_server.actions.backends.backend import (
    Backend,
    BackendFailed,
    IsolationCase,
    MachineMark,
    Mark,
    Mover,
    left_alone,
)
from hangdog_server.auth.audit_log import AuditEntry, AuditLog
from hangdog_server.incidents.incident_run import IncidentServices
from hangdog_server.incidents.round_capture import steady
from hangdog_server.store import actions
from hangdog_server.store.actions import ActionRecord, ActionState
from hangdog_server.store.leases import NotOurs

#: Separates the reason of a release from why it is not done yet.
_NOT_YET = "; not yet: "
_NO_BACKEND = "this server has no backend that could remove the mark: start it with the --acting file that set it"

log = logging.getLogger(__name__)


class Executor:
    """Carries out actions, for one server. `moving`: a job is about to start again, so the next step comes soon."""

    def __init__(self, services: IncidentServices, audit: AuditLog, chosen: ActionsConfig) -> None:
        self._services = services
        self._audit = audit
        self._chosen = chosen
        self._logged: dict[tuple[str, str], float] = {}
        self.moving = False

    async def carry(self, rows: list[ActionRecord]) -> None:
        """One step of all that is to be done for one incident; raises StoreFailed."""
        with contextlib.suppress(NotOurs):  # another server leads the job since a moment ago, and goes on with it
            await self._carry(rows)

    async def copies(self, job: str) -> tuple[Copies | None, str]:
        """Which machines hold copies of the job's checkpoint (None: no file), and why the file cannot be read."""
        if self._chosen.copies is None:
            return None, ""
        try:
            copies = await self._chosen.copies.of(job)
        except WrongUse as error:
            return None, _message_of(error)
        if copies is None:
            log.warning(
                "no file says who holds the checkpoint of job %s: copies in memory are lost with its machines", job
            )
        return copies, ""

    async def note(self, row: ActionRecord, what: str, outcome: str) -> None:
        """Tells the log and the audit log."""
        named = ", ".join(actor.name for actor in self._chosen.actors)
        log.warning("incident %s: %s %s by %s: %s", row.incident, what, row.machine, named, outcome)
        entry = AuditEntry(f"{what} {row.machine}", row.who, "", named, "", row.job, row.reason, row.incident, outcome)
        await self._audit.note(entry)

    async def _carry(self, rows: list[ActionRecord]) -> None:
        acts = self._chosen.mode in (Mode.APPROVE, Mode.AUTO)  # else only releases go on
        held = await self._gated(rows) if acts else ""
        for row in rows:
            if row.state is ActionState.RELEASING:
                await self._release(row)
            elif row.state is ActionState.PENDING and acts:
                await self._mark(row, held)
            elif row.marked:
                await self._hold(row)
        fresh = await self._services.store.ask(actions.of, rows[0].incident)
        taken = [row for row in fresh if row.state is ActionState.MARKED]
        if (
            acts and taken and not any(row.state is ActionState.PENDING for row in fresh)
        ):  # else it might come back to one of them
            await self._move(taken)

    async def _gated(self, rows: list[ActionRecord]) -> str:
        """Why the job's checkpoint forbids the action now. It was allowed when decided, but copies move while a scheduler is away."""
        machines = [row.machine for row in rows if row.state is ActionState.PENDING]
        if self._chosen.copies is None or not machines:
            return ""
        copies, unread = await self.copies(rows[0].job)
        gone = await self._services.store.ask(actions.out)
        return policy.gated(machines, gone.difference(machines), copies, unread)

    async def _mark(self, row: ActionRecord, held: str) -> None:
        """Marks a machine, unless it has no mark of ours yet and something forbids the action."""
        case = _case(row)
        try:
            await self._unopposed(case)
            for actor in self._chosen.actors:
                before = (await actor.look(case)).mark
                if before is not Mark.OURS:
                    self._still_true(row, "nothing was done")
                    if held and not row.marked:
                        raise BackendFailed(held, again=True, code="isolation-held-back")
                if before in (Mark.NONE, Mark.UNKNOWN) and not row.marked:
                    if not await self._services.store.write(row.incident, actions.may, row):
                        return  # it was dismissed a moment ago
                    row = replace(row, marked=True)
                await actor.mark(case)
                state = await actor.look(case)
                _of_this(case, state)
                if state.mark is Mark.NONE:
                    raise BackendFailed(
                        f"{actor.name} does not show the mark on {row.machine}",
                        again=True,
                        code="isolation-not-confirmed",
                    )
                self._logged[case.key, actor.name] = steady()
        except BackendFailed as error:
            await self._failed(row, error)
            return
        await self._moved(row, ActionState.MARKED, "out of use", marked=True)

    async def _unopposed(self, case: IsolationCase) -> None:
        """Raises BackendFailed if a later backend would refuse: the marks of those before it would be of no use.

        A backend that is away refuses nothing. The first one is asked in its turn, which is before all marks.
        """
        later = self._chosen.actors[1:]
        found = await asyncio.gather(*(actor.look(case) for actor in later), return_exceptions=True)
        for actor, state in zip(later, found, strict=True):
            if isinstance(state, BackendFailed) and state.again:
                continue
            if isinstance(state, BaseException):
                raise state
            if state.mark is Mark.ANOTHERS:
                raise left_alone(actor.name, case.machine, state)
            _of_this(case, state)

    async def _move(self, rows: list[ActionRecord]) -> None:
        """Has the job start again without these machines, once it is known which of its processes ran on each."""
        machines, done = [row.machine for row in rows], True
        for mover in self._chosen.actors:
            if not isinstance(mover, Mover):
                continue
            for number, row in enumerate(rows):
                try:
                    rows[number] = await self._ran(row, mover, mover.name)
                except BackendFailed as error:
                    await self._failed(row, error)
                    return
            for row in rows:
                done &= await self._moves(row, mover, row.runs[mover.name], machines)
        self.moving |= not done
        if done:
            moved = any(run for row in rows for run in row.runs.values())
            words = "out of use, its job starts elsewhere" if moved else "out of use"
            for row in rows:
                await self._moved(row, ActionState.DONE, words, marked=True)

    async def _ran(self, row: ActionRecord, mover: Mover, name: str) -> ActionRecord:
        """The row with what the job runs there. It is stored before the job moves: afterwards it would be another run."""
        if name in row.runs:
            return row
        runs = {**row.runs, name: await mover.run_of(_case(row))}
        await self._services.store.write(row.incident, actions.ran, row, runs)
        return replace(row, runs=runs)

    async def _moves(self, row: ActionRecord, mover: Mover, run: str, machines: list[str]) -> bool:
        """Whether the job starts elsewhere; if it cannot, the action has failed."""
        try:
            if not run or await mover.move(_case(row), run, machines):
                return True
            self._still_true(row, "its job did not start again")
        except BackendFailed as error:
            await self._failed(row, error)
        return False

    async def _release(self, row: ActionRecord) -> None:
        words = why = row.message.partition(_NOT_YET)[0]
        if not self._chosen.reaches:  # the mark stays, so the release waits until the file is given again
            late = f"{why}{_NOT_YET}{_NO_BACKEND}"
            await self._moved(row, ActionState.RELEASING, late, row.marked, tell=late != row.message)
            return
        for actor in self._chosen.actors:
            try:
                await actor.unmark(_case(row))
            except BackendFailed as error:
                if error.again:
                    late = f"{why}{_NOT_YET}{_message_of(error)}"
                    await self._moved(row, ActionState.RELEASING, late, row.marked, tell=late != row.message)
                    return
                if await self._holds(actor, row, unasked=False):
                    await self._moved(row, ActionState.FAILED, f"{why}; not released: {_message_of(error)}", row.marked)
                    return
                words = f"{words}; {error}"
        await self._moved(row, ActionState.RELEASED, words, marked=False)

    async def _hold(self, row: ActionRecord) -> None:
        """Repeats marks that expire by themselves."""
        case = _case(row)
        for actor in self._chosen.actors:
            last = self._logged.get((case.key, actor.name), float("-inf"))
            if not actor.again_s or steady() - last < actor.again_s:
                continue
            try:
                await actor.mark(case)
            except BackendFailed as error:
                log.warning("%s: the mark on %s was not renewed: %s", actor.name, row.machine, error)
            else:
                self._logged[case.key, actor.name] = steady()

    def _still_true(self, row: ActionRecord, what: str) -> None:
        """Raises BackendFailed once the evidence is too old, or is of an earlier boot of the machine."""
        there, age = self._services.fleet.bodies().get(row.machine), self._services.clock() - row.evidence_at
        if not age <= self._chosen.caps.evidence_s:
            raise BackendFailed(
                f"{what} until the evidence was too old{f' ({row.message})' if row.message else ''}",
                code="evidence-outdated",
            )
        if there is not None and there != row.body:
            raise BackendFailed(
                f"{row.machine} was started anew since the evidence, or is other hardware", code="evidence-outdated"
            )

    async def _failed(self, row: ActionRecord, error: BackendFailed) -> None:
        """Notes that the action is tried again, or given up. Then it counts as marked if the mark is seen, or cannot be read.

        What may be marked is tried until the backend answers. What surely is not is tried only while its evidence is fresh.
        """
        if error.again and (row.state is ActionState.MARKED or not row.marked):
            try:
                self._still_true(
                    row, "its job did not start again" if row.state is ActionState.MARKED else "nothing was done"
                )
            except BackendFailed as late:
                error = late
        if error.again:
            await self._moved(row, row.state, _message_of(error), row.marked, tell=_message_of(error) != row.message)
            return
        marked = row.marked and any([await self._holds(actor, row) for actor in self._chosen.actors])
        await self._moved(row, ActionState.FAILED, _message_of(error), marked)

    async def _holds(self, actor: Backend, row: ActionRecord, unasked: bool = True) -> bool:
        """Whether our mark is there; `unasked` if no backend can be asked."""
        try:
            state = await actor.look(_case(row))
        except BackendFailed:
            return True
        if state.mark is Mark.UNKNOWN:
            return unasked
        return state.mark is Mark.OURS and state.incident == row.incident

    async def _moved(self, row: ActionRecord, state: ActionState, words: str, marked: bool, tell: bool = True) -> None:
        now, store = self._services.clock(), self._services.store
        if await store.write(row.incident, actions.move, row, state, now, words, marked) and tell:
            await self.note(row, "release" if row.state is ActionState.RELEASING else "isolate", f"{state}: {words}")


def _case(row: ActionRecord) -> IsolationCase:
    # the suffix that makes the job unique here is no part of the name by which its scheduler knows it
    name = row.job.removesuffix(f"@{row.owner}") if row.owner.known else row.job
    return IsolationCase(row.incident, row.machine, name, row.reason, row.owner, row.pods)


def _of_this(case: IsolationCase, state: MachineMark) -> None:
    """Raises BackendFailed where a mark of ours is another incident's."""
    if state.mark is Mark.OURS and state.incident != case.incident:
        raise BackendFailed(f"{case.machine} is marked for incident {state.incident} already", code="already-isolated")


def _message_of(error: HangdogError) -> str:
    return f"{error} ({error.hint})" if error.hint else str(error)
