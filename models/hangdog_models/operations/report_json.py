"""The report as a JSON document (`hangdog.report/1`), and back."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from hangdog_models.operations.report import (
    Figure,
    Machines,
    Offender,
    OperationsReport,
    ReportTable,
    Trained,
    Training,
    Unit,
)

SCHEMA = "hangdog.report/1"
#: Digits kept: milliseconds, and thousandths of a share.
_DIGITS = 3


def to_json(report: OperationsReport) -> dict[str, Any]:
    """The report as JSON; times in ISO 8601 (UTC), what is not known is null and says why."""
    return {
        "schema": SCHEMA,
        "since": _utc(report.since),
        "until": _utc(report.until),
        "basis": report.basis,
        "figures": {one.key: _figure(one) for one in report.figures},
        "tallies": {
            one.key: {
                "title": one.title, "definition": one.definition, "of": one.of, "total": one.total,
                "counts": dict(one.counts), "unknown": one.unknown or None,
            }
            for one in report.tallies
        },
        "machines": {
            "definition": report.machines.definition,
            "named": report.machines.named,
            "listed": [_offender(one) for one in report.machines.listed],
        },
        "jobs": {
            "definition": report.training.definition,
            "seen": report.training.seen,
            "known": report.training.known,
            "listed": [_trained(one) for one in report.training.listed],
        },
        "notes": list(report.notes),
    }  # fmt: skip


def from_json(document: Mapping[str, Any]) -> OperationsReport:
    """Reads back what `to_json` wrote, up to its rounding; raises KeyError, TypeError, AttributeError or ValueError on
    anything else."""
    if document["schema"] != SCHEMA:
        raise ValueError(f"{document['schema']!r} is not {SCHEMA}")
    machines = document["machines"]
    jobs = document.get("jobs")  # a server of before knows of none
    return OperationsReport(
        _moment(document["since"]),
        _moment(document["until"]),
        str(document["basis"]),
        tuple(_figure_of(key, one) for key, one in document["figures"].items()),
        tuple(
            ReportTable(
                key, str(one["title"]), str(one["of"]), str(one["definition"]),
                tuple((label, int(count)) for label, count in one["counts"].items()), str(one["unknown"] or ""),
            )
            for key, one in document["tallies"].items()
        ),
        Machines(
            str(machines["definition"]), int(machines["named"]), tuple(_offender_of(one) for one in machines["listed"])
        ),
        tuple(map(str, document["notes"])),
        Training() if jobs is None else Training(
            str(jobs["definition"]), str(jobs["seen"]), int(jobs["known"]), tuple(map(_trained_of, jobs["listed"]))
        ),
    )  # fmt: skip


def _figure(one: Figure) -> dict[str, Any]:
    times = {"median": _rounded(one.median), "longest": _rounded(one.longest)} if one.unit is Unit.SECONDS else {}
    return {
        "title": one.title, "unit": str(one.unit), "value": _rounded(one.value), **times, "count": one.count,
        "of": one.of, "definition": one.definition, "unknown": one.unknown or None,
    }  # fmt: skip


def _figure_of(key: str, one: Mapping[str, Any]) -> Figure:
    return Figure(
        key, str(one["title"]), Unit(one["unit"]), _number(one["value"]), int(one["count"]), str(one["of"]),
        str(one["definition"]), str(one["unknown"] or ""), _number(one.get("median")), _number(one.get("longest")),
    )  # fmt: skip


def _offender(one: Offender) -> dict[str, Any]:
    return {
        "machine": one.machine, "lemon": one.lemon, "convicted": one.convicted, "suspected": one.suspected,
        "cleared": one.cleared, "weight": _rounded(one.weight), "last": _utc(one.last),
    }  # fmt: skip


def _offender_of(one: Mapping[str, Any]) -> Offender:
    return Offender(
        str(one["machine"]), int(one["convicted"]), int(one["suspected"]), int(one["cleared"]), float(one["weight"]),
        _moment(one["last"]), one["lemon"] is True,
    )  # fmt: skip


def _trained(one: Trained) -> dict[str, Any]:
    return {
        "job": one.job, "ettr": _rounded(one.share), "known_s": _rounded(one.watched), "lost_s": _rounded(one.lost),
        "failures": one.failures, "restarts": one.restarts,
    }  # fmt: skip


def _trained_of(one: Mapping[str, Any]) -> Trained:
    return Trained(
        str(one["job"]), float(one["known_s"]), float(one["lost_s"]), int(one["failures"]), int(one["restarts"])
    )


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, _DIGITS)


def _utc(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="seconds")


def _moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
