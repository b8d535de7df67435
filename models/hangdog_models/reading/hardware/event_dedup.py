"""Counts equal events of one log into findings, and tells which of them are too old to matter, by the log's own clocks."""

from collections.abc import Iterable
from dataclasses import dataclass

from hangdog_models.findings import Finding, Impact
from hangdog_models.reading.hardware.kernel_line import KernelLine
from hangdog_models.rules.policy import OLD_S, STALE_S

#: Different events kept of one log; a machine has some tens of devices and one fault prints some codes for each.
_MOST = 1_000
#: Seconds the clock since boot may step back between two lines without a reboot: processors print out of order by far less.
_STEP_BACK_S = 10.0
_HALF_A_YEAR_S = 182 * 86_400.0


@dataclass(slots=True)
class _Entry:
    code: str
    impact: Impact
    what: str
    device: str
    peers: tuple[str, ...]
    line: KernelLine
    boot: int
    year: int
    times: int = 1


class EventDedup:
    """The events of one log, in the order of their first appearance."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._entries: dict[tuple[str, str, Impact, str], _Entry] = {}
        self._dropped = 0
        self._boot = 0
        self._year = 0
        self._last = KernelLine("")

    def pass_by(self, line: KernelLine) -> None:
        """Takes note of the clocks of a line, whatever it says."""
        last = self._last
        if line.uptime_s is not None and last.uptime_s is not None and line.uptime_s < last.uptime_s - _STEP_BACK_S:
            self._boot += 1
        if line.yearless_s is not None and last.yearless_s is not None:
            self._year += line.yearless_s < last.yearless_s - _HALF_A_YEAR_S  # from December to January
        self._last = KernelLine(
            "",
            line.at_s if line.at_s is not None else last.at_s,
            line.uptime_s if line.uptime_s is not None else last.uptime_s,
            line.yearless_s if line.yearless_s is not None else last.yearless_s,
        )

    def add(
        self,
        code: str,
        impact: Impact,
        what: str,
        line: KernelLine,
        device: str = "",
        peers: tuple[str, ...] = (),
        echo: bool = False,
    ) -> None:
        """Counts an event of the line that was passed by last; an `echo` counts only where its event was not seen."""
        key = (code, device or ",".join(peers), impact, line.host)
        entry = self._entries.get(key)
        if entry is None and len(self._entries) >= _MOST:
            self._dropped += 1
        elif entry is None:
            if not (echo and not device and any(k[0] == code for k in self._entries)):
                self._entries[key] = _Entry(code, impact, what, device, peers, line, self._boot, self._year)
        else:
            entry.times += not echo
            entry.line, entry.boot, entry.year = line, self._boot, self._year

    def clear(self, codes: Iterable[str], about: str) -> bool:
        """Takes back events of these codes of one device or peer; whether there were any."""
        cleared = [key for key in self._entries if key[0] in codes and key[1] == about]
        for key in cleared:
            del self._entries[key]
        return bool(cleared)

    def findings(self) -> tuple[Finding, ...]:
        """One finding for each different event; those too old are turned into findings that tell nothing, and say so."""
        dates = [date for entry in self._entries.values() if (date := _date(entry)) is not None]
        newest = max(dates, default=0.0)
        found = [self._finding(entry, newest) for entry in self._entries.values()]
        if self._dropped:
            what = f"{self._dropped} further lines name more different events than are kept ({_MOST})"
            found.append(Finding(self._source, "more events", Impact.TELLS_NOTHING, what))
        return tuple(found)

    def _finding(self, entry: _Entry, newest: float) -> Finding:
        line = entry.line
        impact, what = entry.impact, entry.what
        age = self._age(entry)
        date = _date(entry)
        if age is not None and age > STALE_S:
            impact, what = Impact.TELLS_NOTHING, f"{what} (old: {_span(age)} before the end of this log)"
        elif line.at_s is None and date is not None and newest - date > OLD_S:
            # Such a date cannot be handed on as a time, so what is old is told here.
            impact, what = (
                Impact.TELLS_NOTHING,
                f"{what} (old: {_span(newest - date)} before the newest event of this log)",
            )
        elif entry.boot < self._boot and line.at_s is None and date is None:
            impact, what = Impact.TELLS_NOTHING, f"{what} (old: before the machine's last start)"
        uptime = line.uptime_s if entry.boot == self._boot else None
        return Finding(
            self._source, entry.code, impact, what, line.host,
            device=entry.device, peers=entry.peers, at_s=line.at_s, uptime_s=uptime, times=entry.times,
        )  # fmt: skip

    def _age(self, entry: _Entry) -> float | None:
        """Seconds from the event to the end of the log, by the best clock that both have."""
        line, last = entry.line, self._last
        if line.at_s is not None and last.at_s is not None:
            return last.at_s - line.at_s
        if (date := _date(entry)) is not None and last.yearless_s is not None:
            return last.yearless_s + self._year * 2 * _HALF_A_YEAR_S - date
        if line.uptime_s is not None and last.uptime_s is not None and entry.boot == self._boot:
            return last.uptime_s - line.uptime_s
        return None


def _date(entry: _Entry) -> float | None:
    yearless = entry.line.yearless_s
    return None if yearless is None else yearless + entry.year * 2 * _HALF_A_YEAR_S


def _span(seconds: float) -> str:
    hours = seconds / 3600
    return f"{hours:.0f} h" if hours < 48 else f"{hours / 24:.0f} days"
