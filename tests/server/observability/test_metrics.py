"""What the server counts, scraped over a real socket while played agents do what is counted."""

import asyncio
import socket
import time
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import grpc
import pytest
import sqlalchemy as sa

from hangdog_models.errors import WrongUse
from hangdog_models.ranks import Rank
from hangdog_models.stall_timeouts import Doing, Sign
from hangdog_proto.client.incidents import MachineLine
from hangdog_proto.codec import stall_signs
from hangdog_proto.codec.traces import pack
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_server.cluster.fleet import Fleet
from hangdog_server.observability.scrape import scraped
from hangdog_server.observability.setup import observing
from hangdog_server.settings import ServerSettings
from hangdog_server.store.store_errors import StoreFailed
from support.servers.cast import PATIENT, QUICK, Stage, cluster, stage, trainer

Numbers = dict[str, float]


@asynccontextmanager
async def watched(path: Path, settings: ServerSettings = PATIENT) -> AsyncIterator[tuple[Stage, "Scraper"]]:
    async with (
        observing("127.0.0.1:0", Fleet(settings)) as observers,
        stage(path, settings=settings, observers=observers) as on,
    ):
        yield on, Scraper(observers.metrics)


class Scraper:
    """A Prometheus as the test plays it."""

    def __init__(self, address: str) -> None:
        self.address = address

    async def text(self) -> str:
        def fetch() -> str:
            with urllib.request.urlopen(f"http://{self.address}/metrics", timeout=10) as answer:
                assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
                return str(answer.read().decode())

        return await asyncio.to_thread(fetch)

    async def numbers(self) -> Numbers:
        """Every series as it is written, without `hangdog_`, with its value."""
        series = (line.rpartition(" ") for line in (await self.text()).splitlines() if not line.startswith("#"))
        return {name.removeprefix("hangdog_"): float(value) for name, _, value in series}

    async def until(self, series: str, value: float) -> Numbers:
        async with asyncio.timeout(30):
            while (now := await self.numbers())[series] != value:
                await asyncio.sleep(0.01)
        return now


def of(numbers: Numbers, metric: str) -> Numbers:
    """The series of one metric that are not 0, by what stands in their braces."""
    found = {
        name.partition("{")[2].rstrip("}"): value for name, value in numbers.items() if name.startswith(metric + "{")
    }
    return {labels: value for labels, value in found.items() if value}


async def test_an_incident_is_counted_from_its_orders_to_its_verdict(tmp_path: Path) -> None:
    async with watched(tmp_path / "s.db") as (on, scraper), cluster(on, a=[0, 1], b=[2, 3]) as (a, b):
        now = await scraper.numbers()
        assert of(now, "agents") == {'state="connected"': 2} and now["jobs"] == 1
        asking = asyncio.ensure_future(on.snapshot("llama"))
        order, _ = await a.order(), await b.order()
        assert (await scraper.numbers())["incidents_running"] == 1
        for look in (0, 0, 9):
            await a.answer(order, trainer(0), trainer(1), look=look)
        await scraper.until('looks_answered_total{outcome="unasked"}', 1)
        garbled = pb.Capture(stacks=[pb.Stack(frames=[7])])
        await b.say(captured=pb.Captured(order=order.order, capture=garbled, last=True))
        await asking
        await a.answer(order, trainer(0), trainer(1))
        now = await scraper.until('looks_answered_total{outcome="late"}', 1)
    assert of(now, "looks_asked_total") == {'kind="full"': 2}
    outcomes = {"taken": 1, "unreadable": 1, "again": 1, "unasked": 1, "late": 1}
    assert of(now, "looks_answered_total") == {f'outcome="{name}"': times for name, times in outcomes.items()}
    assert of(now, "incidents_total") == {f'state="{name}"': 1 for name in ("suspected", "capturing", "judged")}
    assert of(now, "verdicts_total") == {'kind="undetermined"': 1} and now["incidents_running"] == 0
    assert of(now, "verdict_seconds_count") == {'origin="asked"': 1}
    assert of(now, "stage_seconds_count") == {
        f'stage="{one}"': 1 for one in ("asking", "gathering", "judging", "storing")
    }
    assert 0 < now['stage_seconds_sum{stage="gathering"}'] <= now['verdict_seconds_sum{origin="asked"}'] < 10
    assert {'step="begin"', 'step="move"', 'step="keep"', 'step="judged"'} <= of(now, "store_seconds_count").keys()
    assert now["store_failures_total"] == 0


async def test_messages_and_their_bytes_are_counted_by_kind(tmp_path: Path) -> None:
    async with watched(tmp_path / "s.db") as (on, scraper), cluster(on, a=[0]) as (a,):
        await a.say(stall_report=pb.StallReport())
        now = await scraper.until('messages_total{direction="received",kind="stall_report"}', 1)
    said = pb.FromAgent(hello=pb.Hello(machine="a", version="1", boot="start of a"))
    assert now['messages_total{direction="received",kind="hello"}'] == 1
    assert now['message_bytes_total{direction="received",kind="hello"}'] == len(said.SerializeToString())
    assert now['messages_total{direction="sent",kind="welcome"}'] == 1
    machines = [now[f'messages_total{{direction="{way}",kind="machines"}}'] for way in ("received", "sent")]
    assert machines[0] == machines[1] > 0, "`cluster` asked which machines are known"


async def test_agents_that_come_go_and_are_turned_away(tmp_path: Path) -> None:
    async with watched(tmp_path / "s.db", replace(QUICK, max_machines=2)) as (on, scraper):
        async with cluster(on, a=[0], b=[1]) as (a, _):
            for name, hello in (("a", True), ("c", True), ("d", False), (" ", True)):
                async with on.agent(name) as refused:
                    with suppress(grpc.aio.AioRpcError):  # it may be turned away before it has said who it is
                        await refused.say(hello=pb.Hello(machine=name)) if hello else None
                    await refused.end()
            await a.say(presence=pb.Presence(jobs=[pb.LocalJob(job="llama", ranks=[0])], leaving=True))
            await a.hang_up()
            await scraper.until('agents{state="stopped"}', 1)
        now = await scraper.until('agents{state="lost"}', 1)
    reasons = {"name_taken": 1, "too_many": 1, "no_hello": 1, "bad_name": 1}
    assert of(now, "agents_refused_total") == {f'reason="{name}"': times for name, times in reasons.items()}
    assert of(now, "streams_total") == {'event="connected"': 2, 'event="lost"': 1, 'event="stopped"': 1}
    assert of(now, "agents") == {'state="lost"': 1, 'state="stopped"': 1}


async def test_a_suspicion_is_timed_and_so_is_its_way_to_the_verdict(tmp_path: Path) -> None:
    async with watched(tmp_path / "s.db") as (on, scraper), cluster(on, a=[0]) as (a,):
        signs = {"llama": {Rank(0): Sign(Doing.STILL, 12.0, overdue=True)}}
        await a.say(stall_report=stall_signs.pack(signs))
        while not (message := await a.next()).HasField("capture"):
            pass
        await a.answer(message.capture, trainer(0))
        now = await scraper.until('verdict_seconds_count{origin="suspected"}', 1)
    assert now["suspicion_age_seconds_count"] == 1 and 12 <= now["suspicion_age_seconds_sum"] < 20


async def test_what_was_recorded_alone_is_counted_and_so_is_its_incident(tmp_path: Path) -> None:
    def look(name: str, rounds: int = 1) -> pb.Spooled:
        captured = pb.Captured(last=True, capture=pack([trainer(0)]))
        job = pb.LocalJob(job="llama", ranks=[0], world_size=1)
        return pb.Spooled(id=name, stall="s", job=job, captured=captured, rounds=rounds, why="it stands")

    async with watched(tmp_path / "s.db") as (on, scraper), on.agent("a") as a:
        await a.hello()
        for said in (look("one"), look("one"), look("other"), look("one", rounds=0)):
            await a.say(spooled=said)
            while not (await a.next()).HasField("ack"):
                pass
        now = await scraper.until('verdicts_total{kind="undetermined"}', 1)
    outcomes = {"kept": 1, "again": 1, "refused": 2}
    assert of(now, "looks_recorded_total") == {f'outcome="{name}"': times for name, times in outcomes.items()}
    assert of(now, "incidents_total") == {'state="recorded"': 1, 'state="judged"': 1}
    assert of(now, "stage_seconds_count") == {'stage="judging"': 1, 'stage="storing"': 1}


async def test_a_store_that_fails_is_counted(tmp_path: Path) -> None:
    def burn(connection: sa.Connection) -> None:
        connection.execute(sa.text("SELECT nothing FROM nowhere"))

    async with watched(tmp_path / "s.db") as (on, scraper):
        with pytest.raises(StoreFailed):
            await on.store.do(burn)
        assert (await scraper.numbers())["store_failures_total"] == 1


async def test_an_event_loop_that_is_held_up_shows_it(tmp_path: Path) -> None:
    async with watched(tmp_path / "s.db") as (_, scraper):
        await scraper.until("event_loop_lag_seconds_count", 1)
        time.sleep(0.7)  # noqa: ASYNC251 - holds the loop up, which is what is measured
        now = await scraper.until("event_loop_lag_seconds_count", 2)
    assert now["event_loop_lag_seconds_sum"] > 0.15


def runs(name: str, seen: tuple[MachineLine, ...]) -> bool:
    """Whether a job of that name runs on some machine."""
    return any(job.job == name for line in seen for job in line.jobs)


async def test_no_series_is_added_by_what_outsiders_say(tmp_path: Path) -> None:
    async with watched(tmp_path / "s.db") as (on, scraper):
        async with cluster(on, a=[0]) as (a,):
            steps, order = asyncio.ensure_future(on.snapshot("llama")), await a.order()
            await a.answer(order, trainer(0))
            await steps
        before = await scraper.numbers()
        for number in range(3):
            async with cluster(on, **{f"machine-{number}": [number]}) as (agent,):
                await agent.announce(pb.LocalJob(job=f"secret-{number}", ranks=[number]))
                await on.until(partial(runs, f"secret-{number}"))
        text = await scraper.text()
        assert (await scraper.numbers()).keys() == before.keys()
        assert "secret" not in text and "machine-" not in text and "_created" not in text


async def ask(address: str, request: bytes) -> bytes:
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(request)
    answer = b""
    with suppress(OSError):
        async with asyncio.timeout(30):
            answer = await reader.read()
    writer.close()
    return answer


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (b"GET /healthz HTTP/1.1\r\n\r\n", b"HTTP/1.1 200 OK"),
        (b"GET /metrics?name=x HTTP/1.1\r\nHost: x\r\n\r\n", b"HTTP/1.1 200 OK"),
        (b"HEAD /metrics HTTP/1.0\r\n\r\n", b"HTTP/1.1 200 OK"),
        (b"GET / HTTP/1.1\r\n\r\n", b"HTTP/1.1 404 Not Found"),
        (b"GET /metrics/../../etc/passwd HTTP/1.1\r\n\r\n", b"HTTP/1.1 404 Not Found"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"HTTP/1.1 405 Method Not Allowed"),
        (b"\x16\x03\x01\r\n\r\n", b"HTTP/1.1 404 Not Found"),
        (b"GET /metrics HTTP/1.1\r\n" + b"X: y\r\n" * 20_000, b""),
        (b"GET /metrics", b""),
    ],
    ids=["health", "query", "head", "no page", "climbing", "post", "tls", "endless", "slow"],
)
async def test_nothing_but_two_pages_is_to_be_had(request_: bytes, answer: bytes) -> None:
    async with scraped("127.0.0.1:0", lambda: b"numbers\n", patience_s=0.3) as address:
        said = await ask(address, request_)
        assert said.partition(b"\r\n")[0] == answer
        assert said.endswith(b"numbers\n") == (b"GET /metrics" in request_ and b"200" in answer)
        assert (await ask(address, b"GET /healthz HTTP/1.1\r\n\r\n")).endswith(b"\r\n\r\nok\n"), (
            "others are not held up"
        )


async def test_connections_that_say_nothing_are_few_and_short_and_keep_nobody_out() -> None:
    async with scraped("127.0.0.1:0", bytes, patience_s=0.5) as address:
        host, _, port = address.rpartition(":")
        idle = [await asyncio.open_connection(host, int(port)) for _ in range(200)]
        assert b"200 OK" in await ask(address, b"GET /healthz HTTP/1.1\r\n\r\n")
        async with asyncio.timeout(30):
            for reader, writer in idle:
                with suppress(ConnectionError):
                    assert await reader.read() == b""
                writer.close()


@pytest.mark.parametrize("listen", ["", ":7412", "[]:7412", "٧٤١٢", "127.0.0.1:x", "127.0.0.1:99999", "203.0.113.1:0"])
async def test_an_address_that_cannot_be_served_is_refused(listen: str) -> None:
    with pytest.raises(WrongUse):
        async with scraped(listen, bytes):
            pass


async def test_a_bare_port_is_one_of_loopback() -> None:
    async with scraped("0", bytes) as address:
        assert address.startswith("127.0.0.1:")
        with socket.socket() as elsewhere:  # the same port of another address is still free
            elsewhere.bind(("127.0.0.2", int(address.rpartition(":")[2])))


async def test_without_an_address_nothing_listens_and_nobody_is_told() -> None:
    async with observing("", Fleet(PATIENT)) as observers:
        assert not observers.metrics and not observers.interceptors
