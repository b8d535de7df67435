"""A clock that jumps forward makes nothing old: what is removed for its age is old by a clock that was seen to run."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import sqlalchemy as sa

from hangdog_models.incident import Incident
from hangdog_models.ranks import Rank
from hangdog_models.snapshot import Job, Round, Snapshot
from hangdog_models.topology import Topology
from hangdog_server.auth.tokens import Role, new, read
from hangdog_server.cluster.fleet import Fleet
from hangdog_server.cluster.leadership import Leading
from hangdog_server.cluster.session_tracker import SessionTracker
from hangdog_server.incidents.incident_run import IncidentServices
from hangdog_server.incidents.session_writer import SessionWriter
from hangdog_server.notifications.notify_config import Subjects
from hangdog_server.settings import ServerSettings
from hangdog_server.store import sessions as lives
from hangdog_server.store import trusted_date
from hangdog_server.store.captures import RawCapture
from hangdog_server.store.retention import Retention
from hangdog_server.store.store import Store
from hangdog_server.store.tables import SESSIONS
from hangdog_server.store.trusted_date import HELD_S, STEP_S, ClockRun, believed
from support.cases.old_store import BEFORE_0013
from support.real import stepped
from support.servers.cast import NOON, PATIENT, verdict
from support.servers.notified import watched

pytestmark = pytest.mark.parallel  # its slow tests measure no time

DAY, YEAR = 86400.0, 365 * 86400.0
JUDGED = verdict(Snapshot(Job("llama"), (Round(0, ()),)), Topology(1, {}, {"a": (Rank(0),)}))


class Time:
    """A date, and the machine's steady clock beside it."""

    def __init__(self) -> None:
        self.date, self.up_s, self.boot = NOON, 1000.0, "first"

    def clock(self) -> float:
        return self.date

    def run(self) -> ClockRun:
        return ClockRun(self.boot, self.up_s)

    def passes(self, seconds: float) -> None:
        self.date += seconds
        self.up_s += seconds

    def reboots(self, off_s: float) -> None:
        self.date += off_s
        self.up_s, self.boot = 5.0, f"{self.boot} again"

    async def prune(self, store: Store) -> None:
        await Retention(store, ServerSettings(), self.clock, self.run).once()

    async def ahead(self, store: Store) -> float:
        return (await believed(store, self.clock, self.run)).ahead_s


async def ended(store: Store, name: str, at: float) -> None:
    await store.begin(Incident(name, "llama", at), {"light": False})
    await store.keep(name, [RawCapture("a", 0, os.urandom(10))])
    await store.judged(name, JUDGED, at)


async def left(store: Store) -> dict[str, int]:
    return {line.id: len((await store.recall(line.id))[1]) for line in await store.latest("", 100)}


async def test_a_jump_of_a_running_server_removes_nothing_and_is_said(
    where: Path | str, caplog: pytest.LogCaptureFixture
) -> None:
    store, at = Store(where), Time()
    await at.prune(store)
    await ended(store, "0a", NOON)
    at.passes(600)
    at.date += 2 * YEAR
    retention = Retention(store, ServerSettings(), at.clock, at.run)
    for _ in range(3):
        await retention.once()
        at.passes(600)
    assert await left(store) == {"0a": 1}
    assert caplog.text.count("730.0 days ahead") == 1
    assert "correct it" in caplog.text and "--trust-date" in caplog.text
    store.close()


@pytest.mark.parametrize("reboots", [False, True])
async def test_a_jump_while_no_server_ran_removes_nothing(where: Path | str, reboots: bool) -> None:
    store, at = Store(where), Time()
    await at.prune(store)
    await ended(store, "0a", NOON)
    store.close()
    at.passes(600)
    if reboots:
        at.reboots(120)
    at.date += 2 * YEAR
    store = Store(where)
    await at.prune(store)
    assert await left(store) == {"0a": 1}
    store.close()


async def test_time_that_passes_makes_old_across_restarts_and_nights(where: Path | str) -> None:
    """The bound is kept as before where no clock jumps, else nothing would ever go."""
    store, at = Store(where), Time()
    await at.prune(store)
    await ended(store, "0a", NOON)
    for _ in range(29):
        at.passes(DAY)
        await at.prune(store)
    assert await left(store) == {"0a": 1}
    store.close()
    at.passes(DAY / 2)  # the server is away, its machine is not
    store = Store(where)
    await at.prune(store)
    assert await left(store) == {"0a": 1}
    store.close()
    at.reboots(0.75 * DAY)
    store = Store(where)
    await at.prune(store)
    assert await left(store) == {"0a": 0}
    store.close()


async def test_what_becomes_old_after_a_jump_does_so_by_the_time_that_passes(where: Path | str) -> None:
    store, at = Store(where), Time()
    await at.prune(store)
    await ended(store, "0a", NOON)
    at.date += YEAR
    for day in range(3):
        await at.prune(store)
        assert (await believed(store, at.clock, at.run)).at == NOON + day * DAY
        at.passes(DAY)
    store.close()


async def test_a_date_that_holds_for_a_week_of_running_is_believed_and_one_that_wavers_is_not(
    where: Path | str,
) -> None:
    store, at = Store(where), Time()
    assert not await at.ahead(store)
    at.date += YEAR
    held = 0.0
    while held < HELD_S:
        assert await at.ahead(store) > YEAR - DAY
        at.passes(DAY)
        held += DAY
    assert not await at.ahead(store)
    at.date += YEAR
    for _ in range(20):
        at.passes(DAY)
        at.date += 2 * STEP_S  # it runs too fast: no such date has held
        assert await at.ahead(store)
    store.close()


async def test_no_other_watch_removes_by_a_date_that_jumped(where: Path | str) -> None:
    """Sessions of jobs, messages to people and campaigns, as each is asked to forget."""
    store = Store(where)
    now = NOON
    await believed(store, lambda: now)
    old = lives.SessionRow("s", "llama", NOON - 5, NOON, True, lives.SessionState.ENDED, ())
    await store.write_of("llama", lives.write, old)
    means = IncidentServices(Fleet(PATIENT), store, lambda *given: JUDGED, lambda: now)
    now += 2 * YEAR
    living = SessionWriter(means, SessionTracker(60.0), Leading(store, means.fleet, PATIENT), PATIENT)
    await living.forget()
    assert len(await store.ask(lambda c: c.execute(sa.select(SESSIONS)).all())) == 1
    store.close()


async def test_a_message_that_waits_is_sent_after_a_jump_and_news_of_before_it_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with watched(tmp_path / "s.db", tmp_path) as to:
        monkeypatch.setattr(trusted_date, "running", lambda: ClockRun("a", 0.0))
        await to.tick(1)
        await to.opened("0a")
        to.on.now += YEAR
        await to.tick(1)
        to.on.now += YEAR
        await to.tick(1)
        assert await to.subjects() == [Subjects.OPENED]
        assert to.counted("given_up") == 0


async def test_a_person_may_say_that_the_date_is_right(where: Path | str) -> None:
    store, at = Store(where), Time()
    await at.ahead(store)
    at.date += YEAR
    assert await at.ahead(store)
    await trusted_date.trust(store, at.date)
    at.boot = trusted_date.running().boot
    at.up_s = trusted_date.running().up_s
    assert not await at.ahead(store)
    store.close()


async def test_a_date_that_went_back_and_is_set_right_is_no_jump(where: Path | str) -> None:
    store, at = Store(where), Time()
    assert not await at.ahead(store)
    at.date -= 30 * DAY
    assert (await believed(store, at.clock, at.run)).at == at.date
    at.date += 30 * DAY
    assert not await at.ahead(store)
    store.close()


async def test_a_store_of_before_is_as_old_as_what_happened_in_it_last(where: Path | str) -> None:
    store = Store(where)
    await ended(store, "0a", NOON)

    def downgrade(connection: sa.Connection) -> None:
        for statement in BEFORE_0013:
            connection.execute(sa.text(statement))
        connection.execute(sa.text("DROP TABLE dates"))
        connection.execute(sa.text("ALTER TABLE intents DROP COLUMN owner"))
        connection.execute(sa.text("ALTER TABLE intents DROP COLUMN pods"))
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '0009'"))

    await store.do(downgrade)
    store.close()
    store, at = Store(where), Time()
    at.date = NOON + YEAR
    await at.prune(store)
    assert await left(store) == {"0a": 1}
    store.close()


@pytest.mark.slow
@pytest.mark.parametrize("restarted", [False, True])
def test_a_servers_clock_jumps_by_two_years(tmp_path: Path, restarted: bool) -> None:
    """The real program with a real jump of its date, while it runs and while it does not."""
    library = stepped.shim(tmp_path)
    if library is None:
        pytest.skip("no C compiler: apt-get install gcc")
    now = time.time()  # noqa: TID251  # the true date, which the server's is at first
    store = Store(tmp_path / "s.db")
    asyncio.run(ended(store, "0a", now))
    store.close()
    clock = stepped.Clock(library, tmp_path / "clock")
    script = (
        "from dataclasses import replace\n"
        "import hangdog_server.main as m, sys; from hangdog.main import main\n"
        "serve = m.serve\n"
        "m.serve = lambda l, w, j, a, settings, *rest: serve(l, w, j, a, replace(settings, prune_s=0.2), *rest)\n"
        "sys.argv[0] = 'hangdog'; main()\n"
    )
    command = [sys.executable, "-c", script, "server", "--listen", "127.0.0.1:0", "--store", str(tmp_path / "s.db")]

    def run(jump: bool) -> str:
        with (
            (tmp_path / "log").open("wb") as log,
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=os.environ | clock.environ) as server,
        ):
            try:
                assert server.stdout is not None and server.stdout.readline().startswith(b"listening on")
                if jump:
                    time.sleep(1)
                    clock.step(2 * int(YEAR))
                time.sleep(2)
            finally:
                server.send_signal(signal.SIGTERM)
        return (tmp_path / "log").read_text()

    if restarted:
        run(jump=False)
        clock.step(2 * int(YEAR))
    said = run(jump=not restarted)
    assert "730.0 days ahead" in said
    store = Store(tmp_path / "s.db")
    assert asyncio.run(left(store)) == {"0a": 1}
    store.close()


def test_a_new_token_drops_none_that_has_ended(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    new(path, "alice", Role.VIEW, NOON)
    new(path, "bob", Role.VIEW, NOON + YEAR)
    assert {token.name for token in read(path)} == {"alice", "bob"}
    new(path, "alice", Role.ACT, NOON + YEAR)
    assert [(token.name, token.role) for token in read(path)] == [("bob", "view"), ("alice", "act")]
