"""How many bytes the machine's InfiniBand and RoCE ports moved: none, while others wait, is a sign of a standstill."""

import errno
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hangdog_agent.checks.check_paths import CheckPaths, names, text

#: Ports of one machine; the largest have 16 cards of two ports, and virtual functions beside them.
_MOST_PORTS = 256
#: `port_rcv_data` and `port_xmit_data` count words of four bytes.
_WORD = 4
#: Most counters whose files are remembered as refused.
_MOST_REFUSED = 10_000


@dataclass(frozen=True, slots=True)
class Port:
    """A port by its device and number, `mlx5_0/1`, and its folder."""

    name: str
    folder: Path


class Ports:
    """The ports below `/sys/class/infiniband`, and their counters; a file that refused once is never read again.

    Reading counters of restricted functions makes the driver flood the kernel log with every try
    (prometheus/node_exporter issue 3434, leptonai/gpud issue 1164).
    """

    def __init__(self, places: CheckPaths) -> None:
        self._root = places.sys / "class/infiniband"
        self._refused: set[Path] = set()

    def here(self) -> tuple[Port, ...]:
        """All ports of all devices, by name."""
        return tuple(port for port, _ in zip(self._walk(), range(_MOST_PORTS), strict=False))

    def counter(self, path: Path) -> int | None:
        """A counter; None where it does not exist, does not answer, or once refused to."""
        if path in self._refused:
            return None
        read = text(path, 64)
        if isinstance(read, int):
            if read == errno.EINVAL and len(self._refused) < _MOST_REFUSED:
                self._refused.add(path)
            return None
        word = read.strip()
        return int(word) if word.isdecimal() and len(word) <= 20 else None

    def _walk(self) -> Iterator[Port]:
        for device in names(self._root):
            for number in names(self._root / device / "ports"):
                yield Port(f"{device}/{number}", self._root / device / "ports" / number)


class Traffic:
    """Bytes moved between two looks; has its own memory, so each user of it takes one of its own."""

    def __init__(self, places: CheckPaths) -> None:
        self._ports = Ports(places)
        self._last: dict[str, int] = {}

    def moved(self) -> int | None:
        """Bytes sent and received by all ports since the last call; None at first, or where no port counts them.

        Ports that came, went, or set their counters back meanwhile are left out.
        """
        now: dict[str, int] = {}
        for port in self._ports.here():
            for name in ("port_rcv_data", "port_xmit_data"):
                count = self._ports.counter(port.folder / "counters" / name)
                if count is not None:
                    now[f"{port.name}/{name}"] = count
        last, self._last = self._last, now
        steps = [count - last[name] for name, count in now.items() if last.get(name, count + 1) <= count]
        return _WORD * sum(steps) if steps else None
