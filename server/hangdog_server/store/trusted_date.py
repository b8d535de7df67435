"""How far the date is believed: what is removed for its age is old by a clock that was seen to run, not by one that jumped.

A clock that jumps forward by a year would make all that is kept a year old at once. So the store remembers how far time is
known to have come. The date moves it on as far as the machine's steady clock has run meanwhile, across restarts of the
server, too. Across a restart of the machine a day is believed. What is beyond waits until it has held for a week of running,
or until a person says that it is right.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from hangdog_server.store.tables import DATES
from hangdog_server.store.transactions import Transactions

#: What a date that is set right may move at once, while the machine runs: more than NTP steps by, little beside a month.
STEP_S = 600.0
#: How long a machine may have been off without a question: a night, a repair.
DOWN_S = 86400.0
#: A new date that held for so long of running is believed by itself: over a week somebody has seen a wrong one.
HELD_S = 7 * 86400.0
_BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class ClockRun:
    """The machine's start, by name, and the seconds since then; no date has a part in it."""

    boot: str
    up_s: float


@dataclass(frozen=True, slots=True)
class Believed:
    """`at` is how far time is believed to have come (Unix seconds); the date is `ahead_s` beyond, 0 where it is believed.

    `left_s`: so much longer has the server to run until the date is believed all the same.
    """

    at: float
    ahead_s: float = 0.0
    left_s: float = 0.0


def running() -> ClockRun:
    """The run of this machine."""
    try:
        boot = _BOOT.read_text("ascii").strip()
    except OSError:
        boot = ""
    return ClockRun(boot, time.clock_gettime(time.CLOCK_BOOTTIME))


async def believed(
    store: Transactions, clock: Callable[[], float], run: Callable[[], ClockRun] | None = None
) -> Believed:
    """How far time has come by the store, which remembers it; `clock` gives the date in Unix seconds. Raises StoreFailed."""
    now, here = clock(), (run or running)()

    def noted(connection: sa.Connection) -> Believed:
        store.one_at_a_time(connection, "dates")
        return _noted(connection, now, here)

    return await store.do(noted)


async def trust(store: Transactions, now: float) -> None:
    """A person says that the date is right, whatever was believed before. Raises StoreFailed."""

    def trusted(connection: sa.Connection) -> None:
        store.one_at_a_time(connection, "dates")
        _write(connection, now, running(), 0.0, 0.0)

    await store.do(trusted)


def _noted(connection: sa.Connection, now: float, run: ClockRun) -> Believed:
    row = connection.execute(sa.select(DATES)).first()
    if row is None:  # the first server upon a new store: there is nothing in it that could be removed
        _write(connection, now, run, 0.0, 0.0)
        return Believed(now)
    same = bool(run.boot) and row.boot == run.boot and run.up_s >= row.up_s
    ran = run.up_s - row.up_s if same else 0.0
    if now <= row.believed + ran + (STEP_S if same else DOWN_S):
        # a date that went back is taken as it is, for it makes nothing old; how far time had come is not forgotten
        _write(connection, max(now, row.believed), run, 0.0, 0.0)
        return Believed(now)
    at = row.believed + ran
    gap = now - at
    held = row.held_s + ran if abs(gap - row.gap_s) <= STEP_S else 0.0
    if held >= HELD_S:
        _write(connection, now, run, 0.0, 0.0)
        return Believed(now)
    _write(connection, at, run, gap, held)
    return Believed(at, gap, HELD_S - held)


def _write(connection: sa.Connection, at: float, run: ClockRun, gap_s: float, held_s: float) -> None:
    row = {"believed": at, "boot": run.boot, "up_s": run.up_s, "gap_s": gap_s, "held_s": held_s}
    if not connection.execute(DATES.update().values(row)).rowcount:
        connection.execute(DATES.insert().values(id=1, **row))
