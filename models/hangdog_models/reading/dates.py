"""Dates as tools and logs write them, with English months; without a zone they are taken as if they were UTC.

dateutil would guess: it takes what a date lacks, as syslog's lacks the year, from today's date. Here no date is the answer.
"""

import re
from datetime import UTC, datetime, timedelta, timezone

#: A year with a 29 February, in which dates without a year are put to compare them with each other.
SOME_YEAR = 1972
#: Lines at the end of a log that are read for its clock, should the very last be cut or another program's.
LAST_LINES = 20
_MONTHS = {
    name: at
    for at, name in enumerate(["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"], 1)
}
_WRITTEN_OUT = re.compile(
    r"(?:[^\s\d]{1,8} )?([^\s\d]{3,9})\s{1,2}(\d{1,2}) (\d{1,2}):(\d\d):(\d\d) (?:[A-Z]{3,5} )?(\d{4})"
)


def last_lines(text: str) -> list[str]:
    """The lines at the end of a log that are read for its clock."""
    return text.rstrip().rsplit("\n", LAST_LINES)[-LAST_LINES:]


def written_out(text: str) -> float | None:
    """Unix time of `Wed Jul 31 11:22:39 2024`, as `date`, `dmesg -T` and nvidia-smi write it; None where it is none."""
    date = _WRITTEN_OUT.fullmatch(text.strip())
    return moment(int(date[6]), month_of(date[1]), date[2], date[3], date[4], date[5]) if date else None


def month_of(name: str) -> int | None:
    """The number of a month by its English name or abbreviation; None for any other word."""
    return _MONTHS.get(name[:3].lower())


def moment(
    year: int, month: int | None, day: str, hour: str, minute: str, second: str, zone: str | None = None
) -> float | None:
    """Unix time of a date, None where there is no such date."""
    offset = UTC
    try:
        if zone and zone not in ("Z", "UTC"):
            digits = zone[1:].replace(":", "")
            minutes = int(digits[:2]) * 60 + int(digits[2:])
            offset = timezone(timedelta(minutes=-minutes if zone[0] == "-" else minutes))
        return datetime(year, month or 0, int(day), int(hour), int(minute), int(second), tzinfo=offset).timestamp()
    except (ValueError, OverflowError):
        return None
