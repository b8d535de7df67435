"""Who is told what, upon a store without a server: a postman of the tests' own keeps what he is given, and does as he is told."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import sqlalchemy as sa
from prometheus_client import CollectorRegistry

from hangdog_models.incident import Incident
from hangdog_models.verdict import Eviction, Kind
from hangdog_server.cluster.stalls import StallTracker
from hangdog_server.notifications.message import Message
from hangdog_server.notifications.notify_config import NotifyConfig, Receiver, Subjects
from hangdog_server.notifications.notify_loop import NotifyLoop
from hangdog_server.notifications.send import Posted
from hangdog_server.observability.metrics import Metrics
from hangdog_server.store import trusted_date
from hangdog_server.store.tables import NOTICES
from support.cases.reasons import reasons
from support.servers.cast import PATIENT
from support.servers.cast_acting import NOTHING, World, world


@dataclass
class Postman:
    """`fails` is what he says of every message; `held` keeps him at a receiver until it is set."""

    fails: str = ""
    held: dict[str, asyncio.Event] = field(default_factory=dict)
    given: list[tuple[str, Message]] = field(default_factory=list)

    async def post(self, to: Receiver, message: Message) -> Posted:
        self.given.append((to.name, message))
        if to.name in self.held:
            await self.held[to.name].wait()
        return Posted("a fake", self.fails)

    def titles(self, to: str = "chat") -> list[str]:
        return [message.title for name, message in self.given if name == to]


@dataclass
class Watched:
    """One server's part of it."""

    on: World
    postman: Postman
    told: NotifyConfig
    vigil: StallTracker = field(default_factory=StallTracker)
    counts: CollectorRegistry = field(default_factory=CollectorRegistry)

    def __post_init__(self) -> None:
        self.on.means = replace(self.on.means, telemetry=Metrics(self.counts, "1"))
        self.begin()

    def begin(self, **more: float) -> None:
        """A server that has just started; `more` are settings of it."""
        calm = replace(PATIENT, grace_s=0.0, lease_s=600.0)  # no lease runs out while a test is held up
        settings = replace(calm, **more)  # type: ignore[arg-type]  # as its fields are
        self.notifying = NotifyLoop(self.on.means, self.vigil, settings, self.told, self.postman.post)

    def counted(self, outcome: str) -> float:
        """How many messages Prometheus would be told of that ended so."""
        return self.counts.get_sample_value("hangdog_notices_total", {"outcome": outcome}) or 0.0

    async def tick(self, seconds: float = 0.0) -> None:
        """Some time later, all that is due has been tried."""
        self.on.now += seconds
        await self.notifying.tick()
        while self.notifying._tasks:
            await asyncio.gather(*self.notifying._tasks.values())

    async def until(self, messages: int, to: str) -> None:
        """Ticks, and waits for nobody, until so many messages were given to the postman for a receiver."""
        async with asyncio.timeout(60):
            while len(self.postman.titles(to)) < messages:
                await self.notifying.tick()
                await asyncio.sleep(0.01)

    async def subjects(self, to: str = "chat") -> list[Subjects]:
        """What each message was about that the postman was given for a receiver, by the store's rows of the same titles."""
        rows = await self.on.store.ask(lambda connection: connection.execute(sa.select(NOTICES)).all())
        about = {row.message["title"]: Subjects(row.about) for row in rows}
        given = self.postman.titles(to)  # one that may have come before has other words in front
        return [next(one for written, one in about.items() if title.endswith(written)) for title in given]

    async def reached(self, what: Callable[[], bool]) -> None:
        """Returns once something is so that comes by itself."""
        async with asyncio.timeout(60):
            while not what():
                await asyncio.sleep(0.01)

    async def away(self, away: bool = True) -> None:
        """The store takes no messages, as if its disk or database were gone, until it does again."""
        old, new = ("notices", "elsewhere") if away else ("elsewhere", "notices")
        await self.on.store.do(lambda connection: connection.exec_driver_sql(f"ALTER TABLE {old} RENAME TO {new}"))

    async def opened(self, name: str, why: str = "suspected: rank 0 stands", job: str = "llama") -> None:
        await self.on.store.begin(Incident(name, job, self.on.now, why), {})

    async def judged(
        self, name: str, kind: Kind, *evict: str, because: Sequence[str] = ("it says so",), again: bool = False
    ) -> None:
        said = replace(NOTHING, kind=kind, confidence=0.97, evict=Eviction(evict, 0.97), because=reasons(*because))
        if again:
            await self.on.store.judged_again(name, {}, said, self.on.now)
        else:
            await self.on.store.judged(name, said, self.on.now)


def receiver(name: str = "chat", url: str = "json://127.0.0.1:1/", *about: str) -> Receiver:
    return Receiver(name, url, frozenset(about or Subjects))


@asynccontextmanager
async def watched(
    where: Path | str, folder: Path, *receivers: Receiver, per_hour: int = 60, link: str = "https://head:7413"
) -> AsyncIterator[Watched]:
    """A store in which nothing has happened, and who is told of what does."""
    async with world(where, folder) as on:
        made = Watched(on, Postman(), NotifyConfig(receivers or (receiver(),), link, per_hour))
        began, steady = on.now, trusted_date.running
        trusted_date.running = lambda: trusted_date.ClockRun("a", on.now - began)  # time passes here, no clock jumps
        try:
            yield made
        finally:
            trusted_date.running = steady
            await made.notifying.close()
