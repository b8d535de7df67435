"""What people decide upon acts, as it is asked for over the wire: list them, approve, dismiss, undo, close the breaker."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import sqlalchemy as sa

from hangdog_models.actions.caps import Mode
from hangdog_models.errors import HangdogError, WrongUse
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_server.actions import policy
from hangdog_server.actions.backends.backend import Mover
from hangdog_server.actions.reconcile import Acting
from hangdog_server.auth.audit_log import Audit
from hangdog_server.auth.authorizer import Person
from hangdog_server.etag import digest
from hangdog_server.incidents import decode
from hangdog_server.incidents.incident_run import Means
from hangdog_server.settings import Settings
from hangdog_server.store import actions
from hangdog_server.store.actions import Act, Intent
from hangdog_server.store.tables import storable


class Changed(WrongUse):
    """What somebody decided upon is not any more what they were shown."""


@dataclass(frozen=True, slots=True)
class Standing:
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


def concerned(what: str, rows: Iterable[Intent]) -> tuple[Intent, ...]:
    """Those of the rows that approving, dismissing or releasing would change."""
    if what == "release":
        return tuple(row for row in rows if row.marked and row.state is not Act.RELEASING)
    states = actions.OPEN if what == "approve" else (*actions.OPEN, Act.PENDING)
    return tuple(row for row in rows if row.state in states)


def seen(what: str, rows: Iterable[Intent]) -> str:
    """What somebody is shown before they decide: another once somebody has decided, the same while it is only tried again."""
    shown = sorted((row.incident, row.machine, row.at) for row in concerned(what, rows))
    return digest(shown)


class Deeds:
    """People's part in what is done to machines. Everything raises HangdogError."""

    def __init__(self, means: Means, settings: Settings, acting: Acting, audit: Audit) -> None:
        self._means = means
        self._settings = settings
        self._acting = acting
        self._audit = audit

    async def listed(self, request: pb.ActionsRequest) -> pb.ActionList:
        """What was, is and would be done, newest first."""
        store = self._means.store
        limit = min(request.limit or self._settings.listed, self._settings.max_listed)
        if request.incident:
            rows = await store.ask(actions.of, (await store.find(request.incident)).id)
        else:
            rows = await store.ask(actions.latest, limit)
        return await self._answer(rows[:limit])

    async def act(self, request: pb.ActRequest, person: Person, shown: str = "") -> pb.ActionList:
        """Does what a person decided, which is recorded before and after; once for what they were `shown`, where that is told."""
        if len(request.because) > decode.WHY:
            raise WrongUse(f"a reason of {len(request.because)} characters is too long", f"give {decode.WHY} at most")
        if request.what == "dismiss" and not request.because.strip():
            raise WrongUse("no reason is given", "say why the machines are left where they are")
        if request.what in ("approve", "dismiss"):
            incident = await self._means.store.find(request.incident)
            deed = replace(person.deed(request.what, incident.job, request.because), incident=incident.id)
        elif request.what == "release":
            deed = person.deed(f"release {request.machine[: decode.NAME]}", "", request.because)
        elif request.what == "close-breaker":
            deed = person.deed(request.what, "", request.because)
        else:
            raise WrongUse(f"{request.what[:40]!r} is nothing to decide", "approve, dismiss, release, close-breaker")
        await self._audit.note(replace(deed, outcome="asked"))
        try:
            rows = await self._decided(request, deed.incident, person.name, shown)
        except HangdogError as error:
            await self._audit.note(replace(deed, outcome=f"refused: {error}"))
            raise
        self._means.judged.set()  # it is done at once
        outcome = ", ".join(f"{row.machine} {row.state}" for row in rows) or "closed"
        await self._audit.note(replace(deed, outcome=outcome))
        return await self._answer(rows)

    async def standing(self) -> Standing:
        """How far the server goes now."""
        breaker = await self._means.store.ask(policy.breaker)
        chosen = self._acting.chosen
        names = tuple(actor.name for actor in chosen.actors)
        movers = tuple(actor.name for actor in chosen.actors if isinstance(actor, Mover))
        stopped = str(chosen.stop) if self._acting.stopped() else ""
        return Standing(chosen.mode, names, movers, stopped, breaker[0], digest(breaker))

    async def _decided(self, request: pb.ActRequest, incident: str, who: str, shown: str) -> tuple[Intent, ...]:
        now = self._means.clock()
        because, machine = storable(request.because) or f"by {who}", storable(request.machine)

        def same(connection: sa.Connection) -> None:
            if request.what == "close-breaker":
                now_shown = digest(policy.breaker(connection))
            else:
                of = actions.of(connection, incident) if incident else actions.of_machine(connection, machine)
                now_shown = seen(request.what, of)
            if shown and now_shown != shown:
                raise Changed("nothing was done: it was decided upon since you were shown it", "look again, and decide")

        if request.what == "approve":
            facts, rule = await self._acting.facts(incident), self._acting.rule()
            rows = await self._turn(same, lambda connection: policy.approve(connection, incident, facts, rule, who))
            if refused := [row for row in rows if row.state in actions.OPEN]:
                raise WrongUse(
                    f"incident {incident}: {refused[0].words}", "the bounds stand in the server's --acting file"
                )
            return rows
        if request.what == "dismiss":
            return await self._turn(same, lambda connection: policy.dismiss(connection, incident, because, who, now))
        if request.what == "release":
            return await self._turn(same, lambda connection: policy.release(connection, machine, because, who, now))

        def close(connection: sa.Connection) -> tuple[Intent, ...]:
            why, _ = policy.breaker(connection)
            if not why:  # closed anew it would forget what has counted towards opening it since
                raise WrongUse("the breaker is closed", "nothing was done; hangdog actions shows whether it is open")
            policy.set_breaker(connection, "", who, now)
            return ()

        return await self._turn(same, close)

    async def _turn(
        self, same: Callable[[sa.Connection], None], step: Callable[[sa.Connection], tuple[Intent, ...]]
    ) -> tuple[Intent, ...]:
        """Takes a step that no other server's decision crosses."""
        store = self._means.store

        def decide(connection: sa.Connection) -> tuple[Intent, ...]:
            store.one_at_a_time(connection, policy.TURN)
            same(connection)
            return step(connection)

        return await store.do(decide)

    async def _answer(self, rows: tuple[Intent, ...]) -> pb.ActionList:
        standing = await self.standing()
        stopped = f" (stopped by {standing.stopped})" if standing.stopped else ""
        return pb.ActionList(
            actions=map(_action, rows),
            mode=f"{standing.mode}{stopped}",
            actors=standing.actors,
            breaker=standing.breaker,
        )


def _action(row: Intent) -> pb.Action:
    return pb.Action(
        incident=row.incident, machine=row.machine, job=row.job, state=row.state, at=row.at, changed=row.changed,
        because=row.because, words=row.words, who=row.who, marked=row.marked,
    )  # fmt: skip
