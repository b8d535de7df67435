"""The lists in a real browser: light and dark, on a phone, by keyboard, and while what they show changes."""

import asyncio
from pathlib import Path
from typing import Literal

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Page, expect

from hangdog_models.actions.respond import ResponseDecision
from hangdog_models.incident import Incident, IncidentState, ResponseKind
from hangdog_server.auth.tokens import Role
from hangdog_server.store.history import responses
from support.real.browser import PATIENCE_MS, PHONE, WIDE, browser, watched
from support.servers.browsed import Browsed, browsed, hang
from support.servers.cast import NOON, cluster
from support.servers.deciding import deciding

pytestmark = [pytest.mark.slow, pytest.mark.parallel, pytest.mark.timeout(400)]

expect.set_options(timeout=PATIENCE_MS)
LISTS = ("incidents", "jobs", "machines", "actions")
#: What runs, or is drawn, where a page obeys a name in it.
WILD = "</script><script>window.owned = 1</script><img src='http://evil.example/x' onerror='window.owned = 2'>"
#: Nobody scrolls further than this on a phone, with as many lines as a page has at most.
HIGH = 100_000


async def many(site: Browsed, count: int) -> None:
    for number in range(count):
        job = f"{WILD}{number}" if number == 1 else f"llama-{number % 3}"
        await site.on.store.begin(Incident(f"{number:04x}", job, NOON - number, why=WILD * 2), {})
        await site.on.store.move(f"{number:04x}", IncidentState.FAILED, NOON, "nobody answered")


async def sound(page: Page) -> None:
    """Whoever sees, hears or types can use it, it fits the screen, and nothing foreign ran."""
    found = await Axe().run(page)
    assert found.violations_count == 0, f"{page.url}: {found.generate_report()}"
    assert not await page.evaluate("document.documentElement.scrollWidth > innerWidth"), page.url
    assert await page.evaluate("window.owned") is None


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_everybody_can_use_the_lists(tmp_path: Path, scheme: Literal["light", "dark"]) -> None:
    async with browser() as chromium, deciding(tmp_path) as on:
        await many(on.site, 210)
        for size in (WIDE, PHONE):
            async with watched(chromium, size, ours=on.site.address, scheme=scheme) as seen:
                await seen.page.goto(f"{on.site.address}/login?next=/machines")
                await seen.page.get_by_label("Your token").fill(on.tokens[Role.VIEW])
                await seen.page.get_by_role("button", name="Log in").click()
                await seen.page.get_by_role("heading", level=1, name="Machines").wait_for()
                for name in LISTS:
                    await seen.page.goto(f"{on.site.address}/{name}?limit=200&search=a")
                    await sound(seen.page)
                    assert await seen.page.evaluate("document.documentElement.scrollHeight") < HIGH
                    await seen.page.goto(f"{on.site.address}/{name}?search=zz")
                    assert "None of " in await seen.page.inner_text("#summary") or "No " in await seen.page.inner_text(
                        "#summary"
                    )
                await seen.page.goto(f"{on.site.address}/incidents?state=failed&sort=job&page=2")
                await sound(seen.page)


async def test_a_list_is_searched_filtered_and_turned_over_by_keyboard_and_without_scripts(tmp_path: Path) -> None:
    async with browser() as chromium, browsed(tmp_path / "s.db") as site:
        await many(site, 60)
        for scripts in (True, False):
            async with watched(chromium, PHONE, ours=site.address, scripts=scripts) as seen:
                page = seen.page
                await page.goto(f"{site.address}/incidents")
                await page.get_by_label("Search").focus()
                await page.keyboard.type("llama-1")
                await page.keyboard.press("Enter")
                await page.wait_for_url("**/incidents?search=llama-1*")
                assert (
                    await page.inner_text("#summary") == "19 incidents of 60 known"
                    and await page.locator("tbody tr").count() == 19
                )
                await page.get_by_role("link", name="failed").focus()
                await page.keyboard.press("Enter")
                await page.wait_for_url("**state=failed*")
                assert await page.locator(".facets [aria-current]").inner_text() == "failed 19"
                assert await page.input_value("#search") == "llama-1", "what was asked before stays asked"
                await page.get_by_role("link", name="Show all").click()
                await page.get_by_role("link", name="Next").click()
                await page.wait_for_url("**page=2*")
                assert await page.inner_text("#summary") == "51 to 60 of 60 incidents"
                await page.go_back()
                assert "1 to 50 of 60" in await page.inner_text("#summary")


async def test_an_open_list_changes_and_keeps_what_is_typed(tmp_path: Path) -> None:
    async with (
        browser() as chromium,
        browsed(tmp_path / "s.db") as site,
        watched(chromium, ours=site.address) as machines,
        watched(chromium, ours=site.address) as incidents,
    ):
        name = await hang(site.on)
        async with cluster(site.on, a=[0, 1]), asyncio.timeout(300):
            await machines.page.goto(f"{site.address}/machines?state=suspected")
            assert await machines.page.locator("tbody th").all_inner_texts() == ["b suspected"]
            await machines.page.locator("#search").fill("gpu-")
            await incidents.page.goto(f"{site.address}/incidents?state=open")
            assert await incidents.page.locator("tbody tr").count() == 1
            wanted = ResponseDecision(ResponseKind.DISMISSED, "ada", NOON, "a switch was being updated")
            await site.on.store.do(responses.respond, name, wanted)
            await expect(machines.page.locator("#summary")).to_contain_text("None of 2 machines")
            await expect(incidents.page.locator("#summary")).to_contain_text("None of 1 incidents")
            assert await machines.page.input_value("#search") == "gpu-"
            assert await machines.page.evaluate("document.activeElement.id") == "search"
