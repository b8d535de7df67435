"""Counts what the agent does and reads how it stands, as text that Prometheus' node_exporter takes from a file.

No library and no port: a platform team does not want a listener more on ten thousand machines, and node_exporter is
there already. prometheus_client would be a package more in every training image, for the dozen lines of `_family`.
docs/metrics.md names every metric.
"""

import os
import resource
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from hangdog_models.findings import Finding, Impact
from hangdog_models.stack import ProcessTrace, Reason

#: What a process is counted as whose stacks came.
CAPTURED = "captured"


class AgentEvent(StrEnum):
    """What is counted: the metric's name without `hangdog_agent_` and `_total`."""

    CONNECTIONS = "connections"
    FAILURES = "connection_failures"
    ORDERS = "orders"
    DROPPED = "orders_dropped"
    LOOKS = "looks"


_HELP = {
    AgentEvent.CONNECTIONS: "Connections on which a server took this agent in.",
    AgentEvent.FAILURES: "Connections that ended before a server took this agent in.",
    AgentEvent.ORDERS: "Orders to look that a server gave.",
    AgentEvent.DROPPED: "Orders not followed because too many were being answered.",
    AgentEvent.LOOKS: "Looks at all processes of a job here, whoever asked.",
}


@dataclass(frozen=True, slots=True)
class AgentStatus:
    """How the agent stands: whether a server has it, what runs here, what its checks found, and what waits for a server.

    `certificate_ends` is Unix time when this machine's certificate ends, None without one.
    """

    connected: bool = False
    jobs: int = 0
    trainers: int = 0
    findings: tuple[Finding, ...] = ()
    waiting: int = 0
    certificate_ends: float | None = None


class AgentMetrics:
    """The counts; any thread may count, and any may read."""

    def __init__(self, version: str = "") -> None:
        self._version = version
        self._counts = dict.fromkeys(AgentEvent, 0)
        self._processes = dict.fromkeys((CAPTURED, *Reason), 0)
        self._lock = threading.Lock()

    def count(self, event: AgentEvent) -> None:
        """Something happened."""
        with self._lock:
            self._counts[event] += 1

    def looked(self, traces: Iterable[ProcessTrace]) -> None:
        """A look was taken; each process of it was captured, or why it was not, or less than asked for."""
        with self._lock:
            self._counts[AgentEvent.LOOKS] += 1
            for trace in traces:
                self._processes[trace.missing.reason if trace.missing else CAPTURED] += 1

    def text(self, state: AgentStatus) -> str:
        """All metrics as Prometheus reads them."""
        with self._lock:
            counts, processes = dict(self._counts), dict(self._processes)
        impacts: dict[str, int] = dict.fromkeys(Impact, 0)
        for finding in state.findings:
            impacts[finding.impact] += 1
        mine, tools = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
        ends = {"": state.certificate_ends} if state.certificate_ends is not None else {}
        made = [_family("info", "gauge", "The agent's version.", {self._version: 1}, "version")]
        made += [_family(f"{event}_total", "counter", _HELP[event], number) for event, number in counts.items()]
        made += [
            _family("processes_total", "counter", "Processes looked at, by outcome.", _words(processes), "outcome"),
            _family("connected", "gauge", "1 while a server has this agent.", int(state.connected)),
            _family("jobs", "gauge", "Jobs that run here.", state.jobs),
            _family("trainers", "gauge", "Ranks that run here.", state.trainers),
            _family("findings", "gauge", "What checks found and holds, by bearing.", _words(impacts), "bearing"),
            _family("spooled_looks", "gauge", "Looks that wait for a server.", state.waiting),
            _family("cpu_seconds_total", "counter", "CPU time of the agent itself.", _cpu(mine)),
            _family("tools_cpu_seconds_total", "counter", "CPU time of the tools it ran.", _cpu(tools)),
            _family("resident_memory_bytes", "gauge", "Memory of the agent itself.", _resident()),
            _family("certificate_end_time_seconds", "gauge", "When this machine's certificate ends, Unix time.", ends),
            _family("open_fds", "gauge", "Open file descriptors.", _open_files()),
        ]
        return "".join(made)


def _family(name: str, kind: str, what: str, values: float | Mapping[str, float], label: str = "") -> str:
    """One metric as text: its help, its type, and a line for each of its values."""
    full = f"hangdog_agent_{name}"
    rows = (
        {f'{{{label}="{value}"}}' if label else "": number for value, number in values.items()}
        if isinstance(values, Mapping)
        else {"": values}
    )
    lines = (f"{full}{labels} {number:.12g}\n" for labels, number in rows.items())
    return f"# HELP {full} {what}\n# TYPE {full} {kind}\n{''.join(lines)}"


def _words(counted: Mapping[str, int]) -> dict[str, float]:
    """The same with label values as Prometheus' users write them: `timed_out`."""
    return {str(word).replace(" ", "_"): number for word, number in counted.items()}


def _cpu(used: resource.struct_rusage) -> float:
    return used.ru_utime + used.ru_stime


def _resident() -> int:
    """Bytes in memory now; 0 where /proc does not tell."""
    try:
        return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        return 0


def _open_files() -> int:
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return 0
