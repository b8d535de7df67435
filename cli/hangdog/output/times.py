"""Moments as people and programs read them: the time of day here with its zone, and the same in UTC."""

from datetime import UTC, datetime


def local_time(unix_s: float) -> str:
    """A Unix time as the local time of day, to the second, with its zone: `2026-11-26 04:12:05 CET`."""
    return datetime.fromtimestamp(unix_s, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")


def utc(unix_s: float) -> str:
    """A Unix time in ISO 8601, UTC."""
    return datetime.fromtimestamp(unix_s, UTC).isoformat(timespec="seconds")


def ago(seconds: float) -> str:
    """A span in the one unit that says it best: `4 s`, `12 min`, `3 h`, `5 d`."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
