"""Reads what `kubectl get pods`, `nodes` and `events` give with `-o json`: the same as their texts, with the times of events."""

from collections.abc import Iterator, Mapping
from datetime import datetime

from hangdog_models.findings import Finding
from hangdog_models.reading.json_document import text_of
from hangdog_models.reading.limits import DEFAULTS, Limits
from hangdog_models.reading.logs.kubernetes_report import KubernetesReport

_KINDS = ("Pod", "Node", "Event")
_LISTS = ("List", *(f"{kind}List" for kind in _KINDS))
#: When an event was last seen, in the two versions of their interface; the first that is there counts.
_SEEN = ("lastTimestamp", "deprecatedLastTimestamp", "eventTime", "firstTimestamp", "deprecatedFirstTimestamp")


def recognises(document: object) -> bool:
    """Whether a JSON document is an object of Kubernetes that is read, or a list of some."""
    if not isinstance(document, dict) or not isinstance(document.get("apiVersion"), str):
        return False
    kind = document.get("kind")
    return kind in _KINDS or (kind in _LISTS and isinstance(document.get("items"), list))


def read(document: object, limits: Limits = DEFAULTS) -> tuple[Finding, ...]:
    """The findings of a document, one for each machine or pod and meaning."""
    items = list(_items(document))
    newest = max((at for item in items for at in _times(item)), default=0.0)
    report = KubernetesReport()
    for item in items:
        name = text_of(_table(item.get("metadata")).get("name"), limits)
        if item.get("kind") == "Event" or "involvedObject" in item or "regarding" in item:
            _event(report, item, newest, limits)
        elif item.get("kind") == "Node" or "nodeInfo" in _table(item.get("status")):
            _node(report, name, item, newest, limits)
        else:
            _pod(report, name, item, newest, limits)
    return tuple(report.findings())


def _items(document: object) -> Iterator[Mapping[str, object]]:
    """The objects of a list, which name their kind only in a list of several kinds; or the one that the document is."""
    listed = document.get("items") if isinstance(document, dict) else None
    kind = document.get("kind") if isinstance(document, dict) else None
    for item in listed if isinstance(listed, list) else [document]:
        if isinstance(item, dict):
            of_list = str(kind).removesuffix("List")
            yield item if "kind" in item or not of_list else {**item, "kind": of_list}


def _event(report: KubernetesReport, item: Mapping[str, object], newest: float, limits: Limits) -> None:
    about = _table(item.get("involvedObject") or item.get("regarding"))
    kind, name = text_of(about.get("kind"), limits).lower(), text_of(about.get("name"), limits)
    message = text_of(item.get("message") or item.get("note"), limits)
    at_s = _seen(item)
    if kind in ("pod", "node") and name:
        report.add(kind, name, text_of(item.get("reason"), limits), message, _age(at_s, newest), at_s)


def _node(report: KubernetesReport, name: str, item: Mapping[str, object], newest: float, limits: Limits) -> None:
    """The conditions hold now, whenever they began: so they are not timed."""
    for condition in _tables(_table(item.get("status")).get("conditions")):
        kind, state = text_of(condition.get("type"), limits), text_of(condition.get("status"), limits)
        report.add("condition", name, f"{kind}={state}", text_of(condition.get("message"), limits), 0.0)
        began = _seconds(condition.get("lastTransitionTime"))
        if (kind, state) == ("Ready", "True") and began is not None:
            report.was_ready(name, _age(began, newest))


def _pod(report: KubernetesReport, name: str, item: Mapping[str, object], newest: float, limits: Limits) -> None:
    status = _table(item.get("status"))
    node = text_of(_table(item.get("spec")).get("nodeName"), limits)
    if node:
        report.node_of[name] = node
    if reason := text_of(status.get("reason"), limits):
        report.add("pod", name, reason, text_of(status.get("message"), limits), 0.0)
    for container in (*_tables(status.get("initContainerStatuses")), *_tables(status.get("containerStatuses"))):
        for state in (_table(container.get("state")), _table(container.get("lastState"))):
            for part in (_table(state.get("waiting")), _table(state.get("terminated"))):
                at_s = _seconds(part.get("finishedAt"))
                reason = text_of(part.get("reason"), limits)
                if reason:
                    report.add("pod", name, reason, text_of(part.get("message"), limits), _age(at_s, newest), at_s)


def _times(item: Mapping[str, object]) -> Iterator[float]:
    """The times of an event, or those at which the conditions of a node changed."""
    stated = [_seen(item)]
    stated += [_seconds(one.get("lastTransitionTime")) for one in _tables(_table(item.get("status")).get("conditions"))]
    yield from (at for at in stated if at is not None)


def _seen(item: Mapping[str, object]) -> float | None:
    series = _seconds(_table(item.get("series")).get("lastObservedTime"))
    return (
        series
        if series is not None
        else next((at for key in _SEEN if (at := _seconds(item.get(key))) is not None), None)
    )


def _age(at_s: float | None, newest: float) -> float:
    return 0.0 if at_s is None else max(0.0, newest - at_s)


def _seconds(value: object) -> float | None:
    """Unix time of `2026-01-02T03:04:05Z`."""
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) and len(value) < 40 else None
        return moment.timestamp() if moment is not None and moment.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None


def _table(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _tables(value: object) -> list[Mapping[str, object]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
