"""The communicators of a job in a real browser: light and dark, on a phone, without scripts, and while they change."""

from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Page, expect

from hangdog_models.progress.communicator_window import CommunicatorChanges, CommunicatorWindow
from hangdog_models.ranks import Rank
from hangdog_proto.codec import communicator_report
from support.real.browser import PATIENCE_MS, PHONE, WIDE, browser, watched
from support.servers.browsed import browsed
from support.servers.cast import Agent, cluster

pytestmark = [pytest.mark.slow, pytest.mark.parallel, pytest.mark.timeout(400)]

expect.set_options(timeout=PATIENCE_MS)
#: What runs, or is drawn, where a page obeys a name in it.
WILD = "</script><img src='http://evil.example/x' onerror='window.owned = 2'>"
HUNG = CommunicatorWindow(0x700885418FD77BCF, "data parallel", 4, (), 0.0, 371, 371, (), 42.0, 42.0, "AllReduce")
PIPE = replace(HUNG, communicator=2, name="pipeline", lowest=None, highest=None, operation="Recv", size=2)
MOVES = replace(HUNG, communicator=3, name=WILD, rate=12.5, idle_s=0.0, age_s=None)


async def tell(agent: Agent, *windows: CommunicatorWindow, ranks: tuple[int, int]) -> None:
    here = tuple(map(Rank, ranks))
    own = [replace(one, ranks=here, behind=one.behind or here if one.lowest is not None else ()) for one in windows]
    changes = {"llama": CommunicatorChanges(tuple(own), left_out=3)}
    await agent.say(communicator_report=communicator_report.pack(changes, {}))


async def sound(page: Page) -> None:
    """Whoever sees, hears or types can use it, it fits the screen, and nothing foreign ran."""
    found = await Axe().run(page)
    assert found.violations_count == 0, f"{page.url}: {found.generate_report()}"
    assert not await page.evaluate("document.documentElement.scrollWidth > innerWidth"), page.url
    assert await page.evaluate("window.owned") is None


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_everybody_can_use_it(tmp_path: Path, scheme: Literal["light", "dark"]) -> None:
    async with (
        browser() as chromium,
        browsed(tmp_path / "s.db") as site,
        cluster(site.on, a=[0, 1], b=[2, 3]) as (a, b),
    ):
        await tell(a, HUNG, PIPE, MOVES, ranks=(0, 1))
        await tell(b, replace(HUNG, lowest=370, behind=(Rank(3),), age_s=None), ranks=(2, 3))
        for size in (WIDE, PHONE):
            async with watched(chromium, size, ours=site.address, scheme=scheme) as seen:
                await seen.page.goto(site.address)
                await seen.page.get_by_role("link", name="communicators").click()
                await expect(seen.page.locator("tbody tr").first).to_contain_text("rank 3 on b")
                assert await seen.page.locator("tbody tr").count() == 3
                await sound(seen.page)


async def test_it_is_there_without_scripts_and_changes_while_it_is_open(tmp_path: Path) -> None:
    async with browser() as chromium, browsed(tmp_path / "s.db") as site, cluster(site.on, a=[0, 1]) as (a,):
        await tell(a, HUNG, ranks=(0, 1))
        address = f"{site.address}/jobs/llama/communicators"
        async with watched(chromium, PHONE, ours=site.address) as seen:
            await seen.page.goto(address)
            await expect(seen.page.locator("tbody")).to_contain_text("waits inside of AllReduce for")
            await seen.page.evaluate("window.mine = true")
            await tell(a, replace(HUNG, rate=12.5, idle_s=0.0, age_s=None), ranks=(0, 1))
            await expect(seen.page.locator("tbody")).to_contain_text("moves, 12 operations a second")
            assert await seen.page.evaluate("window.mine"), "it was not loaded again"
        async with watched(chromium, PHONE, ours=site.address, scripts=False) as seen:
            await seen.page.goto(address)
            assert "moves, 12 operations a second" in await seen.page.inner_text("tbody")
