"""Reads Ray's exceptions of an actor that died: on which machine it ran, and whether that machine died or the process alone.

Of a process that vanished Ray lists what may have been, lack of memory first: it knows none of it.
"""

import re
from dataclasses import dataclass, field

from hangdog_models.counts import counted
from hangdog_models.findings import Finding, Impact
from hangdog_models.reading.printable import printable

#: Parts of lines that open such an exception, or of lines in it that stand alone.
HINTS = (
    "The actor died",
    "The actor is dead because",
    "actor died unexpectedly",
    "A worker died or was killed",
    "killed due to memory pressure",
)
#: What a raylet says of workers on its machine: of one that vanished, and of those that it killed itself.
_VANISHED = re.compile(
    r"A worker died or was killed\b.{0,2000}?Worker IP address: ([\w.:]{1,64})\b.{0,200}?Worker PID: (\d{1,18})"
)
_PRESSED = re.compile(
    r"(\d{1,9}) Workers? \(tasks / actors\) killed due to memory pressure.{0,200}? IP: ([\w.:]{1,64})\)"
)
_FIELD = re.compile(r"\s{1,16}(class_name|pid|ip): ([\w.:-]{1,128})\s{0,8}$")
_NODE = "its node has died"
_WORKER = "its worker process has died"
_LOCAL = ("127.0.0.1", "::1")
#: Lines of one exception, and exceptions that are kept.
_SPAN, _MOST = 12, 64


@dataclass(slots=True)
class RayDeaths:
    """The actors that died. `lines` of an exception may still come, whose fields are `about`."""

    nodes: dict[str, str] = field(default_factory=dict)
    workers: dict[tuple[str, str], str] = field(default_factory=dict)
    pressed: dict[str, int] = field(default_factory=dict)
    lines: int = 0
    about: dict[str, str] = field(default_factory=dict)

    def take(self, line: str) -> bool:
        """Notes a line; true if nothing else is to be read in it."""
        if (found := _VANISHED.search(line)) and len(self.workers) < _MOST:
            self.workers.setdefault((_host(found[1]), found[2]), "a worker")
            return True
        if (found := _PRESSED.search(line)) and len(self.pressed) < _MOST and found[1] != "0":
            self.pressed[_host(found[2])] = int(found[1])
            return True
        if "died unexpectedly" in line or "The actor died" in line:
            self.lines, self.about = _SPAN, {}
            return False  # it ends a traceback as well
        if self.lines and (found := _FIELD.match(line)):
            self.about[found[1]] = found[2]
            self.lines -= 1
            return True
        if "The actor is dead because" in line:
            self._keep(line)
            self.lines, self.about = 0, {}
            return True
        self.lines = max(0, self.lines - 1)
        return False

    def _keep(self, line: str) -> None:
        host, name = _host(self.about.get("ip", "")), self.about.get("class_name", "an actor")
        if _NODE in line and len(self.nodes) < _MOST:
            self.nodes.setdefault(host, name)
        elif _WORKER in line and len(self.workers) < _MOST:
            self.workers.setdefault((host, self.about.get("pid", "")), name)

    def findings(self, source: str) -> list[Finding]:
        """Machines that Ray lost, and processes that vanished."""
        found = []
        for host, name in self.nodes.items():
            what = f"Ray lost this machine, on which {printable(name, 100)} ran: it or its network is down, it was taken back, or it is overloaded"
            impact = Impact.RESET if host else Impact.VICTIM
            found.append(Finding(source, "node failure" if host else "node failure somewhere", impact, what, host))
        for (host, pid), name in self.workers.items():
            who = f"{printable(name, 100)}{f' (process {pid})' if pid else ''}"
            what = f"{who} vanished, and Ray does not know why: its own log and the kernel's tell"
            found.append(Finding(source, "worker vanished", Impact.VICTIM, what, host))
        for host, count in self.pressed.items():
            what = f"Ray killed {counted(count, 'worker')} there, as memory ran short: give tasks more memory, or run fewer at once"
            found.append(Finding(source, "Ray out of memory", Impact.PROGRAM, what, host))
        return found


def _host(address: str) -> str:
    return "" if address in _LOCAL else address
