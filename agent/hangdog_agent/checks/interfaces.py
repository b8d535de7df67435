"""Checks the network interfaces below TCP: one that carried data and went down leaves its machine's trainers without the others.

InfiniBand and RoCE ports have a check of their own. Seen are the interfaces of the agent's own network namespace. Those of containers
are not, but `tcp` sees that routes are gone there.
"""

from collections.abc import Collection
from dataclasses import dataclass

from hangdog_agent.checks.check_paths import CheckPaths, names, number, text
from hangdog_agent.checks.check_result import CheckKind, CheckResult, Component, Moment, state
from hangdog_agent.checks.settings import CheckSettings
from hangdog_models.findings import Impact

_SOURCE = "network interface"
#: `type` of an interface with Ethernet frames (ARPHRD_ETHER).
_ETHERNET = 1
#: What `operstate` says of one without a carrier, or that somebody turned off; virtual ones may say `unknown` all the time.
_UP, _DOWN = "up", ("down", "lowerlayerdown")
#: Folders of bridges and of tunnels, which go up and down with the containers behind them.
_VIRTUAL = ("bridge", "tun_flags")
#: A route to one address alone is that of a container's end on its host.
_HOST_ROUTE = "FFFFFFFF"
#: Interfaces of one machine; a host of containers has some hundred.
_MOST = 1_024
#: Bytes between two looks from which data is carried: less is what machines tell each other all the time.
_CARRIES = 1 << 20


@dataclass(slots=True)
class _InterfaceSeen:
    """An interface's past: whether it carried data while it was up, and the bytes it had moved."""

    carried: bool = False
    moved: int | None = None


class Interfaces:
    """The check. An interface is judged by its own past only: one that never carried data may have no cable."""

    name = "interfaces"

    def __init__(self, places: CheckPaths, settings: CheckSettings) -> None:
        self.every_s = settings.interfaces_every_s
        self._root = places.sys / "class/net"
        self._routes = places.proc / "self/net/route"
        self._seen: dict[str, _InterfaceSeen] = {}

    def supported(self) -> str:
        return "" if names(self._root) else "the kernel tells no network interfaces"

    def look(self, moment: Moment) -> tuple[CheckResult, ...]:
        routed = _routed(text(self._routes))
        here = names(self._root)[:_MOST]
        # what is gone may be in a container now
        self._seen = {name: self._seen.get(name, _InterfaceSeen()) for name in here}
        return tuple(
            self._down(name, moment) for name, seen in self._seen.items() if self._is_down(name, seen, name in routed)
        )

    def close(self) -> None:
        pass

    def _is_down(self, name: str, seen: _InterfaceSeen, routed: bool) -> bool:
        """Whether one that carried data is down; takes note of what it carries while it is up."""
        folder = self._root / name
        word = text(folder / "operstate", 32)
        now = word.strip() if isinstance(word, str) else ""
        if now == _UP and (seen.carried or (routed and self._counts(name))):
            moved = sum(number(folder / "statistics" / f"{way}_bytes") or 0 for way in ("rx", "tx"))
            seen.carried = seen.carried or (seen.moved is not None and moved - seen.moved >= _CARRIES)
            seen.moved = moved
        return seen.carried and now in _DOWN

    def _counts(self, name: str) -> bool:
        """Whether it is one of Ethernet frames that belongs to the machine itself."""
        folder = self._root / name
        return number(folder / "type") == _ETHERNET and not set(names(folder)).intersection(_VIRTUAL)

    def _down(self, name: str, moment: Moment) -> CheckResult:
        stated = "link down", Impact.SUSPECTS, f"interface {name} carried data and is down"
        return state(self.name, _SOURCE, Component(CheckKind.PORT, name), stated, moment)


def _routed(read: str | int) -> Collection[str]:
    """The interfaces with a route to a network, by `net/route`."""
    rows = (line.split() for line in read.splitlines()[1:]) if isinstance(read, str) else ()
    return {row[0] for row in rows if len(row) >= 8 and row[7] != _HOST_ROUTE}
