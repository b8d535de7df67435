"""What machines were tested for and convicted of, by their names and by their parts, which move from machine to machine."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from hangdog_models.machine_history import Conviction, MachineTest, MachineTests
from hangdog_models.planning.campaign.launch import LaunchResult
from hangdog_models.reading.hardware.test_report import Diagnosed
from hangdog_server.store.tables import CONVICTIONS, PARTS, TESTS, storable

#: Names in one query: engines take a few thousand.
_AT_ONCE = 500
#: Tests forgotten in one transaction.
FORGOTTEN = 1000
#: Machines named beside a test that were tested with it.
OTHERS = 16


@dataclass(frozen=True, slots=True)
class LaunchResults:
    """What was launched by a campaign on machines together, and came out at `at` (Unix seconds)."""

    campaign: str
    test: str
    machines: tuple[str, ...]
    at: float

    def row(
        self, machine: str, outcome: str, says: str, test: str = "", level: int = 0, repetitions: int = 0
    ) -> dict[str, Any]:
        """What is kept of one test of one machine."""
        return {
            "machine": machine, "campaign": self.campaign, "at": self.at, "level": level, "test": test or self.test,
            "outcome": outcome, "repetitions": repetitions, "says": says,
            "others": [other for other in self.machines if other != machine][:OTHERS],
        }  # fmt: skip


def keep_report(connection: sa.Connection, launch: LaunchResults, machine: str, report: Diagnosed) -> None:
    """Keeps what a machine reported of a launch: its tests, and which parts are in it now."""
    tests = [
        launch.row(machine, one.outcome, one.says, f"{one.of}: {one.test}", one.level, one.repetitions)
        for one in report.tests
    ]
    _insert(connection, tests)
    if report.parts:
        found = sorted({storable(part) for part in report.parts.values()})
        connection.execute(PARTS.delete().where(sa.or_(PARTS.c.machine == machine, PARTS.c.part.in_(found))))
        connection.execute(PARTS.insert(), [{"part": part, "machine": machine, "at": launch.at} for part in found])


def keep_silence(connection: sa.Connection, launch: LaunchResults, silent: Mapping[str, str]) -> None:
    """Keeps of machines that reported nothing of a launch why they did not."""
    _insert(connection, [launch.row(machine, str(LaunchResult.INCONCLUSIVE), why) for machine, why in silent.items()])


def convict(connection: sa.Connection, campaign: str, machine: str, parts: Collection[str], at: float) -> None:
    """Keeps that a campaign convicts these parts of a machine; none: the machine as a whole."""
    rows = [{"campaign": campaign, "machine": machine, "part": part, "at": at} for part in parts or ("",)]
    connection.execute(CONVICTIONS.insert(), rows)


def forget(connection: sa.Connection, before: float) -> bool:
    """Removes some of the tests before that moment, and all parts and convictions; whether there may be more tests."""
    tests = sa.select(TESTS.c.id).where(TESTS.c.at < before).limit(FORGOTTEN)
    gone = connection.execute(TESTS.delete().where(TESTS.c.id.in_(tests))).rowcount
    connection.execute(PARTS.delete().where(PARTS.c.at < before))
    connection.execute(CONVICTIONS.delete().where(CONVICTIONS.c.at < before))
    return gone == FORGOTTEN


def blamed(report: Diagnosed) -> list[str]:
    """The parts of a machine that its failed tests name and that are known by more than their place in it."""
    names = [name for test in report.tests for one in test.blamed if one.sort == "device" for name in one.names]
    return sorted({storable(report.parts[name]) for name in names if name in report.parts})


def of(connection: sa.Connection, name: str, limit: int, probation_s: float = 0.0) -> MachineTests:
    """The past of the machine of that name, or of the one in which a part of that name was seen last.

    A conviction puts it on probation for `probation_s` seconds.
    """
    name = storable(name)
    machine = connection.execute(sa.select(PARTS.c.machine).where(PARTS.c.part == name)).scalar() or name
    query = sa.select(TESTS).where(TESTS.c.machine == machine).order_by(TESTS.c.at.desc(), TESTS.c.id.desc())
    tests = tuple(
        MachineTest(
            row.machine,
            row.at,
            row.campaign,
            row.level,
            row.test,
            row.outcome,
            row.repetitions,
            row.says,
            tuple(row.others),
        )
        for row in connection.execute(query.limit(limit))
    )
    parts = _parts(connection, [machine]).get(machine, ())
    convictions = _convictions(connection, [machine], parts)
    probation = max((one.at + probation_s for one in convictions), default=0.0) if probation_s else 0.0
    return MachineTests(tests, parts, convictions, probation)


@dataclass(frozen=True, slots=True)
class Offences:
    """What makes machines more suspicious than others: how often each name or part was convicted, and what is in each."""

    counts: Mapping[str, int]
    serials: Mapping[str, tuple[str, ...]]


def offences(connection: sa.Connection, machines: Collection[str], since: float) -> Offences:
    """The convictions since then (Unix seconds) of these machines and of the parts that are in them."""
    parts = _parts(connection, machines)
    of_them = _convictions(connection, machines, [part for each in parts.values() for part in each])
    counts: dict[str, int] = {}
    for one in {(one.campaign, one.part or one.machine) for one in of_them if one.at >= since}:
        counts[one[1]] = counts.get(one[1], 0) + 1
    return Offences(counts, {machine: (machine, *parts.get(machine, ())) for machine in machines})


def fit(
    connection: sa.Connection, machines: Collection[str], convicted_since: float, tested_since: float | None
) -> frozenset[str]:
    """Those that can stand in for others: not convicted since then, as a whole or by a part; where asked, tested and passed since.

    Both are Unix seconds; of tests on it since then one passed and none failed.
    """
    past = offences(connection, machines, convicted_since)
    left = frozenset(machine for machine, names in past.serials.items() if not past.counts.keys() & {*names})
    if tested_since is None:
        return left
    outcomes: dict[str, set[str]] = {}
    for names in _portions(left):
        query = sa.select(TESTS.c.machine, TESTS.c.outcome).where(
            TESTS.c.machine.in_(names), TESTS.c.at >= tested_since
        )
        for row in connection.execute(query):
            outcomes.setdefault(row.machine, set()).add(row.outcome)
    return frozenset(
        machine for machine in left if "pass" in (had := outcomes.get(machine, set())) and "fail" not in had
    )


def _insert(connection: sa.Connection, tests: list[dict[str, Any]]) -> None:
    if tests:
        connection.execute(TESTS.insert(), tests)


def _parts(connection: sa.Connection, machines: Collection[str]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for names in _portions(machines):
        query = sa.select(PARTS).where(PARTS.c.machine.in_(names)).order_by(PARTS.c.part)
        for row in connection.execute(query):
            found[row.machine] = (*found.get(row.machine, ()), row.part)
    return found


def _convictions(
    connection: sa.Connection, machines: Collection[str], parts: Collection[str]
) -> tuple[Conviction, ...]:
    """Those of the machines as a whole, and those of the parts wherever they were then; newest first."""
    found = set()
    for names in _portions(machines):
        whole = sa.and_(CONVICTIONS.c.machine.in_(names), CONVICTIONS.c.part == "")
        found |= set(connection.execute(sa.select(CONVICTIONS).where(whole)).all())
    for names in _portions(parts):
        found |= set(connection.execute(sa.select(CONVICTIONS).where(CONVICTIONS.c.part.in_(names))).all())
    rows = sorted(found, key=lambda row: (-row.at, row.campaign, row.part))
    return tuple(Conviction(row.machine, row.part, row.at, row.campaign) for row in rows)


def _portions(names: Collection[str]) -> list[list[str]]:
    listed = sorted(map(storable, names))
    return [listed[at : at + _AT_ONCE] for at in range(0, len(listed), _AT_ONCE)]
