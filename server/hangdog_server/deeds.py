"""What people decide upon acts, as it is asked for over the wire: list them, approve, dismiss, undo, close the breaker."""

from collections.abc import Callable
from dataclasses import replace

import sqlalchemy as sa

from hangdog_models.errors import HangdogError, WrongUse
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_server import heard, intents
from hangdog_server.acting import Acting
from hangdog_server.audit import Audit
from hangdog_server.incident import Means
from hangdog_server.intents import Intent
from hangdog_server.roles import Person
from hangdog_server.settings import Settings


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
            rows = await store.ask(intents.of, (await store.find(request.incident)).id)
        else:
            rows = await store.ask(intents.latest, limit)
        return await self._answer(rows[:limit])

    async def act(self, request: pb.ActRequest, person: Person) -> pb.ActionList:
        """Does what a person decided, which is recorded before and after."""
        if len(request.because) > heard.WHY:
            raise WrongUse(f"a reason of {len(request.because)} characters is too long", f"give {heard.WHY} at most")
        if request.what in ("approve", "dismiss"):
            incident = await self._means.store.find(request.incident)
            deed = replace(person.deed(request.what, incident.job, request.because), incident=incident.id)
        elif request.what == "release":
            deed = person.deed(f"release {request.machine[: heard.NAME]}", "", request.because)
        elif request.what == "close-breaker":
            deed = person.deed(request.what, "", request.because)
        else:
            raise WrongUse(f"{request.what[:40]!r} is nothing to decide", "approve, dismiss, release, close-breaker")
        await self._audit.note(replace(deed, outcome="asked"))
        try:
            rows = await self._decided(request, deed.incident, person.name)
        except HangdogError as error:
            await self._audit.note(replace(deed, outcome=f"refused: {error}"))
            raise
        self._means.judged.set()  # it is done at once
        outcome = ", ".join(f"{row.machine} {row.state}" for row in rows) or "closed"
        await self._audit.note(replace(deed, outcome=outcome))
        return await self._answer(rows)

    async def _decided(self, request: pb.ActRequest, incident: str, who: str) -> tuple[Intent, ...]:
        store, now = self._means.store, self._means.clock()
        because = request.because or f"by {who}"
        if request.what == "approve":
            facts, rule = await self._acting.facts(incident), self._acting.rule()
            rows = await self._turn(lambda connection: intents.approve(connection, incident, facts, rule, who))
            if refused := [row for row in rows if row.state in intents.OPEN]:
                raise WrongUse(
                    f"incident {incident}: {refused[0].words}", "the bounds stand in the server's --acting file"
                )
            return rows
        if request.what == "dismiss":
            return await self._turn(lambda connection: intents.dismiss(connection, incident, because, who, now))
        if request.what == "release":
            return await self._turn(lambda connection: intents.release(connection, request.machine, because, who, now))
        await store.do(intents.set_breaker, "", who, now)
        return ()

    async def _turn(self, step: Callable[[sa.Connection], tuple[Intent, ...]]) -> tuple[Intent, ...]:
        """Takes a step that no other server's decision crosses."""
        store = self._means.store

        def decide(connection: sa.Connection) -> tuple[Intent, ...]:
            store.one_at_a_time(connection, intents.TURN)
            return step(connection)

        return await store.do(decide)

    async def _answer(self, rows: tuple[Intent, ...]) -> pb.ActionList:
        why, _ = await self._means.store.ask(intents.breaker)
        chosen = self._acting.chosen
        stopped = f" (stopped by {chosen.stop})" if self._acting.stopped() else ""
        return pb.ActionList(
            actions=map(_action, rows),
            mode=f"{chosen.mode}{stopped}",
            actors=[actor.name for actor in chosen.actors],
            breaker=why,
        )


def _action(row: Intent) -> pb.Action:
    return pb.Action(
        incident=row.incident, machine=row.machine, job=row.job, state=row.state, at=row.at, changed=row.changed,
        because=row.because, words=row.words, who=row.who, marked=row.marked,
    )  # fmt: skip
