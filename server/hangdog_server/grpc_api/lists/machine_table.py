"""All machines as lines of a list, put together in a thread of their own, and again only as far as something changed.

There may be 16,384: what goes over all of them would keep agents waiting, were it done on the event loop.
"""

import asyncio
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from hangdog_models.findings import Finding
from hangdog_models.lists.list_page import ListEntry, ListPage, page_of
from hangdog_models.lists.list_query import ListQuery
from hangdog_models.lists.machine_now import MachineCondition, MachineNow, badness, states_of
from hangdog_models.machine_history import MachineRecord
from hangdog_models.views.answer_text import RECENT_S
from hangdog_server.actions.machine_states import machine_states
from hangdog_server.cluster.connection import Connection, PastConnection
from hangdog_server.cluster.fleet import Fleet
from hangdog_server.etag import digest
from hangdog_server.incidents.round_capture import steady
from hangdog_server.protocol.jobs import AnnouncedJob
from hangdog_server.store import machine_history
from hangdog_server.store.lists import accused_machines, action_list
from hangdog_server.store.store import Store
from hangdog_server.store.store_errors import StoreFailed

#: Who fell silent is seen within so long; all else at once. Seconds.
SILENT_SEEN_S = 1.0
#: Where agents come and go all the time a long table would be made all the time: it rests for so many times as long as that
#: took, but not longer than SILENT_SEEN_S, and a short one not at all (seconds).
REST, SHORT_S = 4.0, 0.02
#: Verdicts age: whom they still accuse is asked anew after so long. Seconds.
AGED_S = 60.0
#: Machines of the ledger that are listed; a fleet has fewer.
REMEMBERED = 100_000
_SORTS: dict[str, Callable[[MachineNow], Any]] = {
    "worst": badness,
    "name": lambda one: one.name,
    "convicted": lambda one: (-one.convicted, one.name),
    "suspected": lambda one: (-one.suspected, one.name),
    "weight": lambda one: (-one.weight, one.name),
    "last": lambda one: (-one.last, one.name),
}


#: What stands for the agent, and for the record, of a machine that has none.
_NOBODY, _UNNAMED = PastConnection("", "", 0.0, {}, False), MachineRecord("")


class _LineParts(NamedTuple):
    """What a line was made of: the same objects make the same line."""

    jobs: Mapping[str, AnnouncedJob]
    findings: tuple[Finding, ...]
    here: MachineCondition
    version: str
    record: MachineRecord
    state: str
    accused: bool
    marked: bool


@dataclass(frozen=True, slots=True)
class Remembered:
    """What the store says of machines: their records, whom verdicts accuse, where marks stand, what is decided."""

    records: Mapping[str, MachineRecord] = field(default_factory=dict)
    accused: frozenset[str] = frozenset()
    marked: frozenset[str] = frozenset()
    decided: Mapping[str, str] = field(default_factory=dict)


class MachineTable:
    """The lines; one thread works on them, so that the event loop has at most one to share its turns with."""

    def __init__(self, fleet: Fleet, store: Store) -> None:
        self._fleet = fleet
        self._store = store
        self._thread = ThreadPoolExecutor(1, "lists")
        self._lock = asyncio.Lock()
        self._known: dict[str, _LineParts] = {}
        self._lines: dict[str, ListEntry[MachineNow]] = {}
        self._checks: dict[str, int] = {}
        self._keys: dict[str, dict[str, Any]] = {}
        self._names: dict[str, list[str]] = {}
        self._fresh: set[str] = set()
        self._made, self._rest_s = float("-inf"), 0.0
        self._remembered = Remembered()
        self._made_of = -1, self._remembered
        self._asked: tuple[object, ...] = ()

    async def page(self, query: ListQuery, now: float, without_store: bool = False) -> ListPage[MachineNow]:
        """The page that is asked for at `now` (Unix seconds); raises StoreFailed, but `without_store`."""
        async with self._lock:
            await self._look(now, without_store)
            found = await asyncio.get_running_loop().run_in_executor(self._thread, self._page, query)
        return found.with_rows([self._spoken(one) for one in found.rows])

    async def mark(self, now: float, machine: str = "") -> str:
        """Another once the list would show something else, or the line of one machine; raises StoreFailed."""
        async with self._lock:
            await self._look(now, False)
            if machine:
                line = self._lines.get(machine)
                return digest(line.row) if line is not None else ""
            return digest(len(self._lines), sum(self._checks.values()))

    def close(self) -> None:
        """Ends the thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _look(self, now: float, without_store: bool) -> None:
        try:
            await self._remember(now)
        except StoreFailed:
            if not without_store:
                raise
        clock, made_of = steady(), (self._fleet.changes, self._remembered)
        same = made_of[1] is self._made_of[1]
        wanted_s = SILENT_SEEN_S if made_of[0] == self._made_of[0] else self._rest_s
        if same and clock - self._made < wanted_s:
            return
        here, left = self._fleet.seen(clock)
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._thread, self._make, here, left, clock, self._remembered, same)
        self._made_of, self._made = made_of, steady()
        took_s = self._made - clock
        self._rest_s = min(REST * took_s, SILENT_SEEN_S) if took_s > SHORT_S else 0.0

    async def _remember(self, now: float) -> None:
        store = self._store
        asked = (
            await store.ask(accused_machines.changes), await store.ask(action_list.changes), now // AGED_S,
        )  # fmt: skip
        if asked == self._asked:
            return
        worst = await store.ask(machine_history.worst, 0.0, REMEMBERED)
        accused = await store.ask(accused_machines.accused, now - RECENT_S)
        marked, decided = await store.ask(accused_machines.marked), await machine_states(store, now)
        self._remembered = Remembered({one.machine: one for one in worst}, accused, marked, decided)
        self._asked = asked

    def _make(
        self, here: Sequence[Connection], left: Sequence[PastConnection], clock: float, of: Remembered, same: bool
    ) -> None:
        """In the thread: makes the lines anew that are not what they were; `same`: the store says what it said before."""
        known = self._known
        for name, how, seen in _present(here, left, of, clock):
            last = known.get(name)
            if same and last is not None and last[0] is seen.jobs and last[1] is seen.findings and last[2] is how:
                continue
            made_of = _LineParts(
                seen.jobs, seen.findings, how, seen.version, of.records.get(name, _UNNAMED), of.decided.get(name, ""),
                name in of.accused, name in of.marked,
            )  # fmt: skip
            if last is None or last[0] is not made_of[0] or last[1] is not made_of[1] or last[2:] != made_of[2:]:
                line = _line(name, made_of)
                self._forget(name)
                self._lines[name], self._checks[name] = line, zlib.crc32(repr(line.row).encode("utf-8", "replace"))
            known[name] = made_of
        names = {one.machine for one in here} | {one.machine for one in left} | of.records.keys() | of.decided.keys()
        for name in known.keys() - names:
            self._forget(name)
            del known[name], self._lines[name], self._checks[name]

    def _forget(self, name: str) -> None:
        """A line is not where it was in any order."""
        self._fresh.add(name)
        for keys in self._keys.values():
            keys.pop(name, None)

    def _page(self, query: ListQuery) -> ListPage[MachineNow]:
        """In the thread: lines that did not change keep their keys and their order, which makes sorting them quick."""
        if self._fresh:
            self._fresh.clear()
            for sort, names in self._names.items():
                self._names[sort] = self._sorted(sort, names)
        sort, _ = query.order
        if sort not in self._names:
            self._names[sort] = self._sorted(sort, [])
        return page_of([self._lines[name] for name in self._names[sort]], query)

    def _sorted(self, sort: str, before: list[str]) -> list[str]:
        keys = self._keys.setdefault(sort, {})
        for name in self._lines.keys() - keys.keys():
            keys[name] = _SORTS[sort](self._lines[name].row)
        names = [name for name in before if name in keys]
        names += keys.keys() - set(names)
        return sorted(names, key=keys.__getitem__)

    def _spoken(self, row: MachineNow) -> MachineNow:
        seen = self._fleet.machine(row.name)
        silent = max(0.0, steady() - seen.last_message) if seen is not None else None
        return replace(row, silent_s=silent)


def _present(
    here: Iterable[Connection], left: Iterable[PastConnection], of: Remembered, clock: float
) -> Iterator[tuple[str, MachineCondition, Connection | PastConnection]]:
    """Every machine once, by the agent that speaks for it, or did; behind them those that the store alone knows."""
    names = set[str]()
    for one in here:
        names.add(one.machine)
        yield one.machine, MachineCondition.SILENT if one.silent_s(clock) else MachineCondition.CONNECTED, one
    for seen in left:
        names.add(seen.machine)
        yield seen.machine, MachineCondition.STOPPED if seen.stopped else MachineCondition.LOST, seen
    for name in (of.records.keys() | of.decided.keys()) - names:
        yield name, MachineCondition.ABSENT, _NOBODY


def _line(name: str, of: _LineParts) -> ListEntry[MachineNow]:
    findings = tuple(f"{one.code}: {one.what}" for one in of.findings)
    states = states_of(of.here, of.record, of.accused, of.marked, bool(findings))
    connected = of.here in (MachineCondition.CONNECTED, MachineCondition.SILENT)
    record, jobs = of.record, tuple(of.jobs)
    row = MachineNow(
        name, connected, None, of.version, jobs, findings, record.convicted, record.suspected, record.cleared,
        record.weight, record.last, of.state, states,
    )  # fmt: skip
    return ListEntry(row, "\n".join((name, *jobs, of.state, *findings, of.version)).lower(), states, jobs)
