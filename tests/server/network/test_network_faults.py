"""Real agents and a real server over lines that break, stall, lose and crawl: the verdict names who is missing, on time."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from hangdog_agent.capture import pyspy
from hangdog_agent.capture.process_capture import Tools
from hangdog_agent.capture.settings import CaptureSettings
from hangdog_agent.connection.identity import Identity
from hangdog_agent.connection.link import Link
from hangdog_agent.connection.settings import LinkSettings
from hangdog_agent.discovery.process_table import ProcessTable
from hangdog_agent.discovery.watch import Watch
from hangdog_agent.stalls.monitor import StallMonitor
from hangdog_agent.stalls.settings import StallSettings
from hangdog_models.rules.ruleset import packaged
from hangdog_models.stack import Missing, Reason
from hangdog_proto.client.incidents import ProgressStep
from hangdog_server.cluster.fleet import Fleet
from hangdog_server.observability.grpc_counters import Counting
from hangdog_server.observability.setup import Observers
from support.fakes import targets
from support.servers.cast import PATIENT, Stage, failed, stage
from support.servers.faulty import Line, Proxy, line
from support.worded import names

pytestmark = pytest.mark.slow

MARK = "HANGDOG_TEST_FAULTS"
NAMES = ("a", "b", "c", "d")
#: Two looks, so that a fault comes in the middle of a capture: behind the first and before the second one.
SETTINGS = replace(PATIENT, rounds=2, interval_s=2.0, patience_s=6.0, rejoin_s=1.5, heartbeat_s=1.5, hello_s=10.0)
#: What judging, storing and a busy machine may add to the time in which a verdict must be there. Seconds.
SLACK_S = 2.0
LINKED = LinkSettings(backoff_first_s=0.05, backoff_most_s=0.5, scan_s=0.2)
#: One that never makes up its mind: nobody but the test asks.
CALM = StallSettings(suspicious_s=1e6, patience_s=1e6, start_s=1e6)


@dataclass
class Cluster:
    """A server, and machines with one rank each, every one on a line of its own."""

    on: Stage
    lines: dict[str, Proxy]
    registry: CollectorRegistry

    async def sent(self, kind: str) -> None:
        """Returns once the server has sent a message of this kind."""
        async with asyncio.timeout(SETTINGS.patience_s):
            labels = {"direction": "sent", "kind": kind}
            while not self.registry.get_sample_value("hangdog_messages_total", labels):
                await asyncio.sleep(0.01)

    async def capture(self, fault: Callable[[], object] = lambda: None) -> list[ProgressStep]:
        """A snapshot with a fault between its two looks; fails when it is late."""
        heard: list[ProgressStep] = []
        loop = asyncio.get_running_loop()
        began = loop.time()
        asking = asyncio.ensure_future(self.on.snapshot("llama", heard))
        async with asyncio.timeout(SETTINGS.patience_s):
            while len(await self.looked(heard)) < len(self.lines):
                await asyncio.sleep(0.02)
        fault()
        await asking
        allowed = (SETTINGS.rounds - 1) * SETTINGS.interval_s + SETTINGS.patience_s + SLACK_S
        assert loop.time() - began <= allowed
        return heard

    async def looked(self, heard: Sequence[ProgressStep]) -> set[str]:
        """The machines of which the store has a look; what looks name is kept beside them and is no machine's."""
        if not heard:
            return set()
        _, captures = await self.on.store.recall(heard[0].incident)
        return {capture.machine for capture in captures} & self.lines.keys()

    async def whole(self) -> None:
        """All machines are back, all of them are asked, and all answer both looks."""
        await self.on.knows(*self.lines)
        steps = await self.capture()
        assert f"asked {len(self.lines)} machines" in [step.text for step in steps]
        assert not failed(steps)

    def turn(self, state: Line, *names: str) -> None:
        for name in names:
            self.lines[name].turn(state)


@pytest.fixture(scope="module")
def spy() -> pyspy.PySpy:
    tool = pyspy.load()
    assert not isinstance(tool, Missing), tool
    return tool


@pytest.fixture
async def cluster(tmp_path: Path, spy: pyspy.PySpy) -> AsyncIterator[Cluster]:
    registry = CollectorRegistry()
    observers = Observers(Fleet(SETTINGS), interceptors=[Counting(registry)])
    async with stage(tmp_path / "s.db", settings=SETTINGS, observers=observers) as on, AsyncExitStack() as stack:
        lines = {name: await stack.enter_async_context(machine(on, name, rank, spy)) for rank, name in enumerate(NAMES)}
        await on.knows(*NAMES)
        yield Cluster(on, lines, registry)


@asynccontextmanager
async def machine(on: Stage, name: str, rank: int, spy: pyspy.PySpy) -> AsyncIterator[Proxy]:
    """A rank that waits, and the real agent that sees it and no other one."""
    mark = (MARK, f"{os.getpid()}-{name}")
    environ = dict([mark], RANK=str(rank), WORLD_SIZE=str(len(NAMES)), HANGDOG_JOB="llama")
    tools = Tools(targets.proc, spy, CaptureSettings(), threading.Event())
    watch = Watch(ProcessTable(targets.proc, frozenset({MARK})), mark, (), forget_s=600.0)
    stop = asyncio.Event()
    async with line(on.address) as proxy:
        link = Link(Identity(proxy.address, name, "1"), watch, StallMonitor(tools, packaged(), CALM), tools, LINKED)
        with targets.running(targets.WAIT, environ=environ):
            keeping = asyncio.ensure_future(link.keep(stop))
            try:
                yield proxy
            finally:
                stop.set()
                proxy.turn(Line.OPEN)
                proxy.cut()
                await asyncio.wait_for(keeping, 20)


def reasons(steps: list[ProgressStep], *ranks: int) -> list[str]:
    """Why these ranks are missing, and that no others are."""
    missing = failed(steps)
    assert missing.keys() == {str(rank) for rank in ranks}, missing
    return [missing[str(rank)] for rank in ranks]


async def test_a_connection_that_breaks_and_is_back_at_once_costs_nothing(cluster: Cluster) -> None:
    steps = await cluster.capture(cluster.lines["b"].cut)
    assert not failed(steps)


async def test_a_connection_that_breaks_and_cannot_be_made_again(cluster: Cluster) -> None:
    def fault() -> None:
        cluster.turn(Line.REFUSED, "b")
        cluster.lines["b"].cut()

    (why,) = reasons(await cluster.capture(fault), 1)
    assert names(why, Reason.NO_AGENT, "of b", "lost", "look 0")
    cluster.turn(Line.OPEN, "b")
    await cluster.whole()


async def test_a_long_line_is_only_slow(cluster: Cluster) -> None:
    for proxy in cluster.lines.values():
        proxy.delay_s = 0.3
    await cluster.whole()


async def test_a_half_open_connection(cluster: Cluster) -> None:
    (why,) = reasons(await cluster.capture(lambda: cluster.turn(Line.SWALLOWED, "b")), 1)
    assert names(why, Reason.NO_AGENT, "of b") and (names(why, "look 0") or names(why, "said nothing"))
    cluster.turn(Line.OPEN, "b")
    await cluster.whole()


async def test_a_line_of_a_few_bytes_a_second_is_missing_and_delays_nobody(cluster: Cluster) -> None:
    def fault() -> None:
        cluster.lines["b"].bytes_per_s = 5.0

    (why,) = reasons(await cluster.capture(fault), 1)
    assert names(why, "b fell silent", "look 0") or names(why, "agent of b")
    cluster.lines["b"].bytes_per_s = float("inf")
    await cluster.whole()


async def test_lines_of_a_few_kilobytes_a_second_suffice(cluster: Cluster) -> None:
    for proxy in cluster.lines.values():
        proxy.bytes_per_s = 4000.0
    await cluster.whole()


async def test_half_of_the_machines_are_parted_in_the_middle_of_a_capture(cluster: Cluster) -> None:
    missing = reasons(await cluster.capture(lambda: cluster.turn(Line.HELD, "c", "d")), 2, 3)
    for name, why in zip("cd", missing, strict=True):
        assert names(why, Reason.NO_AGENT, f"of {name}")
    cluster.turn(Line.OPEN, "c", "d")
    await cluster.whole()


async def test_who_was_asked_to_tell_for_all_is_lost_before_it_tells(cluster: Cluster) -> None:
    """All ranks wait at one place, which the server has told by whose look comes first; then another one has to tell."""
    for name, proxy in cluster.lines.items():
        proxy.delay_s = 0.1 if name == "a" else 0.3
    began = asyncio.get_running_loop().time()
    asking = asyncio.ensure_future(cluster.on.snapshot("llama"))
    await cluster.sent("missing_pieces")
    cluster.turn(Line.SWALLOWED, "a")
    (why,) = reasons(await asking, 0)
    assert names(why, Reason.NO_AGENT, "of a")
    assert asyncio.get_running_loop().time() - began <= SETTINGS.interval_s + SETTINGS.patience_s + SLACK_S


async def test_a_parting_that_heals_before_patience_ends_costs_nothing(cluster: Cluster) -> None:
    def fault() -> None:
        cluster.turn(Line.HELD, "c", "d")
        asyncio.get_running_loop().call_later(1.0, cluster.turn, Line.OPEN, "c", "d")

    assert not failed(await cluster.capture(fault))
