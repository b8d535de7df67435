"""Jobs, incidents, machines and ranks lead to each other, in a real browser."""

import re
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from support.real.browser import PATIENCE_MS, browser, watched
from support.servers.browsed import browsed, hang
from support.servers.cast import cluster

pytestmark = [pytest.mark.slow, pytest.mark.parallel, pytest.mark.timeout(400)]

expect.set_options(timeout=PATIENCE_MS)


async def leads(page: Page, link: str, to: str, heading: str) -> None:
    """The first link of these words leads to that address, whose page's heading begins so."""
    await page.locator("main, header").get_by_role("link", name=link, exact=True).first.click()
    await page.wait_for_url(f"**{to}")
    await expect(page.locator("main h1")).to_have_text(re.compile(f"^{heading}"))


async def test_each_thing_leads_to_the_others(tmp_path: Path) -> None:
    async with browser() as chromium, browsed(tmp_path / "s.db") as site, watched(chromium, ours=site.address) as seen:
        page, incident = seen.page, await hang(site.on)
        async with cluster(site.on, a=[0, 1]):
            await page.goto(site.address)
            await leads(page, "b", "/machines/b", "b")
            await leads(page, incident, f"/incidents/{incident}", "b holds the job up")
            await leads(page, "its machines", "/machines?job=llama", "Machines")
            await leads(page, "a", "/machines/a", "a")
            await leads(page, "llama", "/incidents?job=llama", "Incidents")


async def test_a_rank_has_an_address(tmp_path: Path) -> None:
    async with browser() as chromium, browsed(tmp_path / "s.db") as site, watched(chromium, ours=site.address) as seen:
        page, incident = seen.page, await hang(site.on)
        await page.goto(f"{site.address}/incidents/{incident}#rank-1")
        await expect(page.locator("#raw article h3").first).to_have_text("Rank 1")
        await page.fill("#one", "0")
        await page.get_by_role("button", name="Show", exact=True).click()
        await expect(page.locator("#raw article h3").first).to_have_text("Rank 0")
        await page.evaluate("location.hash = '#rank-3'")
        await expect(page.locator("#raw article h3").first).to_have_text("Rank 3")
        await expect(page.locator("#rank")).to_be_in_viewport()
        await page.evaluate("location.hash = '#rank-99'")
        await expect(page.locator("#asked")).to_have_text("there is no rank 99")
