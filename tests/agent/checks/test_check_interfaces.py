"""Network interfaces in a tree of the test's own, and a real one in a namespace: what carried data and went down, and nothing else."""

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from hangdog_agent.checks.check_paths import CheckPaths
from hangdog_agent.checks.check_result import CheckResult, CheckVerdict, Moment
from hangdog_agent.checks.interfaces import Interfaces
from hangdog_agent.checks.settings import CheckSettings
from hangdog_models.findings import Impact

HEAD = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
NET, HOST = "00FFFFFF", "FFFFFFFF"


class Interface:
    """One interface below a pretended /sys and its route, looked at every ten seconds."""

    def __init__(self, folder: Path, mask: str = NET, kind: int = 1, virtual: str = "") -> None:
        self._at, route = folder / "sys/class/net/eth1", folder / "proc/self/net/route"
        (self._at / "statistics").mkdir(parents=True)
        route.parent.mkdir(parents=True)
        route.write_text(HEAD + f"eth1\t00004D0A\t00000000\t0001\t0\t0\t0\t{mask}\t0\t0\t0\n")
        (self._at / "type").write_text(f"{kind}\n")
        if virtual:
            (self._at / virtual).touch()
        self._now, self._moved = 1_000.0, 0
        self.check = Interfaces(CheckPaths(proc=folder / "proc", sys=folder / "sys"), CheckSettings())

    def look(self, state: str = "up", moved: int = 0) -> tuple[CheckResult, ...]:
        self._now += 10.0
        self._moved += moved
        (self._at / "operstate").write_text(f"{state}\n")
        for way in ("rx", "tx"):
            (self._at / "statistics" / f"{way}_bytes").write_text(f"{self._moved // 2}\n")
        return self.check.look(Moment(self._now, 1.8e9, "boot-1"))

    def leave(self) -> None:
        shutil.rmtree(self._at)


def test_one_that_carried_data_and_is_down_is_suspected_until_it_is_up_again(tmp_path: Path) -> None:
    eth1 = Interface(tmp_path)
    assert eth1.check.supported() == ""
    assert eth1.look() == () and eth1.look(moved=8 << 20) == () and eth1.look() == ()
    for state in ("down", "lowerlayerdown"):
        (one,) = eth1.look(state)
        assert (one.code, one.finding.impact, one.kind, one.finding.device) == (
            "link down", Impact.SUSPECTS, CheckVerdict.SUSPECT, "eth1",
        )  # fmt: skip
        assert eth1.look() == ()


@pytest.mark.parametrize(
    "options",
    [
        {"virtual": "bridge"},  # a bridge is down while no container is attached
        {"virtual": "tun_flags"},
        {"kind": 772},  # the loopback
        {"mask": HOST},  # a container's end on its host
    ],
)
def test_what_comes_and_goes_with_containers_is_let_be(tmp_path: Path, options: dict[str, str]) -> None:
    other = Interface(tmp_path, **options)  # type: ignore[arg-type]
    other.look()
    other.look(moved=8 << 20)
    assert other.look("down") == ()


@pytest.mark.parametrize("states", [["down", "down"], ["up", "up", "down"], ["up", "unknown", "dormant"]])
def test_one_that_never_carried_data_is_not_missed(tmp_path: Path, states: list[str]) -> None:
    eth1 = Interface(tmp_path)
    assert [eth1.look(state, moved=100_000) for state in states] == [()] * len(states)


def test_one_that_is_gone_may_be_in_a_container_now(tmp_path: Path) -> None:
    eth1 = Interface(tmp_path)
    eth1.look()
    eth1.look(moved=8 << 20)
    eth1.leave()
    assert eth1.check.look(Moment(2_000.0, 1.8e9, "boot-1")) == ()


def test_a_kernel_that_tells_none_says_so(tmp_path: Path) -> None:
    assert Interfaces(CheckPaths(proc=tmp_path, sys=tmp_path), CheckSettings()).supported()
    assert Interfaces(CheckPaths(), CheckSettings()).supported() == ""


def test_a_real_interface_says_down_as_it_is_turned_off(tmp_path: Path) -> None:
    """The words of the kernel itself, read in a network namespace of its own."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("needs root and `ip`: apt-get install iproute2")
    name = f"hdif{os.getpid()}"
    says = "cat /sys/class/net/hd0/operstate /sys/class/net/hd0/type; grep hd0 /proc/self/net/route"

    def ip(*words: str) -> str:
        return subprocess.run(("ip", *words), check=True, capture_output=True, text=True).stdout

    ip("netns", "add", name)
    try:
        ip("-n", name, "link", "add", "hd0", "type", "veth", "peer", "name", "hd1")
        ip("-n", name, "addr", "add", "10.213.80.1/24", "dev", "hd0")
        for interface in ("hd0", "hd1"):
            ip("-n", name, "link", "set", interface, "up")
        until = time.monotonic() + 10.0
        while (up := ip("netns", "exec", name, "sh", "-c", says).split())[0] != "up" and time.monotonic() < until:
            time.sleep(0.1)  # the kernel says so a moment later
        assert up[:3] == ["up", "1", "hd0"] and NET in up
        ip("-n", name, "link", "set", "hd1", "down")
        until = time.monotonic() + 10.0  # the kernel waits for a moment, should the carrier come back
        while (word := ip("netns", "exec", name, "sh", "-c", says).split()[0]) == "up" and time.monotonic() < until:
            time.sleep(0.1)
        assert word == "lowerlayerdown"
        ip("-n", name, "link", "set", "hd0", "down")
        assert ip("netns", "exec", name, "sh", "-c", says + "; true").split() == ["down", "1"]
    finally:
        ip("netns", "del", name)
