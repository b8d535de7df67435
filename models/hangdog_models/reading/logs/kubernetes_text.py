"""Reads what kubectl prints of a job: `get events`, `get nodes`, `get pods`, `describe pod` and `describe node`.

Also the table of events that was cut out of a description, and the events in the log of the controller.
"""

import re
from dataclasses import dataclass, field

from hangdog_models.findings import Finding
from hangdog_models.reading.limits import DEFAULTS, Limits
from hangdog_models.reading.logs.kubernetes_report import KubernetesReport

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
_EVENTS_ALONE = re.compile(
    r"^Events:\s{0,8}\n\s{1,8}Type\s{1,40}Reason\s{1,60}Age\s{1,60}From\s{1,60}Message\s{0,8}$", re.MULTILINE
)
#: `I0102 03:04:05.678901  1 event.go:291] "Event occurred" object="default/w-3" … kind="Pod" … reason="NodeNotReady" message="…"`
_CONTROLLER = re.compile(
    r'(?:[IWE](\d\d)(\d\d) (\d\d):(\d\d):(\d\d)\b.{0,80})?"Event occurred" object="(?:([\w.-]{0,63})/)?([\w.-]{1,253})"'
    r'.{0,200}? kind="(Pod|Node)".{0,200}? reason="(\w{1,64})"(?: message="(.{0,1500})"\s{0,8}$)?'
)
#: How the message of an event names its pod.
_OF_POD = re.compile(r"(?:Successfully assigned (?:\S{1,253}/)?|\bin pod )([a-z0-9][a-z0-9.-]{0,252})")
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
_AGE = re.compile(r"(\d{1,6})([smhdy])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "y": 31_536_000}
#: Lines of one text that are read, and characters of each.
_LINES = 200_000
_LONGEST = 2_500


@dataclass(slots=True)
class _Text:
    """A text while its lines come in: the object that is described just now is `name`. `nameless`: only its events are."""

    report: KubernetesReport = field(default_factory=KubernetesReport)
    name: str = ""
    nameless: bool = False


def recognises(text: str) -> bool:
    """Whether a text is what kubectl prints of events, nodes or a described pod or node; to be asked of its head."""
    return any(pattern.search(text) for pattern in (_EVENTS, _NODES, _PODS, _DESCRIBED, _EVENTS_ALONE, _CONTROLLER))


def read(text: str, limits: Limits = DEFAULTS) -> tuple[Finding, ...]:
    """The findings of a text, one for each machine or pod and meaning."""
    parsed = _Text(nameless=_DESCRIBED.search(text[: _LONGEST * 100]) is None)
    for raw, _ in zip(text[: limits.file_bytes].splitlines(), range(_LINES), strict=False):
        _take(parsed, raw[:_LONGEST])
    return tuple(parsed.report.findings())


def _take(parsed: _Text, line: str) -> None:
    report = parsed.report
    if found := _FIELD.match(line):
        indent, key, value = found.groups()
        if key == "Name" and not indent:
            parsed.name = value
        elif key == "Node" and not indent and parsed.name:
            report.node_of[parsed.name] = "" if value == "<none>" else value.partition("/")[0]
        elif key == "Reason" and indent:
            report.add("pod", parsed.name, value, "", 0.0)
    elif '"Event occurred"' in line and (occurred := _CONTROLLER.search(line)):
        _take_controller(report, occurred)
    elif event := _EVENT.match(line):
        _take_event(parsed, event)
    elif condition := _CONDITION.match(line):
        if parsed.name and parsed.name not in report.node_of:
            report.add("condition", parsed.name, f"{condition[1]}={condition[2]}", _message(condition[3]), 0.0)
    elif pod := _POD_ROW.match(line):
        if pod[3]:
            report.node_of[pod[1]] = pod[3]
        report.add("pod", pod[1], pod[2], "", 0.0)
    elif node := _NODE_ROW.match(line):
        state = node[2].split(",")[0]
        report.add("condition", node[1], f"Ready={'True' if state == 'Ready' else 'False'}", "", 0.0)


def _take_event(parsed: _Text, event: re.Match[str]) -> None:
    report = parsed.report
    reason, rest = event[3], event[4].rstrip()
    if named := _OBJECT.match(rest):
        kind, name, message, age = named[1].lower(), named[2], named[3], event[1] or ""
    elif (parsed.name or parsed.nameless) and (described := _DESCRIBED_EVENT.match(rest)):
        if parsed.nameless and (pod := _OF_POD.search(described[2])):
            parsed.name = pod[1]
        kind, name, message, age = (
            "pod" if parsed.nameless or parsed.name in report.node_of else "node",
            parsed.name,
            described[2],
            described[1],
        )
    else:
        return
    report.add(kind, name, reason, message, _age(age))


def _take_controller(report: KubernetesReport, occurred: re.Match[str]) -> None:
    """An event that the controller of the cluster logs; ages go by the time of the year, which its lines tell."""
    clock_s = 0
    for digits, unit in zip(occurred.group(1, 2, 3, 4, 5), (31 * 86_400, 86_400, 3600, 60, 1), strict=True):
        clock_s += int(digits or 0) * unit
    namespace, name, kind, reason, message = occurred.group(6, 7, 8, 9, 10)
    if namespace == "kube-system" and kind == "Pod":
        return  # of no job
    report.add(kind.lower(), name, reason, message or "", -float(clock_s))
    report.by_controller = True


def _message(columns: str) -> str:
    """The last column of a condition, behind two dates and a reason."""
    return re.split(r"\s{2,40}", columns.strip())[-1]


def _age(text: str) -> float:
    return float(sum(int(number) * _SECONDS[unit] for number, unit in _AGE.findall(text)))
