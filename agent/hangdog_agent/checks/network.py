"""Checks InfiniBand and RoCE ports: lost cards, links that are down or come and go, slower links, rising errors.

One alert heals by itself more often than not, so it only counts with a second one within five minutes.
"""

from dataclasses import dataclass, field
from typing import Any

from hangdog_agent.checks.check_paths import CheckPaths, names, text
from hangdog_agent.checks.check_result import CheckKind, CheckResult, Component, Moment, state
from hangdog_agent.checks.check_state import Notes
from hangdog_agent.checks.settings import CheckSettings
from hangdog_agent.checks.strikes import Strikes
from hangdog_agent.checks.traffic import Port, Ports
from hangdog_models.counts import counted
from hangdog_models.findings import Impact

_SOURCE = "InfiniBand"
_ACTIVE = "ACTIVE"
#: A link that went down and came back between two looks.
_DOWNED = "link_downed"
#: Counters whose rise is told; a rise says that the path suffers, not which end of it.
_ERRORS = (
    ("counters", ("symbol_error", "link_error_recovery", "local_link_integrity_errors", "port_rcv_errors", "port_xmit_discards")),
    ("hw_counters", ("out_of_sequence", "packet_seq_err", "local_ack_timeout_err", "rnr_nak_retry_err", "roce_adp_retrans_to")),
)  # fmt: skip


@dataclass(slots=True)
class _PortSeen:
    """A port's past: whether it was ever active, its fastest rate in Gb/s, since when it is down, its counters."""

    active: bool = False
    rate: float = 0.0
    down_at: float | None = None
    counters: dict[str, int] = field(default_factory=dict)


class Network:
    """The check. A port is judged by its own past only: one that was never active may have no cable."""

    name = "network"

    def __init__(self, places: CheckPaths, settings: CheckSettings, notes: Notes) -> None:
        self.every_s = settings.network_every_s
        self._settings = settings
        self._notes = notes
        self._ports = Ports(places)
        self._exclusive = places.sys / "module/ib_core/parameters/netns_mode"
        self._strikes = Strikes(settings.network_strikes, settings.network_window_s)
        self._seen = _recalled(notes.recall(self.name))

    def supported(self) -> str:
        return "" if self._seen or self._ports.here() else "there is no InfiniBand or RoCE device"

    def look(self, moment: Moment) -> tuple[CheckResult, ...]:
        here = {port.name: port for port in self._ports.here()}
        found: list[CheckResult] = []
        for name in sorted(here.keys() | self._seen.keys()):
            seen = self._seen.setdefault(name, _PortSeen())
            component = Component(CheckKind.PORT, name)
            if name in here:
                found += self._present(here[name], seen, component, moment)
            elif seen.active and self._strikes.strike(f"{name} gone", moment.now):
                found.append(state(self.name, _SOURCE, component, self._gone(name), moment))
        kept = {name: {"rate": seen.rate} for name, seen in self._seen.items() if seen.active}
        self._notes.note(self.name, {"ports": kept})
        return tuple(found)

    def close(self) -> None:
        pass

    def _gone(self, name: str) -> tuple[str, Impact, str]:
        if text(self._exclusive, 8) == "N\n":  # network namespaces do not share devices: a pod may have been given it
            words = f"the device of port {name} is gone; devices move into containers here, so it may be in one"
            return "NIC gone", Impact.TELLS_NOTHING, words
        return "NIC lost", Impact.CONVICTS, f"port {name} was active, and its device is gone"

    def _present(self, port: Port, seen: _PortSeen, component: Component, moment: Moment) -> list[CheckResult]:
        shown = {name: _word(port, name) for name in ("state", "phys_state", "rate", "link_layer")}
        evidence = [", ".join(f"{name} {value}" for name, value in shown.items() if value)]
        stated: list[tuple[str, Impact, str]] = []
        flapped, rises = self._counters(port, seen)
        if shown["state"].endswith(_ACTIVE):
            # A virtual function comes and goes with the container that uses it: it is never missed.
            seen.active, seen.down_at = "physfn" not in names(port.folder.parents[1] / "device"), None
            stated += self._rate(port.name, seen, shown["rate"], moment)
        elif seen.active and shown["state"]:
            seen.down_at = moment.now if seen.down_at is None else seen.down_at
            stated += self._down(port.name, moment.now - seen.down_at, moment)
        found = [state(self.name, _SOURCE, component, each, moment, evidence) for each in stated]
        if flapped and seen.down_at is None:
            found.append(self._flap(port.name, component, flapped, moment))
        if rises:
            words = "errors since the last look: " + ", ".join(f"{name} {by}" for name, by in rises.items())
            reported = "port errors", Impact.PATH if "local_ack_timeout_err" in rises else Impact.TELLS_NOTHING, words
            found.append(state(self.name, _SOURCE, component, reported, moment, evidence))
        return found

    def _down(self, name: str, for_s: float, moment: Moment) -> list[tuple[str, Impact, str]]:
        counts = self._strikes.strike(f"{name} down", moment.now)
        if for_s >= self._settings.link_down_s:
            return [("link down", Impact.CONVICTS, f"port {name} was active and has been down for {for_s:.0f} s")]
        if counts:
            return [("link down", Impact.SUSPECTS, f"port {name} was active and is down")]
        return []

    def _rate(self, name: str, seen: _PortSeen, shown: str, moment: Moment) -> list[tuple[str, Impact, str]]:
        try:
            rate = float(shown.split()[0])
        except (ValueError, IndexError):
            return []
        seen.rate = max(seen.rate, rate)
        if rate >= seen.rate:
            self._strikes.heal(f"{name} rate")
            return []
        if not self._strikes.strike(f"{name} rate", moment.now):
            return []
        return [("link rate", Impact.SLOWS, f"port {name} runs at {rate:g} of {seen.rate:g} Gb/s")]

    def _flap(self, name: str, component: Component, times: int, moment: Moment) -> CheckResult:
        words = f"port {name} went down and came back {counted(times, 'time')} since the last look"
        stated = "link flap", Impact.PATH, f"{words}: tolerated once"
        if self._strikes.strike(f"{name} flap", moment.now) or times >= self._settings.network_strikes:
            stated = "link flap", Impact.SUSPECTS, f"{words}, and again within {self._settings.network_window_s:.0f} s"
        mark = f"{moment.at_s:.0f}"
        return state(self.name, _SOURCE, component, stated, moment, mark=mark, lasting=False)

    def _counters(self, port: Port, seen: _PortSeen) -> tuple[int, dict[str, int]]:
        """How often the link went down and which error counters rose since the last look; a fall is a reset."""
        now: dict[str, int] = {}
        for folder, counters in (("counters", (_DOWNED,)), *_ERRORS):
            for name in counters:
                count = self._ports.counter(port.folder / folder / name)
                if count is not None:
                    now[name] = count
        rises = {name: n - seen.counters[name] for name, n in now.items() if n > seen.counters.get(name, n)}
        seen.counters = now
        return rises.pop(_DOWNED, 0), rises


def _word(port: Port, name: str) -> str:
    """`ACTIVE` of `4: ACTIVE`, `400 Gb/sec (4X NDR)` as it is; empty where it cannot be read."""
    read = text(port.folder / name, 128)
    return read.strip().rpartition(": ")[2] if isinstance(read, str) else ""


def _recalled(noted: dict[str, Any]) -> dict[str, _PortSeen]:
    ports = noted.get("ports")
    rows = ports.items() if isinstance(ports, dict) else ()
    return {
        name: _PortSeen(active=True, rate=float(row["rate"]) if isinstance(row.get("rate"), int | float) else 0.0)
        for name, row in rows
        if isinstance(row, dict)
    }
