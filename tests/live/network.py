"""Two network namespaces joined by a bridge in a third: the machines of a live job on either side, and a way to part them."""

import ctypes
import os
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

#: Where a rank is told which namespace it belongs to.
NETWORK = "HANGDOG_LIVE_NETWORK"
#: The interface on either side.
INTERFACE = "hd0"
SIDES = ("left", "right")
ADDRESS = {"left": "10.213.77.1", "right": "10.213.77.2"}
_CLONE_NEWNET = 0x40000000


class Network:
    """Needs root and the `ip` command; leaving the block removes all of it."""

    def __init__(self) -> None:
        self._mark = f"hd{os.getpid()}"

    def __enter__(self) -> Self:
        switch = self.side("switch")
        for name in (*SIDES, "switch"):
            _ip("netns", "add", self.side(name))
        _ip("-n", switch, "link", "add", "br0", "type", "bridge")
        _ip("-n", switch, "link", "set", "br0", "up")
        for name in SIDES:
            side = self.side(name)
            _ip("-n", side, "link", "add", INTERFACE, "type", "veth", "peer", "name", name, "netns", switch)
            _ip("-n", switch, "link", "set", name, "master", "br0", "up")
            _ip("-n", side, "addr", "add", f"{ADDRESS[name]}/24", "dev", INTERFACE)
            for interface in ("lo", INTERFACE):
                _ip("-n", side, "link", "set", interface, "up")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in (*SIDES, "switch"):
            subprocess.run(("ip", "netns", "del", self.side(name)), check=False)

    def side(self, name: str) -> str:
        """The name of a namespace."""
        return f"{self._mark}-{name}"

    def launch(self, second_half: bool) -> dict[str, str]:
        """What a rank on the first or second side is started with."""
        side = SIDES[second_half]
        return {NETWORK: self.side(side), "GLOO_SOCKET_IFNAME": INTERFACE, "MASTER_ADDR": ADDRESS[SIDES[0]]}

    def part(self) -> None:
        """From now on every packet between the two sides is lost, and neither of them is told."""
        _ip("-n", self.side("switch"), "link", "set", SIDES[1], "nomaster")

    def turn_off(self, side: str) -> None:
        """From now on the interface of a side is down, as by hand or with its cable."""
        _ip("-n", self.side(side), "link", "set", INTERFACE, "down")

    def join(self) -> None:
        """From now on packets pass again."""
        _ip("-n", self.side("switch"), "link", "set", SIDES[1], "master", "br0")


def enter(namespace: str) -> None:
    """Moves this process, which must have one thread only, into a network namespace."""
    with Path(f"/run/netns/{namespace}").open("rb") as file:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(file.fileno(), _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"cannot enter network namespace {namespace}")


def _ip(*arguments: str) -> None:
    subprocess.run(("ip", *arguments), check=True)
