"""Reads what kubectl prints of a job: `get events`, `get nodes`, `get pods`, `describe pod` and `describe node`.

What a reason means stands in cluster_table.toml. A machine that was ready again later was not lost.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from hangdog_models.findings import KUBERNETES, Finding, Impact
from hangdog_models.reading.limits import DEFAULTS, Limits
from hangdog_models.reading.logs import log_table
from hangdog_models.reading.printable import printable

_EVENTS = re.compile(r"^(?:NAMESPACE\s{1,40})?LAST SEEN\s{1,40}(?:COUNT\s{1,40})?TYPE\s{1,40}REASON\s", re.MULTILINE)
_NODES = re.compile(r"^NAME\s{1,80}STATUS\s{1,40}ROLES\s{1,40}AGE\s", re.MULTILINE)
_PODS = re.compile(r"^(?:NAMESPACE\s{1,40})?NAME\s{1,80}READY\s{1,40}STATUS\s{1,40}RESTARTS\s", re.MULTILINE)
_POD_ROW = re.compile(
    r"^(?:\S{1,63}\s{1,60})??(\S{1,253})\s{1,120}\d{1,4}/\d{1,4}\s{1,40}(\w{1,40})\s{1,40}\d{1,9}(?: \(\w{1,16} ago\))?\s{1,40}"
    r"\d\w{0,15}(?:\s{1,40}(?:[0-9a-f.:]{2,45}|<none>)\s{1,40}([A-Za-z0-9][\w.-]{0,252}))?"
)
_DESCRIBED = re.compile(
    r"^Name:\s{1,40}\S[^\n]{0,300}\n(?:[^\n]{0,2000}\n){0,400}?(?:Conditions|Events):", re.MULTILINE
)
_EVENT = re.compile(
    r"^(?:\S{1,63}\s{1,40})??(?:(\d[\dsmhdy]{0,15})[^A-Z]{0,40}\s{1,40})?\s{0,8}(Normal|Warning)\s{1,40}(\w{1,64})\s{1,80}(.{1,2000})$"
)
_OBJECT = re.compile(r"(pod|node)s?/(\S{1,253})\s{1,80}(.{0,1500})$", re.IGNORECASE)
_DESCRIBED_EVENT = re.compile(
    r"(\d[\dsmhdy]{0,15})(?: \(x\d{1,9} over \w{1,16}\))?\s{1,40}\S{1,128}\s{1,40}(.{1,1500})$"
)
_FIELD = re.compile(r"^(\s{0,12})(Name|Node|Reason):\s{1,40}(\S{1,300})")
_CONDITION = re.compile(r"^\s{1,4}([A-Z]\w{1,80})\s{1,40}(True|False|Unknown)\s{1,40}(.{1,600})$")
_NODE_ROW = re.compile(
    r"^(\S{1,253})\s{1,80}((?:NotReady|Ready)(?:,\w{1,40}){0,4})\s{1,40}\S{1,120}\s{1,40}\d\w{0,15}\s"
)
_ASSIGNED = re.compile(r"Successfully assigned (?:\S{1,253}/)?(\S{1,253}) to (\S{1,253})")
_AGE = re.compile(r"(\d{1,6})([smhdy])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "y": 31_536_000}
#: Findings and pods of one text that are kept; lines of it that are read.
_MOST, _LINES = 1_000, 200_000
_LONGEST = 2_500


@dataclass(slots=True)
class _Read:
    """What was read so far: findings with their ages, where pods run, when machines were ready again."""

    found: list[tuple[Finding, str, float]] = field(default_factory=list)
    node_of: dict[str, str] = field(default_factory=dict)
    ready: dict[str, float] = field(default_factory=dict)
    name: str = ""
    is_node: bool = False

    def add(self, kind: str, name: str, reason: str, message: str, age_s: float) -> None:
        if kind == "node" and reason == "NodeReady":
            self.ready[name] = min(age_s, self.ready.get(name, age_s))
        known = log_table.cluster().find(f"{kind} {reason}: {message}")
        if known is None or len(self.found) >= _MOST:
            return
        quoted = f' ("{printable(message, 160)}")' if message else ""
        machine = name if kind in ("node", "condition") else ""
        what = f"{known[0].what}{quoted}" if machine else f"{known[0].what}: pod {printable(name, 120)}{quoted}"
        self.found.append((Finding(KUBERNETES, known[0].code, known[0].impact, what, machine), name, age_s))


def recognises(text: str) -> bool:
    """Whether a text is what kubectl prints of events, nodes or a described pod or node; to be asked of its head."""
    return any(pattern.search(text) for pattern in (_EVENTS, _NODES, _PODS, _DESCRIBED))


def read(text: str, limits: Limits = DEFAULTS) -> tuple[Finding, ...]:
    """The findings of a text, one for each machine or pod and meaning."""
    parsed = _Read()
    for raw, _ in zip(text[: limits.file_bytes].splitlines(), range(_LINES), strict=False):
        _take(parsed, raw[:_LONGEST])
    return tuple(_settled(parsed))


def _take(parsed: _Read, line: str) -> None:
    if found := _FIELD.match(line):
        indent, key, value = found.groups()
        if key == "Name" and not indent:
            parsed.name, parsed.is_node = value, False
        elif key == "Node" and not indent and parsed.name:
            parsed.node_of[parsed.name] = value.partition("/")[0]
        elif key == "Reason" and indent:
            parsed.add("pod", parsed.name, value, "", 0.0)
    elif event := _EVENT.match(line):
        _take_event(parsed, event)
    elif condition := _CONDITION.match(line):
        if parsed.name and parsed.name not in parsed.node_of:
            parsed.add("condition", parsed.name, f"{condition[1]}={condition[2]}", _message(condition[3]), 0.0)
    elif pod := _POD_ROW.match(line):
        if pod[3]:
            parsed.node_of[pod[1]] = pod[3]
        parsed.add("pod", pod[1], pod[2], "", 0.0)
    elif node := _NODE_ROW.match(line):
        state = node[2].split(",")[0]
        parsed.add("condition", node[1], f"Ready={'True' if state == 'Ready' else 'False'}", "", 0.0)


def _take_event(parsed: _Read, event: re.Match[str]) -> None:
    reason, rest = event[3], event[4].rstrip()
    if named := _OBJECT.match(rest):
        kind, name, message, age = named[1].lower(), named[2], named[3], event[1] or ""
    elif parsed.name and (described := _DESCRIBED_EVENT.match(rest)):
        kind, name, message, age = (
            "pod" if parsed.name in parsed.node_of else "node",
            parsed.name,
            described[2],
            described[1],
        )
    else:
        return
    if assigned := _ASSIGNED.search(message):
        parsed.node_of.setdefault(assigned[1], assigned[2])
    parsed.add(kind, name, reason, message, _age(age))


def _settled(parsed: _Read) -> Iterator[Finding]:
    seen: dict[tuple[str, str, Impact], Finding] = {}
    for finding, name, age_s in parsed.found:
        if not finding.machine and name in parsed.node_of:
            finding = replace(finding, machine=parsed.node_of[name])
        if finding.impact is Impact.RESET and (back := parsed.ready.get(finding.machine)) is not None and back <= age_s:
            what = f"{finding.what}; it was ready again later"
            finding = replace(finding, impact=Impact.TELLS_NOTHING, what=what)
        if finding.impact is Impact.RESET and not finding.machine:
            continue  # a pod whose machine nothing tells
        seen.setdefault((finding.code, finding.machine or name, finding.impact), finding)
    yield from seen.values()


def _message(columns: str) -> str:
    """The last column of a condition, behind two dates and a reason."""
    return re.split(r"\s{2,40}", columns.strip())[-1]


def _age(text: str) -> float:
    return float(sum(int(number) * _SECONDS[unit] for number, unit in _AGE.findall(text)))
