"""Moments and spans as pages write them, and as programs read them."""

from datetime import UTC, datetime


def utc(moment: float) -> str:
    """A Unix time for people, to the second."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def ago(seconds: float) -> str:
    """A span in the one unit that says it best: `4 s`, `12 min`, `3 h`, `5 d`."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"
