"""Watches what changes in the store, writes down who is to be told, and has it sent: beside the server, never in its way.

Every server writes down what it sees; of several beside one database one sends, by a lease.
"""

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from itertools import groupby

import sqlalchemy as sa

from hangdog_models.backoff import pause
from hangdog_models.incident import Incident
from hangdog_server.cluster.stalls import StallTracker
from hangdog_server.incidents.incident_run import IncidentServices
from hangdog_server.incidents.round_capture import steady
from hangdog_server.notifications import changes, notification_rows
from hangdog_server.notifications.changes import Change
from hangdog_server.notifications.message import Message
from hangdog_server.notifications.notification_rows import Note, Notice, Sent
from hangdog_server.notifications.notify_config import NotifyConfig, Receiver
from hangdog_server.notifications.send import Posted, post
from hangdog_server.settings import ServerSettings
from hangdog_server.store import leases
from hangdog_server.store.store_errors import StoreFailed
from hangdog_server.store.trusted_date import believed
from hangdog_server.telemetry import Notified

#: Between two looks at the store: what is told is read by people. Seconds.
TICK_S = 2.0
#: What changed longer ago is no news, and a message that could not be sent for so long is given up: by then somebody has
#: looked, and the pages tell what is true now. Seconds.
RECENT_S = 3600.0
#: Before a message is tried again, twice as long each time, and at most: a receiver that is started anew is back in a minute,
#: and one that is away for longer need not be asked all the time. Seconds.
AGAIN_S, SELDOM_S = 5.0, 300.0
#: A job that for so long shows no sign of a standstill goes on: agents that were away are back by then, and have said. Seconds.
RECOVERED_S = 60.0
#: Between two attempts to note what came of a message while the store is away. Seconds.
NOTED_AGAIN_S = 2.0
#: Ticks in the life of a lease: one that failed, or came late, loses nothing.
_TICKS = 3.0
#: What the lease of who sends is called among those of jobs, none of which begins so.
_LEASE = "\nnotices"

#: Stands below what is told of an incident that the store could not take.
_NOT_WRITTEN = "The server's store takes nothing: this is not written, and nothing is done to machines."

log = logging.getLogger(__name__)
Post = Callable[[Receiver, Message], Awaitable[Posted]]


class NotifyLoop:
    """Who is told what, on one server, by `post`, which raises nothing and comes to an end; `keep` does it until it is cancelled."""

    def __init__(
        self,
        services: IncidentServices,
        monitor: StallTracker,
        settings: ServerSettings,
        reported: NotifyConfig,
        post: Post = post,
    ) -> None:
        self._services = services
        self._stalls = monitor
        self._settings = settings
        self._config = reported
        self._post = post
        self._me = secrets.token_hex(8)
        self._held = float("-inf")
        self._noted_at: float | None = None
        self._sent_unwritten: set[tuple[str, str, str]] = set()
        self._again_at: dict[str, float] = {}
        self._going: dict[str, float] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._unwritten_tasks: dict[str, asyncio.Task[None]] = {}
        self._noting: set[str] = set()

    async def keep(self) -> None:
        """Looks, notes and sends again and again, and forgets what is too old; raises nothing."""
        settings, forgot = self._settings, steady()
        while True:
            try:
                await self.tick()
                if settings.keep_s and steady() - forgot >= settings.prune_s:
                    forgot = steady()
                    await self._services.store.do(notification_rows.forget, await self._believed() - settings.keep_s)
            except StoreFailed as error:
                log.error("cannot send notifications now: %s", error)
            except Exception:  # a bug met in one piece of news must not keep all others from being told
                log.exception("cannot send notifications")
            await asyncio.sleep(TICK_S)

    async def close(self) -> None:
        """Lets what is being sent come to its end for a moment; what does not, the next server sends once more."""
        tasks = (*self._tasks.values(), *self._unwritten_tasks.values())
        if tasks:
            await asyncio.wait(tasks, timeout=self._settings.grace_s)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._held > float("-inf"):
            with contextlib.suppress(StoreFailed):
                await self._services.store.do(leases.drop, [_LEASE], self._me)

    async def tick(self) -> None:
        """Notes what is new, and has begun to send what is due; raises StoreFailed."""
        self._tell_unwritten()
        await self._note()
        if not await self._sends():
            return
        free = {to.name: to for to in self._config.receivers if to.name not in {*self._tasks, *self._unwritten_tasks}}
        due = await self._services.store.ask(notification_rows.due, self._services.clock(), free)
        for name, mine in groupby(sorted(due, key=lambda row: row.receiver), key=lambda row: row.receiver):
            if name not in self._tasks:
                self._tasks[name] = asyncio.create_task(self._serve(free[name], tuple(mine)), name=f"telling {name}")

    async def _note(self) -> None:
        store, now = self._services.store, self._services.clock()
        # what changed before a jump of the date is still news after it
        before, self._noted_at = self._noted_at, now
        reach = min(now, await self._believed() if before is None else before)
        found, stood = await store.ask(changes.read, reach, reach - RECENT_S)
        found = (*found, *self._recovered(stood))
        known = await store.ask(notification_rows.last, {one.subject for one in found} | {one.after for one in found})
        new = [
            (one, to)
            for one in found
            for to in self._config.receivers
            if one.about in to.about
            and known.get((one.subject, to.name), (0, ""))[1] != one.mark
            and (not one.after or (one.after, to.name) in known)
        ]
        if not new:
            return
        messages = {one: await self._worded(one) for one in dict.fromkeys(one for one, _ in new)}
        notes = [Note(one.subject, to.name, one.about, one.mark, messages[one]) for one, to in new]

        def note(connection: sa.Connection) -> list[Sent]:
            store.one_at_a_time(connection, notification_rows.TURN)
            return notification_rows.note(connection, notes, now, self._config.per_hour, self._sent_unwritten)

        left_out = (await store.do(note)).count(Sent.LEFT_OUT)
        self._services.telemetry.count(Notified.LEFT_OUT, left_out)

    def _tell_unwritten(self) -> None:
        """Has begun to send what the store could not take: a full disk keeps nobody from hearing of a standstill.

        What was sent so is known while this server runs. Of several servers only the one with the lease sends.
        """
        store = self._services.store
        if store.shared and steady() - self._held >= self._settings.lease_s:
            return
        changes_ = [one for incident in tuple(store.unwritten.values()) for one in changes.unwritten(incident)]
        for to in self._config.receivers:
            mine = [
                one
                for one in changes_
                if one.about in to.about and (one.subject, to.name, one.mark) not in self._sent_unwritten
            ]
            # what only waits for the store to note what it sent keeps nobody from hearing more
            sending = to.name in self._unwritten_tasks or (to.name in self._tasks and to.name not in self._noting)
            if mine and not sending and steady() >= self._again_at.get(to.name, 0.0):
                task = asyncio.create_task(self._send_unwritten(to, mine), name=f"telling {to.name}")
                self._unwritten_tasks[to.name] = task

    async def _send_unwritten(self, to: Receiver, mine: list[Change]) -> None:
        try:
            for one in mine:
                message = await self._worded(one)
                posted = await self._post(to, replace(message, lines=(*message.lines, _NOT_WRITTEN)))
                self._services.telemetry.count(Notified.FAILED if posted.failed else Notified.SENT)
                if posted.failed:
                    log.warning(
                        "%s: %r was not sent, next try in %g s: %s", to.name, message.title, AGAIN_S, posted.failed
                    )
                    self._again_at[to.name] = steady() + AGAIN_S
                    return
                log.info("%s: %r was sent, but not stored", to.name, message.title)
                self._sent_unwritten.add((one.subject, to.name, one.mark))
        except Exception:  # a bug met in one message: the next tick tries it once more
            log.exception("%s: cannot send now", to.name)
        finally:
            del self._unwritten_tasks[to.name]

    async def _believed(self) -> float:
        return (await believed(self._services.store, self._services.clock)).at

    async def _worded(self, one: Change) -> Message:
        verdict = (await self._services.store.find(one.incident.id)).verdict if one.incident is not None else ""
        return changes.worded(one, verdict, self._config.link)

    def _recovered(self, stood: Iterable[Incident]) -> list[Change]:
        """The jobs that were seen to stand still and go on, as far as their machines are connected here."""
        fleet, now = self._services.fleet, steady()
        awake = [job for job in fleet.jobs() if fleet.awake(job, now)]
        shown = {job: self._stalls.suspicion(job, fleet.asked(job), now, fleet.mute(job, now)) for job in awake}
        going = {job for job, suspicion in shown.items() if suspicion is None}
        self._going = {job: self._going.get(job, now) for job in going}
        return [changes.recovered(one) for one in stood if now - self._going.get(one.job, now) >= RECOVERED_S]

    async def _sends(self) -> bool:
        """Whether this server sends: of several the one that has the lease."""
        store, lasts_s = self._services.store, self._settings.lease_s
        if store.shared and steady() - self._held >= lasts_s / _TICKS:
            held = await store.do(leases.take, [_LEASE], self._me, "", lasts_s)
            if held[_LEASE].holder != self._me:
                return False
            self._held = steady()
        return True

    async def _serve(self, to: Receiver, due: tuple[Notice, ...]) -> None:
        """Sends one receiver what is due, one after the other; the next tick tries what could not be."""
        try:
            for row in due:
                await self._send(to, row)
        except StoreFailed as error:
            log.error("%s: cannot send now: %s", to.name, error)
        except Exception:  # a bug met in one message: the next tick tries it once more
            log.exception("%s: cannot send now", to.name)
        finally:
            del self._tasks[to.name]

    async def _send(self, to: Receiver, row: Notice) -> None:
        store, now = self._services.store, self._services.clock()
        given_up = ""
        if row.state is Sent.SENDING and row.unsure:
            given_up = "twice the server ended while it was being sent: it may have come"
        elif now - row.noted > RECENT_S and await self._believed() - row.noted > RECENT_S:
            given_up = f"not within {RECENT_S / 60:.0f} minutes"
        if given_up:
            log.error("%s: %r was not sent: %s", to.name, row.message.title, given_up)
            await store.do(notification_rows.end, row, Sent.FAILED, given_up, 0.0, now)
            self._services.telemetry.count(Notified.GIVEN_UP)
            return
        if not await store.do(notification_rows.begin, row, now):
            return
        message = row.message
        if row.state is Sent.SENDING or row.unsure:
            message = replace(message, title=f"(perhaps again) {message.title}")
        posted = await self._post(to, message)
        now, wait = self._services.clock(), pause(row.tries, AGAIN_S, SELDOM_S)
        self._services.telemetry.count(Notified.FAILED if posted.failed else Notified.SENT)
        if posted.failed:
            log.warning("%s: %r was not sent, next try in %g s: %s", to.name, message.title, wait, posted.failed)
            await self._ended(row, Sent.WAITING, posted.failed, now + wait, now)
        else:
            log.info("%s: %r was sent", to.name, message.title)
            await self._ended(row, Sent.SENT, "", 0.0, now)

    async def _ended(self, row: Notice, state: Sent, words: str, due: float, now: float) -> None:
        """Notes what came of a message, should the store be away later: what is not noted is sent again."""
        self._noting.add(row.receiver)
        try:
            while True:
                try:
                    return await self._services.store.do(notification_rows.end, row, state, words, due, now)
                except StoreFailed as error:
                    log.error("%s: the result of sending is not stored: %s", row.receiver, error)
                await asyncio.sleep(NOTED_AGAIN_S)
        finally:
            self._noting.discard(row.receiver)
