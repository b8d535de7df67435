"""Several servers beside one database: one leads a job, agents come together there, and nobody writes behind its back."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from hangdog.demo.conductor import free_port
from hangdog_models.errors import ServerUnreachable
from hangdog_models.incident import Incident, IncidentState
from hangdog_models.ranks import Rank
from hangdog_models.snapshot import Job
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_server.cluster.fleet import Fleet
from hangdog_server.cluster.leadership import Leading
from hangdog_server.incidents.gather import RoundPlan
from hangdog_server.incidents.incident_run import IncidentServices
from hangdog_server.incidents.judge import Judge, remembered
from hangdog_server.listener import LOCAL, OpenListeners
from hangdog_server.main import running
from hangdog_server.protocol.jobs import AnnouncedJob
from hangdog_server.settings import ServerSettings
from hangdog_server.store import leases
from hangdog_server.store.leases import Lease, NotOurs
from hangdog_server.store.store import Store
from support.real.postgres import Postgres
from support.servers.cast import NOON, PATIENT, Agent, Listener, Stage, trainer, verdict

#: Leases that run out soon, of servers that think of them all the time.
SHORT = replace(PATIENT, lease_s=1.0, returned_s=5.0)
#: Leases that outlast every test, however slow the machine that runs it.
LASTING = replace(SHORT, lease_s=600.0)
ONE, OTHER = Lease("one", "a:1"), Lease("other", "b:1")


async def test_one_holds_a_lease_until_it_runs_out_or_is_given_back(where: Path | str) -> None:
    store = Store(where)
    assert await store.do(leases.take, ["x", "y"], "one", "a:1", 60.0) == {"x": ONE, "y": ONE}
    assert await store.do(leases.take, ["x", "z"], "other", "b:1", 60.0) == {"x": ONE, "z": OTHER}
    await store.do(leases.drop, ["x", "z"], "one")
    assert await store.do(leases.take, ["x", "y", "z"], "other", "b:1", 60.0) == {"x": OTHER, "y": ONE, "z": OTHER}
    await store.do(leases.take, ["y"], "one", "a:1", -1.0)
    assert await store.do(leases.take, ["y"], "other", "b:1", 60.0) == {"y": OTHER}
    assert await store.do(leases.take, [], "other", "b:1", 60.0) == {}
    assert await store.do(leases.take, ["y"], "third", "", 60.0) == {"y": OTHER}
    again = Lease("other again", "b:1")
    assert await store.do(leases.take, ["y"], "other again", "b:1", 60.0) == {"y": again}, "it was started again"
    store.close()


async def test_who_lost_its_lease_writes_nothing_any_more(where: Path | str) -> None:
    store = Store(where)
    store.fence("one")
    await store.do(leases.take, ["llama"], "one", "", -1.0)
    await store.begin(Incident("0a", "llama", NOON), {"rounds": 1})
    await store.move("0a", IncidentState.CAPTURING, NOON + 1)  # run out, but nobody has it
    await store.do(leases.take, ["llama"], "other", "", 60.0)
    for step in (
        store.move("0a", IncidentState.FAILED, NOON + 2, "late"),
        store.remember("0a", {}),
        store.begin(Incident("0b", "llama", NOON), {}),
    ):
        with pytest.raises(NotOurs) as caught:
            await step
        assert caught.value.code == "not-the-leader"
    (incident,) = await store.latest("", 9)
    assert (incident.id, incident.state, incident.note) == ("0a", IncidentState.CAPTURING, "")
    assert (await store.recall("0a"))[0] == {"rounds": 1}
    store.close()


@asynccontextmanager
async def beside(
    url: str, judge: Judge = verdict, lasting: bool = False, settings: ServerSettings = SHORT
) -> AsyncIterator[Stage]:
    """One of several servers; `lasting`: it gives no lease back at its end, as one that is killed."""
    address, store = f"127.0.0.1:{free_port()}", Store(url)
    with pytest.MonkeyPatch.context() as patched, contextlib.closing(store):
        means = IncidentServices(Fleet(settings), store, judge, lambda: NOON)
        opened = OpenListeners(address, replace(LOCAL, advertised=address), settings, means.clock)
        async with running(opened, means, settings):
            yield Stage(address, store, settings, means.dictionary)
            if lasting:
                patched.setattr(Leading, "close", nothing)


async def nothing(_: Leading) -> None:
    pass


@asynccontextmanager
async def two(server: Postgres) -> AsyncIterator[tuple[Stage, Stage]]:
    """Both look at once after whatever is announced, and by themselves never within a test."""
    url = server.database()
    async with beside(url, settings=LASTING) as one, beside(url, settings=LASTING) as other:
        yield one, other


async def sent(agent: Agent) -> pb.Redirect:
    """Where it is sent."""
    async with asyncio.timeout(30):
        message = await agent.next()
    assert message.HasField("redirect"), message
    return message.redirect


async def led(on: Stage, job: str) -> None:
    """Returns once a lease of the job is held by somebody."""

    def holders(connection: object) -> int:
        return connection.exec_driver_sql("SELECT count(*) FROM leases").scalar_one()  # type: ignore[attr-defined,no-any-return]

    async with asyncio.timeout(30):
        while not await on.store.ask(holders):
            await asyncio.sleep(0.02)


async def test_machines_of_one_job_come_together_at_one_server(server: Postgres) -> None:
    async with two(server) as (one, other), one.agent("a") as a, other.agent("b") as b:
        await a.hello(llama=[0])
        await led(one, "llama")
        await b.hello(llama=[1])
        assert await sent(b) == pb.Redirect(job="llama", address=one.address)
        async with one.agent("b") as there:
            await there.hello(llama=[1])
            await one.knows("a", "b")
            asking = asyncio.create_task(one.snapshot())
            for agent, rank in ((a, 0), (there, 1)):
                await agent.answer(await agent.order(), trainer(rank))
            assert (await asking)[-1].verdict is not None
        with pytest.raises(ServerUnreachable, match=f"llama.*{one.address}") as caught:
            await other.snapshot("llama")
        assert caught.value.code == "not-the-leader"


async def test_who_announces_a_job_is_looked_after_and_sent_at_once(server: Postgres) -> None:
    async with two(server) as (one, other):
        async with one.agent("a") as a, other.agent("b") as b:
            await a.hello(llama=[0])
            await led(one, "llama")
            await b.hello(llama=[1])
            assert (await sent(b)).address == one.address
        async with other.agent("c") as c:  # known by now
            await c.hello(llama=[2])
            assert (await sent(c)).address == one.address


async def test_a_machine_with_jobs_of_several_servers_stays_where_it_is(server: Postgres) -> None:
    async with two(server) as (one, other), AsyncExitStack() as cast:
        a, b, c = [
            await cast.enter_async_context(on.agent(name)) for on, name in ((one, "a"), (other, "b"), (one, "c"))
        ]
        await a.hello(llama=[0])
        await led(one, "llama")
        await b.hello(qwen=[0])
        await c.hello(llama=[1], qwen=[1])
        await one.knows("a", "c")
        asking = asyncio.create_task(one.snapshot("llama"))
        for agent, rank in ((a, 0), (c, 1)):
            await agent.answer(await agent.order(), trainer(rank))
        assert (await asking)[-1].verdict is not None


async def test_another_server_takes_over_what_one_left_in_the_middle(server: Postgres) -> None:
    url, listener = server.database(), Listener()
    async with beside(url, listener) as other:
        async with beside(url, lasting=True) as one, one.agent("a") as a:
            await a.hello(llama=[0])
            await one.knows("a")
            asking = asyncio.create_task(one.snapshot())
            order = await a.order()
        with pytest.raises(ServerUnreachable):
            await asking
        async with other.agent("a") as a:
            await a.hello(llama=[0])
            async with asyncio.timeout(50):
                while not (message := await a.next()).HasField("capture"):  # sent to one, until its lease has run out
                    assert message.redirect.address == one.address
            assert message.capture.order == order.order
            await a.answer(message.capture, trainer(0, "after"))
            async with asyncio.timeout(50):
                while (await other.store.latest("", 1))[0].state is not IncidentState.JUDGED:
                    await asyncio.sleep(0.02)
    assert listener.snapshot is not None
    assert [said.coverage.failed for said in listener.verdicts] == [{}]


async def test_an_incident_ends_where_its_lease_was_lost(server: Postgres) -> None:
    """As after a pause of the whole machine: whoever waits here would wait for nothing."""
    url = server.database()
    async with beside(url) as one, one.agent("a") as a:
        await a.hello(llama=[0])
        await one.knows("a")
        asking = asyncio.create_task(one.snapshot())
        await a.order()
        store = Store(url)

        def taken(connection: sa.Connection) -> None:
            connection.execute(sa.text("UPDATE leases SET holder = 'other', address = 'b:1', until = until + 600"))

        await store.do(taken)
        store.close()
        async with asyncio.timeout(30):
            with pytest.raises(ServerUnreachable, match="llama") as caught:
                await asking
        assert caught.value.code == "not-the-leader"


async def test_a_server_that_stops_in_order_is_followed_at_once(server: Postgres) -> None:
    url = server.database()
    async with beside(url) as one, one.agent("a") as a:
        await a.hello(llama=[0])
        await led(one, "llama")
    store = Store(url)
    assert await store.do(leases.take, ["llama"], "other", "b:1", 60.0) == {"llama": OTHER}
    store.close()


async def test_whoever_asks_first_follows_what_another_server_left(
    server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Leading, "noticed", lambda *_: None)  # nor does it look by itself within this test
    url = server.database()
    other = Store(url)
    async with beside(url, settings=LASTING) as on, on.agent("a") as a:
        plan = RoundPlan("0a", Job("llama"), 1, 0.1, {"a": (Rank(0),)})
        await other.begin(Incident("0a", "llama", NOON), remembered(plan, "", {"a": AnnouncedJob("llama", (Rank(0),))}))
        await a.hello(llama=[0])
        await on.knows("a")
        asking = asyncio.create_task(on.snapshot())
        order = await a.order()
        await a.answer(order, trainer(0))
        assert order.order == "0a" and {step.incident for step in await asking} == {"0a"}
    other.close()
