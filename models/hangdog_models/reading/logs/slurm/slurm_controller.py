"""Reads the log of Slurm's controller, slurmctld: which machine it lost or drained, and why. It speaks of all machines of a cluster.

The log may go on for weeks. What lies more than a day before its end is of another job, unless the machine is still out of service.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from hangdog_models.findings import Finding
from hangdog_models.reading.dates import SOME_YEAR, moment, month_of
from hangdog_models.reading.limits import DEFAULTS, Limits
from hangdog_models.reading.logs.slurm.slurm_text import finding_of, hosts_in

_HOST = r"(?P<host>[A-Za-z0-9][\w.-]{0,252})"
#: What the controller says of a machine, in the words of the state and the reason that `scontrol` would show then.
_LOST, _FAILED, _REBOOTED = "Not responding", "Node failure", "Node unexpectedly rebooted"
_EVENTS = tuple(
    (words, re.compile(form), state, reason)
    for words, form, state, reason in (
        (", setting DOWN", r"\bNodes (?P<hosts>\S{1,4000}) not responding, setting DOWN", "DOWN*", _LOST),
        (" on failed node ", rf"\bKilling \S{{1,80}}(?: \d{{1,12}})? on failed node {_HOST}", "DOWN", _FAILED),
        (" due to failure of node ", rf"\brequeue .{{1,80}} due to failure of node {_HOST}", "DOWN", _FAILED),
        ("Removing failed node ", rf"\bRemoving failed node {_HOST} from ", "DOWN", _FAILED),
        (" unexpectedly rebooted", rf"\bNode {_HOST} unexpectedly rebooted", "DOWN", _REBOOTED),
        (
            " state to INVAL with reason:",
            rf"\bSetting node {_HOST} state to INVAL with reason:(?P<reason>.{{1,200}})",
            "DRAIN",
            "",
        ),
        (
            ", draining the node",
            rf"\bProlog or job env setup failure on node {_HOST}, draining the node",
            "DRAIN",
            "Prolog error",
        ),
    )
)
#: Why a machine will be drained, or was; the line that says so to what state stands beside.
_WHY = (
    re.compile(rf"\bupdate_node: node {_HOST} reason set to: (?P<reason>.{{1,200}})"),
    re.compile(
        r"\bslurmd error (?:\d{1,9} )?running JobId=\S{1,80} on node\(s\)=(?P<hosts>\S{1,4000}): (?P<reason>.{1,200})"
    ),
)
_STATE = re.compile(rf"\b(?:update_node|drain_nodes): node {_HOST} state set to (?P<state>[A-Z_]{{2,20}})")
_OUT = ("DOWN", "DRAIN", "FAIL")
#: The machine is in service again, as the controller sees it.
_BACK = re.compile(rf"\b[Nn]ode {_HOST} (?:now responding|returned to service)")
#: What makes a text the controller's log, beside the lines above: what it does all day.
_CONTROLLER = re.compile(
    r"\bslurmctld(?:\[\d{1,10}\])?: |\b_slurm_rpc_\w{3,40}: |\bsched: Allocate JobId=|\b_job_complete: JobId=|\bvalidate_node_specs: |\bupdate_node: node "
)
_HINTS = (*(words for words, *_ in _EVENTS), " reason set to: ", "slurmd error ", " state set to ", "ode ")
#: `[2026-11-25T09:00:00.155]`, with a zone in newer versions; the journal writes `Nov 25 09:00:00`.
_STAMP = re.compile(r"\[?(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.\d{1,9})?(Z|[+-]\d\d:?\d\d)?\]? ")
_SYSLOG = re.compile(r"([A-Z][a-z]{2}) {1,2}(\d{1,2}) (\d\d):(\d\d):(\d\d) ")
_DAY_S, _YEAR_S = 86_400.0, 366 * 86_400.0
#: Lines of one log that are read, characters of a line, and names in the lists of all lines.
_LINES, _LONGEST, _NAMES = 2_000_000, 6_000, 1 << 18
#: Machines that are kept, and reasons of each.
_MOST, _REASONS = 4_096, 16


@dataclass(slots=True)
class _NodeEvent:
    """What happened to a machine. `clock_s` compares it with others of the log; `back`: it is in service again."""

    state: str
    reason: str
    at_s: float | None
    clock_s: float | None
    back: bool = False


def recognises(text: str) -> bool:
    """Whether a text is the controller's log, or lines of it; to be asked of its head."""
    return _CONTROLLER.search(text) is not None or any(event.search(text) for _, event, _, _ in _EVENTS)


def read(text: str, limits: Limits = DEFAULTS) -> tuple[Finding, ...]:
    """What happened to each machine last, for each reason; what is over since long is left out."""
    log = _ControllerLog()
    for line, _ in zip(text[: limits.file_bytes].splitlines(), range(_LINES), strict=False):
        log.take(line[:_LONGEST])
    found: dict[tuple[str, str], Finding] = {}
    for host, event in ((host, event) for host, events in log.events.items() for event in events.values()):
        if event.back and _passed(event.clock_s, log.clock_s) > _DAY_S:
            continue
        for finding in finding_of(host, event.state, event.reason, event.at_s):
            found.setdefault((finding.machine, finding.code), finding)
    return tuple(found.values())


@dataclass(slots=True)
class _ControllerLog:
    """What was read so far: each machine's events by their reasons, why machines will be drained, and how many names may still be read."""

    events: dict[str, dict[str, _NodeEvent]] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    clock_s: float | None = None
    names: int = _NAMES

    def take(self, line: str) -> None:
        """Notes what one line says."""
        at_s, now_s = _time(line)
        self.clock_s = self.clock_s if now_s is None else now_s
        if not any(hint in line for hint in _HINTS):
            return
        for host, state, reason in self._out_of_service(line):
            if host in self.events or len(self.events) < _MOST:
                events = self.events.setdefault(host, {})
                if reason in events or len(events) < _REASONS:
                    events[reason] = _NodeEvent(state, reason, at_s, self.clock_s)
        for event in self.events.get(_returned(line), {}).values():
            event.back = True

    def _out_of_service(self, line: str) -> Iterator[tuple[str, str, str]]:
        """Machines that a line takes out of service, each with its state and the reason."""
        for words, form, state, reason in _EVENTS:
            if words in line and (found := form.search(line)):
                for host in self._hosts(found):
                    yield host, state, reason or found["reason"].strip()
                return
        for form in _WHY:
            if found := form.search(line):
                for host in self._hosts(found):
                    if host in self.reasons or len(self.reasons) < _MOST:
                        self.reasons[host] = found["reason"].strip()
                return
        if (found := _STATE.search(line)) and found["state"].startswith(_OUT):
            yield found["host"], found["state"], self.reasons.get(found["host"], "")

    def _hosts(self, found: re.Match[str]) -> list[str]:
        named = found.groupdict()
        if not named.get("hosts"):
            return [named["host"]]
        hosts = hosts_in(named["hosts"]) if self.names > 0 else []
        self.names -= len(hosts)
        return hosts


def _returned(line: str) -> str:
    """The machine that a line says is in service again; empty where it says so of none."""
    if found := _BACK.search(line):
        return found["host"]
    found = _STATE.search(line)
    return found["host"] if found and not found["state"].startswith(_OUT) else ""


def _time(line: str) -> tuple[float | None, float | None]:
    """Unix time of a line, where its stamp has a year; and a time to compare with those of other lines."""
    if stamp := _STAMP.match(line):
        at_s = moment(int(stamp[1]), int(stamp[2]), stamp[3], stamp[4], stamp[5], stamp[6], stamp[7])
        return at_s, at_s
    if stamp := _SYSLOG.match(line):
        return None, moment(SOME_YEAR, month_of(stamp[1]), stamp[2], stamp[3], stamp[4], stamp[5])
    return None, None


def _passed(first: float | None, last: float | None) -> float:
    """Seconds between two times of a log; a year may have ended between them where no line has one."""
    return 0.0 if first is None or last is None else (last - first) % _YEAR_S
