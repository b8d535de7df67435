"""Open pages in a real browser: a change takes nothing from whoever reads, and a lost server is said and found again."""

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Page, expect

from hangdog.demo.conductor import free_port
from hangdog_models.actions.respond import ResponseDecision
from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.incident import Incident, ResponseKind, SettledCause
from hangdog_models.verdict import Eviction, Kind, from_json
from hangdog_server.auth.tokens import Role
from hangdog_server.listener import LOCAL
from hangdog_server.store.history import responses
from support.real.browser import PATIENCE_MS, PHONE, Watched, browser, watched
from support.servers.browsed import browsed, hang
from support.servers.cast import NOON, cluster, stage
from support.servers.deciding import deciding

pytestmark = [pytest.mark.slow, pytest.mark.parallel, pytest.mark.timeout(600)]

expect.set_options(timeout=PATIENCE_MS)
#: What the page shows of itself, and where: it must be the same before and after.
SHOWN = """() => ({
  focused: document.activeElement.id, top: document.activeElement.getBoundingClientRect().top,
  selected: [document.activeElement.selectionStart, document.activeElement.selectionEnd],
  rank: document.getElementById("one").value, other: document.getElementById("other").value,
  stacks: [...document.querySelectorAll("#raw h3")].map((one) => one.textContent),
  axes: [document.getElementById("rows").value, document.getElementById("columns").value],
  search: document.getElementById("find").value, hits: document.querySelectorAll("li.hit").length,
  open: [...document.querySelectorAll("#branches details, #raw details")].map((one) => one.open),
})"""
#: Somebody types, and closes all before the search has begun; then what it would have opened is waited for.
SOUGHT_AND_CLOSED = """() => {
  document.getElementById("find").dispatchEvent(new Event("input", { bubbles: true }));
  document.getElementById("close").click();
  return new Promise((done) => setTimeout(done, 400));
}"""


async def same(page: Page, before: dict[str, object]) -> None:
    """Asserts that the page shows what it did, to the pixel."""
    after = await page.evaluate(SHOWN)
    assert after == {**before, "top": pytest.approx(before["top"], abs=2)}


async def arranged(page: Page) -> None:
    """Somebody has arranged an incident's page as they need it, and reads on."""
    await page.evaluate("window.mine = true")
    await page.fill("#one", "1")
    await page.fill("#other", "3")
    await page.get_by_role("button", name="Show", exact=True).click()
    await page.select_option("#rows", "")
    await page.select_option("#columns", "machine")
    await page.get_by_role("button", name="Open all").click()
    await page.locator("#branches summary").last.click()
    await page.fill("#find", "step")
    await page.locator("li.hit").first.wait_for()
    await page.locator("#find").evaluate("(one) => { one.focus(); one.setSelectionRange(1, 3); }")


@contextmanager
def refusals(seen: Watched) -> Iterator[None]:
    """The browser itself logs each request that finds no server, or is refused."""
    yield
    seen.wrong[:] = [one for one in seen.wrong if not one.startswith("console: Failed to load resource")]


async def test_a_change_keeps_what_whoever_reads_has_opened_chosen_and_typed(tmp_path: Path) -> None:
    async with browser() as chromium, browsed(tmp_path / "s.db") as site:
        store, name = site.on.store, await hang(site.on)
        async with watched(chromium, PHONE, ours=site.address) as seen:
            page = seen.page
            await page.goto(f"{site.address}/incidents/{name}")
            await arranged(page)
            before = await page.evaluate(SHOWN)
            assert before["rank"] == "1" and before["hits"] and before["top"] > 0, before
            await store.do(responses.resolve, name, SettledCause("software", (), "<b>a deadlock</b>", "ada", NOON))
            await page.get_by_text("resolved by ada: software, <b>a deadlock</b>").first.wait_for()
            await same(page, before)
            assert "resolved by ada" in (await page.locator("#heard").inner_text()), "it is read aloud"
            found = await store.find(name)
            asked, _ = await store.kept(name)
            slow = replace(from_json(json.loads(found.verdict)), kind=Kind.SOFTWARE, evict=Eviction())
            await store.judged_again(name, asked, slow, NOON + 20)
            await page.locator(".kind", has_text="software").wait_for()
            await page.locator("li.hit").first.wait_for()
            await same(page, before)
            await page.get_by_role("button", name="Close all").click()
            assert not await page.locator("#branches details[open]").count(), "what is drawn anew works once"
            await page.evaluate(SOUGHT_AND_CLOSED)
            assert not await page.locator("#branches details[open]").count(), "a search that comes late opens nothing"
            async with page.expect_download():
                await page.get_by_role("link", name="Post-mortem").click()
            assert await page.evaluate("window.mine"), "nothing was loaded again"


async def test_a_row_that_comes_above_moves_nobody_who_stands_on_another(tmp_path: Path) -> None:
    async with browser() as chromium, browsed(tmp_path / "s.db") as site:
        name = await hang(site.on)
        async with watched(chromium, ours=site.address) as seen, watched(chromium, ours=site.address) as machines:
            await seen.page.goto(site.address)
            await machines.page.goto(f"{site.address}/machines")
            await seen.page.locator(f"tbody a[href='/incidents/{name}']").focus()
            await site.on.store.begin(Incident("0ther", "bert", NOON + 5), {})
            await seen.page.locator("tbody a[href='/incidents/0ther']").wait_for()
            assert await seen.page.evaluate("document.activeElement.getAttribute('href')") == f"/incidents/{name}"
            assert await machines.page.get_by_role("cell", name="connected").count() == 0
            async with cluster(site.on, a=[0, 1]):
                await machines.page.get_by_role("cell", name="connected").wait_for()


async def test_a_server_that_is_away_is_said_within_five_seconds_and_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    door = replace(LOCAL, web=f"127.0.0.1:{free_port()}")
    address = f"http://{door.web}"
    async with browser() as chromium, watched(chromium, ours=address, scheme="dark") as seen:
        page, live = seen.page, seen.page.locator("#live")
        async with stage(tmp_path / "s.db", diagnose, door=door) as on:
            name = await hang(on)
            await page.goto(f"{address}/incidents/{name}")
            await page.evaluate("window.mine = true")
            with monkeypatch.context() as silent:  # the line is there, and nothing comes any more
                silent.setattr("hangdog_server.web.live_feed.BEAT_S", 3600.0)
                # it is said for as long as the next answer takes, which may be less than between two looks of a locator
                await page.evaluate(
                    "new MutationObserver(() => { if (live.textContent.startsWith('Connection lost')) live.dataset.said = 1; })"
                    ".observe(live, { childList: true, subtree: true, characterData: true })"
                )
                await page.locator("#live[data-said]").wait_for(state="attached")
            await expect(live).to_be_empty()
        with refusals(seen):
            await live.get_by_text("Connection lost").wait_for()
            said = await live.inner_text()
            lost = re.fullmatch(r"Connection lost (\d+) s ago: what you see is of 08:00:0\d UTC. Trying again…", said)
            assert lost and int(lost[1]) <= 5, said
            found = await Axe().run(page)
            assert found.violations_count == 0, found.generate_report()
            async with stage(tmp_path / "s.db", diagnose, door=door) as on:
                await on.store.do(responses.resolve, name, SettledCause("software", (), "a deadlock", "ada", NOON))
                await page.get_by_text("resolved by ada").first.wait_for()
                await expect(live).to_be_empty()
                await page.evaluate(
                    "Object.defineProperty(document, 'hidden', { get: () => window.away, configurable: true })"
                )
                await page.evaluate("window.away = true; document.dispatchEvent(new Event('visibilitychange'))")
                note = ResponseDecision(ResponseKind.NOTED, "eve", NOON + 1, "it is the store")
                await on.store.do(responses.respond, name, note)
                await asyncio.sleep(3)
                assert await page.get_by_text("it is the store").count() == 0, "a page that nobody sees asks nothing"
                await page.evaluate("window.away = false; document.dispatchEvent(new Event('visibilitychange'))")
                await page.get_by_text("it is the store").first.wait_for()
                assert await page.evaluate("window.mine"), "nothing was loaded again"


async def test_what_is_asked_does_not_change_under_a_finger_and_a_login_that_ended_is_said(tmp_path: Path) -> None:
    async with browser() as chromium, deciding(tmp_path) as on, watched(chromium, ours=on.site.address) as seen:
        page = seen.page
        with refusals(seen):
            await page.goto(f"{on.site.address}/login?next=/incidents/{on.incident}/dismiss")
            await page.get_by_label("Your token").fill(on.tokens[Role.ACT])
            await page.get_by_role("button", name="Log in").click()
            await page.get_by_label("Why").fill("the fan was repl")
            await on.posted("approve")
            await on.until("done")
            await page.locator("#live").get_by_text("has changed since you opened it").wait_for()
            assert await page.get_by_label("Why").input_value() == "the fan was repl"
            await page.goto(f"{on.site.address}/incidents/{on.incident}")
            await page.get_by_text("a is out of use").first.wait_for()
            await page.context.clear_cookies()
            # the stream that is open was allowed: its next one is not
            await page.evaluate("dispatchEvent(new Event('online'))")
            await page.locator("#live").get_by_text("Your login has ended").wait_for()
            await expect(page.get_by_role("link", name="Log in again")).to_have_attribute(
                "href", f"/login?next=%2Fincidents%2F{on.incident}"
            )
