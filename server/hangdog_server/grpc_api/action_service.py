"""What people decide upon acts, as it is asked for over the wire: list them, approve, dismiss, undo, close the breaker."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import sqlalchemy as sa

from hangdog_models.actions.caps import Mode
from hangdog_models.actions.respond import ResponseDecision
from hangdog_models.errors import HangdogError, WrongUse
from hangdog_models.incident import UNANSWERED, IncidentResponse, ResponseKind
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_server.actions import policy
from hangdog_server.actions.backends.backend import Mover
from hangdog_server.actions.reconcile import ActionLoop
from hangdog_server.auth.audit_log import AuditLog
from hangdog_server.auth.authorizer import Person
from hangdog_server.etag import digest
from hangdog_server.incidents import decode
from hangdog_server.incidents.incident_run import IncidentServices
from hangdog_server.settings import ServerSettings
from hangdog_server.store import actions
from hangdog_server.store.actions import ActionRecord, ActionState
from hangdog_server.store.history import responses
from hangdog_server.store.tables import storable


class ActionChange(WrongUse):
    """What somebody decided upon is not any more what they were shown."""


@dataclass(frozen=True, slots=True)
class ActionsOverview:
    """How far the server goes by itself, by which actors, which of them move jobs, and what stops everything.

    `stopped` names the file with which an operator stops everything, `breaker` why it is open; each empty where it is not.
    `opened` is what somebody is shown of the breaker: another each time it opens or is closed.
    """

    mode: Mode
    actors: tuple[str, ...]
    movers: tuple[str, ...]
    stopped: str
    breaker: str
    opened: str

    @property
    def acts(self) -> bool:
        """Whether anything that is approved is done at all."""
        return self.mode in (Mode.APPROVE, Mode.AUTO)


def concerned(what: str, rows: Iterable[ActionRecord]) -> tuple[ActionRecord, ...]:
    """Those of the rows that approving, dismissing or releasing would change."""
    if what == "release":
        return tuple(row for row in rows if row.marked and row.state is not ActionState.RELEASING)
    states = actions.OPEN if what == "approve" else (*actions.OPEN, ActionState.PENDING)
    return tuple(row for row in rows if row.state in states)


def seen(what: str, rows: Iterable[ActionRecord], response: IncidentResponse = UNANSWERED) -> str:
    """What somebody is shown before they decide: another once somebody has decided, the same while it is only tried again.

    To dismiss is to close the incident: then what people decided upon that is shown, too.
    """
    shown = sorted((row.incident, row.machine, row.at) for row in concerned(what, rows))
    return digest(shown, response.decisions) if what == "dismiss" else digest(shown)


class ActionService:
    """People's part in what is done to machines. Everything raises HangdogError."""

    def __init__(
        self, services: IncidentServices, settings: ServerSettings, acting: ActionLoop, audit: AuditLog
    ) -> None:
        self._services = services
        self._settings = settings
        self._acting = acting
        self._audit = audit

    async def listed(self, request: pb.ActionsRequest) -> pb.ActionList:
        """What was, is and would be done, newest first."""
        store = self._services.store
        limit = min(request.limit or self._settings.listed, self._settings.max_listed)
        if request.incident:
            rows = await store.ask(actions.of, (await store.find(request.incident)).id)
        else:
            rows = await store.ask(actions.latest, limit)
        return await self.answer(rows[:limit])

    async def act(self, request: pb.ActRequest, person: Person, shown: str = "") -> pb.ActionList:
        """Does what a person decided, which is recorded before and after; once for what they were `shown`, where that is told."""
        if len(request.reason) > decode.WHY:
            raise WrongUse(
                f"a reason of {len(request.reason)} characters is too long",
                f"give {decode.WHY} at most",
                code="too-long",
            )
        if request.what == "dismiss" and not request.reason.strip():
            raise WrongUse("no reason is given", "say why the machines are left where they are", code="text-missing")
        if request.what in ("approve", "dismiss"):
            incident = await self._services.store.find(request.incident)
            entry = replace(person.audit_entry(request.what, incident.job, request.reason), incident=incident.id)
        elif request.what == "release":
            entry = person.audit_entry(f"release {request.machine[: decode.NAME]}", "", request.reason)
        elif request.what == "close-breaker":
            entry = person.audit_entry(request.what, "", request.reason)
        else:
            raise WrongUse(
                f"{request.what[:40]!r} is not an action",
                "give one of approve, dismiss, release, close-breaker",
                code="unknown-choice",
            )
        await self._audit.note(replace(entry, outcome="asked"))
        try:
            rows = await self._decided(request, entry.incident, person.name, shown)
        except HangdogError as error:
            await self._audit.note(replace(entry, outcome=f"refused: {error}"))
            raise
        self._services.judged.set()  # it is done at once
        outcome = ", ".join(f"{row.machine} {row.state}" for row in rows) or (
            "dismissed" if entry.incident else "closed"
        )
        await self._audit.note(replace(entry, outcome=outcome))
        return await self.answer(rows)

    async def overview(self) -> ActionsOverview:
        """How far the server goes now."""
        breaker = await self._services.store.ask(policy.breaker)
        chosen = self._acting.chosen
        names = tuple(actor.name for actor in chosen.actors)
        movers = tuple(actor.name for actor in chosen.actors if isinstance(actor, Mover))
        stopped = str(chosen.stop) if self._acting.stopped() else ""
        return ActionsOverview(chosen.mode, names, movers, stopped, breaker[0], digest(breaker))

    async def _decided(self, request: pb.ActRequest, incident: str, who: str, shown: str) -> tuple[ActionRecord, ...]:
        now = self._services.clock()
        because, machine = storable(request.reason) or f"by {who}", storable(request.machine)

        def same(connection: sa.Connection) -> None:
            if request.what == "close-breaker":
                now_shown = digest(policy.breaker(connection))
            else:
                of = actions.of(connection, incident) if incident else actions.of_machine(connection, machine)
                now_shown = seen(request.what, of, responses.find(connection, incident))
            if shown and now_shown != shown:
                raise ActionChange(
                    "nothing was done: it was decided upon since you were shown it",
                    "look again, and decide",
                    code="changed-meanwhile",
                )

        if request.what == "approve":
            facts, rule = await self._acting.facts(incident), self._acting.rule()
            rows = await self._turn(same, lambda connection: policy.approve(connection, incident, facts, rule, who))
            if refused := [row for row in rows if row.state in actions.OPEN]:
                raise WrongUse(
                    f"incident {incident}: {refused[0].message}",
                    "the server's --acting file sets the limits",
                    code="acting-limit-reached",
                )
            return rows
        if request.what == "dismiss":
            wanted = ResponseDecision(ResponseKind.DISMISSED, who, now, because)
            return await self._turn(same, lambda connection: _dismissed(connection, incident, wanted))
        if request.what == "release":
            return await self._turn(same, lambda connection: policy.release(connection, machine, because, who, now))

        def close(connection: sa.Connection) -> tuple[ActionRecord, ...]:
            why, _ = policy.breaker(connection)
            if not why:  # closed anew it would forget what has counted towards opening it since
                raise WrongUse(
                    "the breaker is closed",
                    "nothing was done; hangdog actions shows whether it is open",
                    code="nothing-to-decide",
                )
            policy.set_breaker(connection, "", who, now)
            return ()

        return await self._turn(same, close)

    async def _turn(
        self, same: Callable[[sa.Connection], None], step: Callable[[sa.Connection], tuple[ActionRecord, ...]]
    ) -> tuple[ActionRecord, ...]:
        """Takes a step that no other server's decision crosses."""
        store = self._services.store

        def decide(connection: sa.Connection) -> tuple[ActionRecord, ...]:
            store.one_at_a_time(connection, policy.TURN)
            same(connection)
            return step(connection)

        return await store.do(decide)

    async def answer(self, rows: tuple[ActionRecord, ...]) -> pb.ActionList:
        """These acts as they are listed, and how far the server goes."""
        state = await self.overview()
        stopped = f" (stopped by {state.stopped})" if state.stopped else ""
        return pb.ActionList(
            actions=map(_action, rows),
            mode=f"{state.mode}{stopped}",
            actors=state.actors,
            breaker=state.breaker,
        )


def _dismissed(connection: sa.Connection, incident: str, wanted: ResponseDecision) -> tuple[ActionRecord, ...]:
    """No machine is at fault: nothing is done to any, what verdicts said is taken back, and the incident is closed; its acts."""
    policy.dismiss(connection, incident, wanted.text, wanted.who, wanted.at)
    responses.respond(connection, incident, wanted)
    return actions.of(connection, incident)


def _action(row: ActionRecord) -> pb.Action:
    return pb.Action(
        incident=row.incident, machine=row.machine, job=row.job, state=row.state, at=row.at, changed=row.changed,
        reason=row.reason, message=row.message, who=row.who, marked=row.marked,
    )  # fmt: skip
