"""Reads logs that a log service or journald exported as JSON: the lines as they were written, by the host or pod that wrote them.

A list of records, one record a line, or a list inside an object, as CloudWatch (`events`), Google Cloud (a list), Loki
(`logcli -o jsonl`, and the API's `streams`), Elasticsearch (`hits`), Splunk (`result`) and `journalctl -o json` write them. The
names of the fields are those of their documentation in 2026.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.reading.json_document import read_json
from hangdog_models.reading.limits import DEFAULTS, Limits

#: Fields of a record that hold the line, the time, the machine and the process.
_LINE = ("MESSAGE", "message", "textPayload", "line", "_raw", "msg", "log")
_AT = ("__REALTIME_TIMESTAMP", "timestamp", "@timestamp", "time", "_time", "ts")
_HOST = ("_HOSTNAME", "hostname", "host", "node", "node_name", "nodename", "instance")
_POD = ("pod_name", "pod", "podname", "container_name", "logStreamName", "logStream")
#: Where records and labels lie in an object.
_LISTS = ("events", "hits", "entries", "results", "logs", "streams", "records")
_INSIDE = (
    "_source",
    "result",
    "labels",
    "stream",
    "resource",
    "kubernetes",
    "metadata",
    "jsonPayload",
    "host",
    "agent",
)
#: What only other documents hold: stacks, and dumps of recorders.
_FOREIGN = ('"frames"', '"pg_config"', '"threads"', '"apiVersion"', '"schema"')
#: A record of ours, of Docker's, of Ray's events and of Kubernetes' has these: other readers know them better.
_OTHERS = frozenset({"apiVersion", "kind", "items", "pg_config", "schema", "custom_fields"})
_DOCKER = frozenset({"log", "stream", "time"})
#: The share of records that must hold a line.
_SHARE = 0.8
_LEVELS_DEEP = 4
_WORD = re.compile(r"[A-Za-z0-9][\w.-]{0,252}")
_ISO, _UTC = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d"), re.compile(r"(?:Z|[+-]00:?00)$")
#: Units of a time that is a number: the first that gives a date of this century. Seconds, milliseconds, and so on.
_UNITS = (1.0, 1e3, 1e6, 1e9)
_FIRST_S, _LAST_S = 946684800.0, 4102444800.0


@dataclass(frozen=True, slots=True)
class ExportedLog:
    """The lines of one machine or pod; `host` and `pod` are empty where no record names them."""

    host: str
    pod: str
    text: str


def recognises(head: str) -> bool:
    """Whether a text may be such an export: it names a field of a line."""
    if head.lstrip()[:1] not in ("{", "[") or any(mark in head for mark in _FOREIGN):
        return False
    return any(f'"{name}"' in head for name in _LINE)


def read(text: str, limits: Limits = DEFAULTS) -> tuple[ExportedLog, ...]:
    """The logs in an export, in the order of their first lines; empty where it is none, or not surely."""
    try:
        records = list(_records(text, limits))
    except (UnreadableEvidence, ValueError, RecursionError):
        return ()
    printed: dict[tuple[str, str], list[str]] = {}
    lines = 0
    for record in records:
        line = _first(record, _LINE)
        if line is None:
            continue
        lines += 1
        host, pod = _name(record, _HOST), _name(record, _POD)
        printed.setdefault((host, pod), []).append(_written(record, line, host))
    if not lines or lines < _SHARE * len(records):
        return ()
    return tuple(ExportedLog(host, pod, "\n".join(of) + "\n") for (host, pod), of in printed.items())


def _records(text: str, limits: Limits) -> Iterator[Mapping[str, object]]:
    try:
        document = read_json(text, limits)
    except UnreadableEvidence:
        document = None
    if document is not None:
        yield from _found_in(document, 0)
        return
    for line in text.split("\n")[: limits.values]:
        if line.strip():
            yield from _found_in(read_json(line, limits), 0)


def _found_in(document: object, level: int) -> Iterator[Mapping[str, object]]:
    if level > _LEVELS_DEEP:
        return
    if isinstance(document, list):
        for one in document:
            yield from _found_in(one, level + 1)
    elif isinstance(document, dict):
        if _OTHERS & document.keys() or document.keys() >= _DOCKER:
            raise ValueError("another reader's")
        inside = [document[name] for name in _LISTS if isinstance(document.get(name), (list, dict))]
        data = document.get("data")
        if isinstance(data, dict) and isinstance(data.get("result"), list):
            inside.append(data["result"])
        if isinstance(document.get("values"), list) and isinstance(document.get("stream"), dict):
            for pair in document["values"]:  # Loki's API: [nanoseconds, line]
                if isinstance(pair, list) and len(pair) > 1:
                    yield {"ts": pair[0], "line": pair[1], "labels": document["stream"]}
        elif inside:
            for one in inside:
                yield from _found_in(one, level + 1)
        else:
            yield document


def _first(record: Mapping[str, object], names: tuple[str, ...], level: int = 0) -> str | None:
    """The first text of one of these names, in the record or in what it holds."""
    for name in names:
        if isinstance(value := record.get(name), str):
            return value
    for name in _INSIDE if level < 2 else ():
        if isinstance(inside := record.get(name), dict) and (found := _first(inside, names, level + 1)) is not None:
            return found
    return None


def _name(record: Mapping[str, object], names: tuple[str, ...]) -> str:
    """A host's or a pod's name; empty where there is none, or it is no name."""
    found = _first(record, names) or ""
    if not found and isinstance(host := record.get("host"), dict) and isinstance(host.get("name"), str):
        found = host["name"]
    return found if _WORD.fullmatch(found) else ""


def _written(record: Mapping[str, object], line: str, host: str) -> str:
    """The line as a log would have it, after its time; one of the kernel as the journal writes it."""
    line = line.replace("\r\n", "\n").rstrip("\n")
    at = _time(record)
    if record.get("_TRANSPORT") == "kernel" or record.get("SYSLOG_IDENTIFIER") == "kernel":
        return f"{at or '2000-01-01T00:00:00+0000'} {host or 'localhost'} kernel: {line}" if at or host else line
    # each line of a stack would have a time of its own, and the first tells it
    return f"{at} {line}" if at and "\n" not in line else line


def _time(record: Mapping[str, object]) -> str:
    """ISO 8601 in UTC; empty where no field tells a time."""
    inside = [one for name in _INSIDE if isinstance(one := record.get(name), dict)]
    values = (one[name] for one in (record, *inside) for name in _AT if name in one)
    return next(filter(None, map(_as_time, values)), "")


def _as_time(value: object) -> str:
    if isinstance(value, str) and re.fullmatch(r"\d{9,20}", value):
        value = int(value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        seconds = next((value / unit for unit in _UNITS if _FIRST_S <= value / unit <= _LAST_S), None)
        return "" if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    if not isinstance(value, str) or not _ISO.match(value):
        return ""
    return f"{value[:19]}Z" if _UTC.search(value) else value[:40]
