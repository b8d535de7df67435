"""Level 3 between members that meet at an address: in network namespaces where links matter, and with one that is silent."""

import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Self

import pytest

from hangdog.demo.conductor import free_port
from hangdog_agent.machine_tests.group import Group
from hangdog_agent.machine_tests.level import LevelOutcome, LevelResult, MachineConviction, PartKind
from hangdog_agent.machine_tests.levels.between_machines import Between
from hangdog_agent.machine_tests.torch_engine import Engine
from support.fakes import ladder
from support.fakes.ladder import ON_CPU, SMALL, failed

pytestmark = [pytest.mark.slow, pytest.mark.timeout(ladder.PATIENCE_S)]


def play(
    meet: str, engines: Sequence[Engine], patience_s: float = 0.0, deadline_s: float = 90.0
) -> list[tuple[LevelResult, ...]]:
    """What each member tells, all run at once."""
    levels = [
        Between(engine, ON_CPU, SMALL, Group(meet, at, len(engines)), patience_s) for at, engine in enumerate(engines)
    ]
    with ThreadPoolExecutor(len(levels)) as pool:
        return list(pool.map(lambda level: level.run(deadline_s, threading.Event()), levels))


class Cables:
    """Namespaces that stand for machines, each on a cable of its own to one switch; leaving the block removes them."""

    def __init__(self, count: int, folder: Path) -> None:
        self.count, self.folder, self.mark = count, folder, f"hl{os.getpid() % 100_000}"

    def __enter__(self) -> Self:
        ip("netns", "add", f"{self.mark}s")
        ip("-n", f"{self.mark}s", "link", "add", "br0", "type", "bridge")
        ip("-n", f"{self.mark}s", "link", "set", "br0", "up")
        for at in range(self.count):
            name = f"{self.mark}m{at}"
            ip("netns", "add", name)
            ip("-n", name, "link", "add", "eth7", "type", "veth", "peer", "name", f"m{at}", "netns", f"{self.mark}s")
            ip("-n", f"{self.mark}s", "link", "set", f"m{at}", "master", "br0", "up")
            ip("-n", name, "addr", "add", f"10.213.78.{at + 1}/24", "dev", "eth7")
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "link", "set", "eth7", "up")
        return self

    def __exit__(self, *error: object) -> None:
        for name in (f"{self.mark}s", *(f"{self.mark}m{at}" for at in range(self.count))):
            subprocess.run(("ip", "netns", "del", name), check=False)

    def engine(self, at: int) -> Engine:
        """One whose programs run on machine `at`."""
        there = self.folder / f"python{at}"
        there.write_text(f'#!/bin/sh\nexec ip netns exec {self.mark}m{at} {ladder.engine().interpreter} "$@"\n')
        there.chmod(0o755)
        own = ladder.engine()
        return replace(own, interpreter=str(there), environ={**own.environ, "GLOO_SOCKET_IFNAME": "eth7"})

    def spoil(self, at: int, *how: str) -> None:
        """Has whatever machine `at` sends pass a queue."""
        subprocess.run(
            ("ip", "netns", "exec", f"{self.mark}m{at}", "tc", "qdisc", "add", "dev", "eth7", "root", *how), check=True
        )


def ip(*arguments: str) -> None:
    subprocess.run(("ip", *arguments), check=True)


@pytest.fixture
def cables(tmp_path: Path) -> Iterator[Callable[[int], Cables]]:
    if os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("tc"):
        pytest.skip("network namespaces take root, ip and tc")
    yield lambda count: Cables(count, tmp_path)


#: A queue too short for what is sent drops it: that takes no netem, which many kernels lack.
LOSS = ("tbf", "rate", "400mbit", "burst", "8kb", "limit", "8kb")
TENTH = ("tbf", "rate", "100mbit", "burst", "64kb", "latency", "200ms")


@pytest.mark.parametrize("how", [LOSS, TENTH], ids=["loss", "a tenth"])
def test_a_bad_cable_is_found_and_evicts_nobody(cables: Callable[[int], Cables], how: tuple[str, ...]) -> None:
    with cables(3) as network:
        network.spoil(2, *how)
        told = play("10.213.78.1:29511", [network.engine(at) for at in range(3)], deadline_s=60.0)
    for results in told:
        assert failed(results) == {
            "bandwidth": (
                MachineConviction(PartKind.LINK, ("member 0", "member 2")),
                MachineConviction(PartKind.LINK, ("member 1", "member 2")),
            )
        }, results


def test_damaged_data_is_found_by_its_link() -> None:
    broken = ladder.engine("damaged transfer", '"name": "member 1"')
    told = play(f"127.0.0.1:{free_port()}", [ladder.engine(), broken])
    for results in told:
        assert failed(results) == {"integrity": (MachineConviction(PartKind.LINK, ("member 0", "member 1")),)}
        assert [(one.test, one.outcome) for one in results[1:]] == [
            ("gathering", LevelOutcome.PASS),
            ("bandwidth", LevelOutcome.PASS),
        ]
    assert told[0][0].evidence == told[1][0].evidence, "all tell the same"


def test_a_member_that_never_answers_is_named_by_the_others() -> None:
    silent = ladder.engine("stopped in transfer", '"name": "member 1"')
    first, _ = play(f"127.0.0.1:{free_port()}", [ladder.engine(), silent], 15.0, 25.0)
    assert not failed(first)
    assert first[-1].message.startswith("member 1 ") and "not live" in first[-1].message


def test_a_group_that_nobody_joins_is_told() -> None:
    (results,) = [
        Between(ladder.engine(), ON_CPU, SMALL, Group(f"127.0.0.1:{free_port()}", 0, 2), 8.0).run(
            40.0, threading.Event()
        )
    ]
    assert [one.outcome for one in results] == [LevelOutcome.INCONCLUSIVE]
    assert results[0].message.startswith("member 1 ") and "not answer" in results[0].message
