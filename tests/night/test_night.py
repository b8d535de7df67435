"""A night on call in a real browser: three real hangs, two people who look, and everything says the same after each event."""

import asyncio
import os
import random
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import httpx
import pytest
from playwright.async_api import Browser, Page

from hangdog.demo.faults import FAULTS, Victim
from live.job import Job, Launcher
from live.plan import Plan
from night.cluster import PEOPLE, Known, NightCluster, now
from night.surfaces import Facts, Read, Surfaces
from support.fakes.receiver import Receiver, receiving
from support.real.browser import PHONE, WIDE, Watched, browser, watched

#: Pages, commands and answers say so within two seconds of an event.
PROMISED_S = 2.0
#: A notice takes a look at the store every other second, and a process that sends it. Seconds.
NOTICED_S = 20.0
#: Ranks alternate between work and waits for so long before a fault strikes, so that their rhythm is known. Seconds.
TRAINED_S = 14.0
#: From a fault to its suspicion and its verdict, and from its end to the next step, on a busy machine. Seconds.
PATIENCE_S = 120.0
#: A surface that is late is waited for so long, to say by how much. Seconds.
LATE_S = 20.0
#: Between two looks at the same thing. Seconds.
TICK_S = 0.1

pytestmark = [
    pytest.mark.soak,
    pytest.mark.timeout(600),
    pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed: pip install 'hangdog[demo]'"),
]


@dataclass
class Row:
    """One event, what is true from then on, and how long each surface took to say so (seconds; None: it never did).

    `wrong`: what those said that were late.
    """

    event: str
    facts: Facts
    after: dict[str, float | None] = field(default_factory=dict)
    wrong: dict[str, Facts] = field(default_factory=dict)


@dataclass
class Night:
    """What is shared by the three hangs."""

    cluster: NightCluster
    launcher: Launcher
    http: httpx.AsyncClient
    told: Receiver
    pages: dict[str, Page]
    table: list[Row] = field(default_factory=list)

    async def until(self, true: Callable[[], bool], what: str) -> float:
        """When it became true (Unix seconds)."""
        deadline = time.monotonic() + PATIENCE_S
        while not await asyncio.to_thread(true):
            assert time.monotonic() < deadline, f"no {what} within {PATIENCE_S:g} s"
            await asyncio.sleep(TICK_S)
        return now()


@dataclass
class Hang:
    """One hang, as it is known by now."""

    night: Night
    name: str
    job: Job
    surfaces: Surfaces
    facts: Facts

    @property
    def incident(self) -> Known:
        return next(one for one in self.night.cluster.incidents() if one.id == self.surfaces.incident)

    async def then(self, event: str, at: float, **facts: str) -> None:
        """An event at `at` (Unix seconds) makes these facts true: each surface is read until it says so."""
        self.facts |= facts
        row = Row(f"{self.name}: {event}", dict(self.facts))
        surfaces = self.surfaces.all(self.night.pages)
        await asyncio.gather(*(self._says(row, name, read, at) for name, read in surfaces.items()))
        self.night.table.append(row)

    async def _says(self, row: Row, name: str, read: Read, at: float) -> None:
        bound = NOTICED_S if name == "notices" else PROMISED_S
        first = True
        while True:
            began = now()
            said = await read()
            wrong = {key: value for key, value in said.items() if value != self.facts[key]}
            if not wrong:
                row.after[name] = 0.0 if first else began - at  # right when it was asked first: it never was wrong
                return
            if began - at > bound and not first:
                row.wrong[name] = wrong
            if began - at > LATE_S and not first:
                row.after[name] = None
                return
            first = False
            await asyncio.sleep(TICK_S)


@asynccontextmanager
async def hang(
    night: Night, name: str, job: Job, strike: Callable[[], object], hidden: str = ""
) -> AsyncIterator[Hang]:
    """A job that trains until a fault strikes it: from its suspicion to its verdict; ended when the block is left.

    Of its ranks on a machine that is `hidden` no agent knows.
    """
    with ExitStack() as until:
        night.cluster.start(job, until, hidden)
        await asyncio.to_thread(job.train_for, TRAINED_S)
        known = {one.id for one in night.cluster.incidents()}
        await asyncio.to_thread(strike)

        def suspected() -> list[Known]:
            job.silent_s()  # steps are taken note of, or the ranks would wait for that
            return [one for one in night.cluster.incidents() if one.id not in known]

        at = await night.until(lambda: bool(suspected()), "suspicion")
        (begun,) = suspected()
        surfaces = Surfaces(job.name, begun.id, night.cluster.address, night.http, night.told)
        nothing = dict.fromkeys(("verdict", "machine", "act", "has", "closed", "over"), "")
        found = Hang(night, name, job, surfaces, {**nothing, "notes": "0"})

        async def open_it(page: Page) -> None:
            await page.goto(f"{night.cluster.web}/incidents/{begun.id}")
            await page.evaluate("window.mine = true")

        await asyncio.gather(*(open_it(night.pages[f"{who} incident"]) for who in PEOPLE))
        assert not found.incident.kind, "it was judged before anybody could look"
        await found.then("suspected", at, job="examined")
        at = await night.until(lambda: bool(found.incident.kind), "verdict")
        yield found


@pytest.fixture
def launcher() -> object:
    with Launcher() as running:
        yield running


async def opened(stack: AsyncExitStack, by: Browser, cluster: NightCluster, who: str, what: str) -> Page:
    """A page of the server that somebody has open, after they have logged in."""
    size = WIDE if who == "ada" else PHONE
    seen: Watched = await stack.enter_async_context(watched(by, size, ours=cluster.web))
    path = {"machines": "/machines"}.get(what, "/")
    await seen.page.goto(f"{cluster.web}/login?next={path}")
    await seen.page.get_by_label("Your token").fill(cluster.tokens[who])
    await seen.page.get_by_role("button", name="Log in").click()
    await seen.page.locator("main h1").first.wait_for()
    await seen.page.evaluate("window.mine = true")
    return seen.page


async def test_after_each_event_of_a_night_everything_says_the_same(
    launcher: Launcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AsyncExitStack() as stack:
        told = await stack.enter_async_context(receiving())
        chromium = await stack.enter_async_context(browser())
        cluster = stack.enter_context(NightCluster(tmp_path, Plan("ddp"), told.url))
        monkeypatch.setenv("HANGDOG_TOKEN", cluster.tokens["ada"])
        headers = {"authorization": f"Bearer {cluster.tokens['ada']}"}
        # the server ends an idle connection after five seconds: maybe just as it is used again
        fresh = httpx.Limits(keepalive_expiry=1.0)
        client = httpx.AsyncClient(base_url=cluster.web, headers=headers, timeout=30, limits=fresh)
        http = await stack.enter_async_context(client)
        pages = {}
        for who, what in (
            ("ada", "now"), ("ada", "machines"), ("ada", "incident"), ("ben", "now"), ("ben", "incident"),
        ):  # fmt: skip
            pages[f"{who} {what}"] = await opened(stack, chromium, cluster, who, what)
        night = Night(cluster, launcher, http, told, pages)
        try:
            await the_stopped_process(night)
            await the_code(night)
            await the_open_one(night)
        finally:
            print(written(night.table))
    wrong = [
        f"{row.event}: {name} says {said}, not {row.facts}" for row in night.table for name, said in row.wrong.items()
    ]
    assert not wrong, "\n".join(wrong)


async def the_stopped_process(night: Night) -> None:
    """A process is stopped: one takes it while the other writes a note; its machine is isolated, the job ended, and it is resolved."""
    ada, ben = night.pages["ada incident"], night.pages["ben incident"]
    job = Job(Plan("ddp", seed=1), night.launcher, name="night-stopped")
    strike = lambda: FAULTS["sigstop"].strike(Victim(job.pids[5], job.rank_folder(5), random.Random(1)))
    async with hang(night, "stopped process", job, strike) as it:
        it.surfaces.machine = "node-2"
        await it.then("verdict", it.incident.changed, job="stuck", verdict="machine", machine="node-2", act="waiting")
        note = ben.get_by_label("Note")
        await note.fill("the filer of node-2 is sl")
        await note.evaluate("(one) => { one.focus(); one.setSelectionRange(4, 9); }")
        await ada.get_by_role("button", name="I have it").click()
        await it.then("ada has it", now(), has="ada")
        held = "() => [document.activeElement.value, document.activeElement.selectionStart, document.activeElement.selectionEnd]"
        assert await ben.evaluate(held) == ["the filer of node-2 is sl", 4, 9], "a note that is being written was lost"
        assert await ben.evaluate("window.mine"), "the page was loaded again"
        await note.press("End")
        await note.press_sequentially("ow")
        await ben.get_by_role("button", name="Keep it").click()
        await it.then("ben notes", now(), notes="1")
        await ben.evaluate("window.mine = true")
        await ada.get_by_role("link", name="Approve: isolate node-2").click()
        await ada.get_by_label("Why").fill("its filer is gone")
        await ada.get_by_role("button", name="Isolate node-2").click()
        await it.then("ada isolates node-2", now(), act="isolated")
    await it.then("the job ended", await ended(night, job.name), job="ended")
    await ben.get_by_role("link", name="Resolve: what it was").click()
    await ben.get_by_label("How you know").fill("the mount was stale")
    await ben.get_by_role("button", name="Resolve").click()
    await it.then("ben resolves it", now(), closed="resolved by ben", has="")


async def the_code(night: Night) -> None:
    """A rank skips a collective: the phone takes it, and reads a thread while the other one says that no machine is at fault."""
    ada, ben = night.pages["ada incident"], night.pages["ben incident"]
    job = Job(Plan("ddp", seed=3), night.launcher, name="night-code")
    strike = lambda: FAULTS["skip-collective"].strike(Victim(job.pids[3], job.rank_folder(3), random.Random(3)))
    async with hang(night, "software", job, strike) as it:
        await it.then("verdict", it.incident.changed, job="stuck", verdict="software")
        await ben.get_by_role("button", name="I have it").click()
        await it.then("ben has it", now(), has="ben")
        await ben.evaluate("window.mine = true")
        await ben.fill("#one", "3")
        await ben.get_by_role("button", name="Show", exact=True).click()
        thread = ben.locator("#raw details").last
        await thread.locator("summary").click()
        opened_ = await ben.locator("#raw details").evaluate_all("(all) => all.map((one) => one.open)")
        await ada.get_by_role("link", name="Dismiss: no machine is at fault").click()
        await ada.get_by_label("Why").fill("a report is skipped, not a machine")
        await ada.get_by_role("button", name="Leave").click()
        await it.then("ada dismisses it", now(), closed="dismissed by ada", has="", job="suspected")
        assert await ben.input_value("#one") == "3", "the rank that was asked for is another one"
        later = await ben.locator("#raw details").evaluate_all("(all) => all.map((one) => one.open)")
        assert later == opened_, "a thread that was open is closed"
        assert await ben.evaluate("window.mine"), "the page was loaded again"
    await it.then("the job ended", await ended(night, job.name), job="ended")


async def the_open_one(night: Night) -> None:
    """A rank stops where no agent is, which leaves the cause open: it is taken, noted, and the job goes on by itself."""
    ada, ben = night.pages["ada incident"], night.pages["ben now"]
    job = Job(Plan("ddp", seed=5), night.launcher, name="night-open")
    strike = lambda: os.kill(job.pids[5], signal.SIGSTOP)
    async with hang(night, "undetermined", job, strike, hidden=job.plan.machine(5)) as it:
        await it.then("verdict", it.incident.changed, job="stuck", verdict="undetermined")
        link = ben.locator(f"a[href='/incidents/{it.surfaces.incident}']").first
        await link.focus()
        await ada.get_by_role("button", name="I have it").click()
        await it.then("ada has it", now(), has="ada")
        await ada.get_by_label("Note").fill("the switch was rebooted")
        await ada.get_by_role("button", name="Keep it").click()
        await it.then("ada notes", now(), notes="1")
        focused = await ben.evaluate("document.activeElement.getAttribute('href')")
        assert focused == f"/incidents/{it.surfaces.incident}", "whoever stood on a line was moved"
        os.kill(job.pids[5], signal.SIGCONT)

        def over() -> bool:
            job.silent_s()
            return bool(it.incident.went_on_s)

        at = await night.until(over, "step after the stall")
        await it.then("the job goes on", at, over="went on", job="moving")
    assert await ben.evaluate("window.mine"), "the page was loaded again"
    await it.then("the job ended", await ended(night, job.name), job="ended")


async def ended(night: Night, job: str) -> float:
    """When the server knew that a job has ended (Unix seconds)."""
    deadline = time.monotonic() + PATIENCE_S
    while any(one["name"] == job for one in (await night.http.get("/api/now")).json()["jobs"]):
        assert time.monotonic() < deadline, f"{job} did not end"
        await asyncio.sleep(TICK_S)
    return now()


def written(table: list[Row]) -> str:
    """The table of state and surface: how many seconds each took to say so."""
    names = list(table[0].after) if table else []
    lines = ["", f"| event | {' | '.join(names)} |", f"|---|{'---|' * len(names)}"]
    for row in table:
        cells = [_cell(row.after.get(name), name in row.wrong) for name in names]
        lines.append(f"| {row.event} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(after: float | None, late: bool) -> str:
    if after is None:
        return "**no**"
    return f"**{after:.1f}**" if late else f"{after:.1f}" if after else "0"
