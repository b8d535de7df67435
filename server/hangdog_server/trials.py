"""What machines were tested for and convicted of, by their names and by their parts, which move from machine to machine."""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import sqlalchemy as sa

from hangdog_server.tables import CONVICTIONS, PARTS, TESTS, storable

#: Names in one query: engines take a few thousand.
_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class Trial:
    """One test of one machine at `at` (Unix seconds), together with `others`."""

    machine: str
    at: float
    campaign: str
    level: int
    test: str
    outcome: str
    repetitions: int
    says: str
    others: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Conviction:
    """A machine, or a part that was in it then, was convicted by a campaign; `part` is empty for the machine as a whole."""

    machine: str
    part: str
    at: float
    campaign: str


@dataclass(frozen=True, slots=True)
class Past:
    """What is known of a machine: its tests, newest first, the parts in it, its convictions and those of these parts."""

    tests: tuple[Trial, ...]
    parts: tuple[str, ...]
    convictions: tuple[Conviction, ...]

    def alike(self) -> list[tuple[Trial, int]]:
        """Each test once, with how many of the same second say the same: a campaign launches a test that failed once more."""
        return list(Counter(replace(one, at=float(int(one.at))) for one in self.tests).items())

    def probation(self, lasts_s: float) -> float:
        """Unix time until which it is on probation; 0: it never was convicted."""
        return max((one.at + lasts_s for one in self.convictions), default=0.0) if lasts_s else 0.0


def of(connection: sa.Connection, name: str, limit: int) -> Past:
    """The past of the machine of that name, or of the one in which a part of that name was seen last."""
    name = storable(name)
    machine = connection.execute(sa.select(PARTS.c.machine).where(PARTS.c.part == name)).scalar() or name
    query = sa.select(TESTS).where(TESTS.c.machine == machine).order_by(TESTS.c.at.desc(), TESTS.c.id.desc())
    tests = tuple(
        Trial(
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
    return Past(tests, parts, _convictions(connection, [machine], parts))


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
