"""Namespaces that stand for machines: each sees its own processes and has two networks, one for data. Needs root, `ip` and `tc`."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

#: The interface over which ranks talk, and the one by which agents reach the server.
DATA, CONTROL = "hd0", "hc0"
#: The server's own address.
SERVER = "10.214.78.254"
#: What a data interface lets through, in Mbit/s; and one that is slow.
MBIT, SLOW_MBIT = 2000, 200
INIT = Path(__file__).with_name("machine_init.py")


class Machines:
    """So many machines, and a switch where the server runs; leaving the block removes them."""

    def __init__(self, count: int) -> None:
        self._mark = f"hdi{os.getpid()}"
        self._count = count

    def __enter__(self) -> Self:
        try:
            self._make()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    def address(self, number: int) -> str:
        """Of a machine's data interface."""
        return f"10.213.78.{number + 1}"

    def inside(self, number: int, *commands: Sequence[str]) -> tuple[str, ...]:
        """Runs commands on a machine, until one of them ends."""
        own = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable, str(INIT))
        words = [word for command in commands for word in (*command, "--then--")]
        return ("ip", "netns", "exec", self._name(str(number)), *own, *words)

    def beside(self, *command: str) -> tuple[str, ...]:
        """Runs a command on the switch."""
        return ("ip", "netns", "exec", self._name("sw"), *command)

    def cut(self, number: int) -> None:
        """From now on this machine's data interface is down."""
        _ip("-n", self._name(str(number)), "link", "set", DATA, "down")

    def slow(self, number: int) -> None:
        """From now on this machine's data interface lets a tenth through, both ways."""
        self._limit("change", number, SLOW_MBIT)

    def _make(self) -> None:
        switch = self._name("sw")
        _ip("netns", "add", switch)
        _ip("-n", switch, "link", "set", "lo", "up")
        for bridge in ("data", "control"):
            _ip("-n", switch, "link", "add", bridge, "type", "bridge")
            _ip("-n", switch, "link", "set", bridge, "up")
        _ip("-n", switch, "addr", "add", f"{SERVER}/24", "dev", "control")
        for number in range(self._count):
            _ip("netns", "add", self._name(str(number)))
            _ip("-n", self._name(str(number)), "link", "set", "lo", "up")
            self._plug(number, DATA, f"d{number}", "data", self.address(number))
            self._plug(number, CONTROL, f"c{number}", "control", f"10.214.78.{number + 1}")
            self._limit("add", number, MBIT)

    def _remove(self) -> None:
        for name in (*map(str, range(self._count)), "sw"):
            subprocess.run(("ip", "netns", "del", self._name(name)), check=False, stderr=subprocess.DEVNULL)

    def _plug(self, number: int, interface: str, port: str, bridge: str, address: str) -> None:
        space, switch = self._name(str(number)), self._name("sw")
        _ip("-n", space, "link", "add", interface, "type", "veth", "peer", "name", port, "netns", switch)
        _ip("-n", switch, "link", "set", port, "master", bridge, "up")
        _ip("-n", space, "addr", "add", f"{address}/24", "dev", interface)
        _ip("-n", space, "link", "set", interface, "up")

    def _limit(self, how: str, number: int, mbit: int) -> None:
        limit = ("root", "tbf", "rate", f"{mbit}mbit", "burst", "256kb", "latency", "50ms")
        for space, device in ((self._name(str(number)), DATA), (self._name("sw"), f"d{number}")):
            subprocess.run(("tc", "-n", space, "qdisc", how, "dev", device, *limit), check=True)

    def _name(self, name: str) -> str:
        return f"{self._mark}-{name}"


def _ip(*arguments: str) -> None:
    subprocess.run(("ip", *arguments), check=True)
