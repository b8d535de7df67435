"""The page of an operations report: each figure with what it rests on, each tally as bars, and the machines."""

from datetime import UTC, datetime

from hangdog_models.operations.figure_text import cases, duration, rests, value
from hangdog_models.operations.report import OperationsReport
from hangdog_server.web.render import still_page


def operations_page(report: OperationsReport) -> str:
    """The page as one file, which runs nothing and asks nobody."""
    most = {one.key: max((count for _, count in one.counts), default=0) for one in report.tallies}
    return still_page(
        "operations.html",
        f"Operations, {_day(report.since)} to {_day(report.until)}",
        report=report,
        most=most,
        heaviest=max((one.weight for one in report.machines.listed), default=0.0),
        since=_minute(report.since),
        until=_minute(report.until),
        last=[_minute(one.last) for one in report.machines.listed],
        value=value,
        rests=rests,
        cases=cases,
        duration=duration,
    )


def _day(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d")


def _minute(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M UTC")
