"""Bytes that a machine's network moves: a progress signal while there are more than the usual noise."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from hangdog_agent.checks.check_paths import CheckPaths, text
from hangdog_agent.checks.traffic import Traffic
from hangdog_agent.stalls.progress.background import BackgroundWork
from hangdog_agent.stalls.progress.progress_signal import ProgressSignal, SignalKind
from hangdog_agent.stalls.settings import StallSettings

#: Rates remembered: with those of every five seconds the last minutes.
_REMEMBERED = 32
#: Fields of a line of /proc/net/dev, behind its name: bytes received, and bytes sent.
_RECEIVED, _SENT = 0, 8


class Meter:
    """Turns bytes moved into advances: more than a share of the busiest of the last rates."""

    def __init__(self, settings: StallSettings) -> None:
        self._settings = settings
        self._rates: deque[float] = deque(maxlen=_REMEMBERED)
        self.signal = ProgressSignal(SignalKind.BYTES, settings.suspicious_s)

    def take(self, moved: int, seconds: float, at: float) -> None:
        """So many bytes moved in so many seconds up to `at`."""
        rate = moved / max(seconds, 1e-3)
        usual = max(self._rates, default=0.0)
        noise = max(self._settings.traffic_least, self._settings.traffic_share * usual)
        self.signal.look(rate >= noise, at)
        if self.signal.stalled_since is None:  # else the noise of a stall would become what is usual
            self._rates.append(rate)


@dataclass(frozen=True, slots=True)
class _Reading:
    """Bytes moved by InfiniBand and RoCE ports since the reading before, and by each job's interfaces ever; None: unknown."""

    ports: int | None
    interfaces: Mapping[str, int | None]


class Flow:
    """The meters of a machine's ports and of each job's network interfaces. Only one thread may use it; it never waits."""

    def __init__(self, places: CheckPaths, settings: StallSettings) -> None:
        self._places = places
        self._settings = settings
        self._traffic = Traffic(places)
        self._ports: Meter | None = None
        self._interfaces: dict[str, tuple[Meter, int]] = {}
        self._work: BackgroundWork[_Reading] | None = None
        self._due = self._read_at = float("-inf")

    def read(self, pids: Mapping[str, int], now: float) -> dict[str, list[ProgressSignal]]:
        """Reads when it is due. `pids` has a trainer of each job, in whose network its interfaces are read."""
        if not self._settings.traffic_every_s:
            return {}
        self._interfaces = {job: each for job, each in self._interfaces.items() if job in pids}
        if self._work is None and now >= self._due and pids:
            self._due = now + self._settings.traffic_every_s
            self._work = BackgroundWork("traffic", lambda: self._read(pids))
        if self._work is not None and self._work.done():
            if self._work.result is not None:
                self._take(self._work.result, self._work.ended)
            self._work = None
        ports = [self._ports.signal] if self._ports is not None else []
        return {job: [*ports, *self._of(job)] for job in pids}

    def _of(self, job: str) -> list[ProgressSignal]:
        return [self._interfaces[job][0].signal] if job in self._interfaces else []

    def _read(self, pids: Mapping[str, int]) -> _Reading:
        folder = self._places.proc
        return _Reading(
            self._traffic.moved(), {job: total(text(folder / str(pid) / "net/dev")) for job, pid in pids.items()}
        )

    def _take(self, read: _Reading, at: float) -> None:
        seconds, self._read_at = at - self._read_at, at
        if read.ports is not None:
            self._ports = self._ports or Meter(self._settings)
            self._ports.take(read.ports, seconds, at)
        for job, count in read.interfaces.items():
            if count is None:
                self._interfaces.pop(job, None)
                continue
            meter, last = self._interfaces.get(job) or (Meter(self._settings), count)
            if count >= last:  # else an interface has gone
                meter.take(count - last, seconds, at)
            self._interfaces[job] = meter, count


def total(read: str | int) -> int | None:
    """Bytes received and sent by all interfaces of a /proc/net/dev; None where it is none."""
    lines = read.splitlines() if isinstance(read, str) else []
    rows = [line.partition(":")[2].split() for line in lines if ":" in line]
    try:
        return sum(int(row[_RECEIVED]) + int(row[_SENT]) for row in rows) if rows else None
    except (ValueError, IndexError):
        return None
