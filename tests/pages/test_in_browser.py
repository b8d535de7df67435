"""The pages in a real browser: nothing breaks, nothing is fetched, everybody can use them, and they change while open."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest
from axe_playwright_python.async_playwright import Axe
from click.testing import CliRunner
from playwright.async_api import Page

from hangdog.main import main
from hangdog_models.snapshot import Job
from hangdog_models.views.job_state import headline
from hangdog_server.auth.tokens import Role
from hangdog_server.web.incident_page import incident_page
from support.cases.stalled import judged, renamed, stalled
from support.real.browser import PHONE, WIDE, browser, watched
from support.servers.browsed import browsed, hang
from support.servers.deciding import deciding

pytestmark = [pytest.mark.slow, pytest.mark.parallel, pytest.mark.timeout(400)]

CORPUS = Path(__file__).parents[3] / "shared" / "corpus" / "gloo"
#: Jobs that hung for real: who holds it up and how sure, why, on which machine, and what to do.
RECORDED = {
    "dataloader-py": ("rank 1 on node-1 holds the job up (>99%)", "rank 1 is waiting for the data loader", "on node-1, pid", "test node-1."),
    "checkpoint_dstate-py": ("rank 0 on node-0 holds the job up (>99%)", "rank 0 is asleep in save_checkpoint", "on node-0, pid", "test node-0."),
    "native_deadlock": ("rank 1 on node-1 holds the job up (95%)", "rank 1 is waiting for a lock", "on node-1, pid", "test node-1."),
}  # fmt: skip
#: What runs where a page obeys a name in it.
OWNED = "</script><script>window.owned = 1</script><img src='http://evil.example/x' onerror='window.owned = 2'>"


def written(folder: Path, ranks: int, **shape: int) -> str:
    """The page of a job of so many ranks as a file; its address."""
    file = folder / f"{ranks}.html"
    file.write_text(incident_page(*judged(*stalled(ranks, **shape))), encoding="utf-8")
    return file.as_uri()


def small(folder: Path) -> str:
    return written(folder, 8, tensor=2, stages=2, per_machine=2)


async def scrolls_sideways(page: Page) -> bool:
    wide: bool = await page.evaluate("document.documentElement.scrollWidth > innerWidth")
    return wide


@pytest.mark.parametrize(
    ("ranks", "culprit", "machine"), [(8, 3, "node-1"), (1024, 69, "node-8"), (131072, 8197, "node-1024")]
)
async def test_a_job_of_any_size_is_read_and_walked_by_keyboard(
    tmp_path: Path, ranks: int, culprit: int, machine: str
) -> None:
    address = small(tmp_path) if ranks == 8 else written(tmp_path, ranks)
    async with browser() as chromium:
        async with watched(chromium, WIDE) as seen:
            await seen.page.goto(address)
            heading = seen.page.get_by_role("heading", level=1)
            assert (await heading.inner_text()).startswith(f"{machine} holds ")
            box = await heading.bounding_box()
            assert box is not None and box["y"] + box["height"] < WIDE[1] / 2, "the machine is named above the fold"
            do = await seen.page.locator(".do").bounding_box()
            assert do is not None and do["y"] + do["height"] < WIDE[1]
            await seen.page.locator("#raw article").first.wait_for()
            await seen.page.focus("#map")
            await seen.page.keyboard.press("ArrowRight")
            told = await seen.page.inner_text("#told")
            assert told.startswith(f"rank {culprit} · {machine} · ") and told.endswith("suspect")
            await seen.page.keyboard.press("ArrowLeft")
            assert not (await seen.page.inner_text("#told")).startswith(f"rank {culprit} ")
            await seen.page.keyboard.press("ArrowRight")
            await seen.page.keyboard.press("Enter")
            assert await seen.page.locator("#raw h3").first.inner_text() == f"Rank {culprit}"
        async with watched(chromium, PHONE) as seen:
            await seen.page.goto(address)
            await seen.page.locator("#icicle svg").wait_for()
            assert not await scrolls_sideways(seen.page)


@pytest.mark.skipif(not CORPUS.is_dir(), reason="no corpus beside the repository (../shared/corpus)")
async def test_who_knows_nothing_finds_the_machine_of_a_real_hang_without_scrolling(tmp_path: Path) -> None:
    async with browser() as chromium:
        for recorded, texts in RECORDED.items():
            file = tmp_path / f"{recorded}.html"
            CliRunner().invoke(main, ["triage", str(CORPUS / recorded), "--html", str(file)])
            async with watched(chromium, WIDE) as seen:
                await seen.page.goto(file.as_uri())
                for text in (*texts, "marks rank"):
                    box = await seen.page.locator(".first").get_by_text(text).first.bounding_box()
                    assert box is not None and box["width"] and 0 <= box["x"] <= box["x"] + box["width"] <= WIDE[0], (
                        text
                    )
                    assert box["y"] >= 0 and box["y"] + box["height"] <= WIDE[1], f"{recorded}: {text}: {box}"
                assert await seen.page.evaluate("scrollY") == 0


async def test_what_the_rest_of_the_page_can_do(tmp_path: Path) -> None:
    async with browser() as chromium, watched(chromium) as seen:
        page = seen.page
        await page.goto(written(tmp_path, 1024))
        await page.locator("#raw article").nth(1).wait_for()
        assert await page.locator("#raw article").count() == 2, "the suspect stands beside one of the crowd"
        odd = await page.locator("#raw article").first.locator("li.odd").all_inner_texts()
        assert any("get_batch" in line for line in odd) and not any("train_step" in line for line in odd)
        await page.fill("#one", "1021")
        await page.get_by_role("button", name="Show", exact=True).click()
        assert "timed out" in await page.inner_text("#raw")
        await page.fill("#one", "5000")
        await page.keyboard.press("Enter")
        assert (await page.inner_text("#asked")).endswith(" no rank 5000")
        await page.get_by_role("button", name="Close all").click()
        await page.fill("#find", "_get_data")
        await page.locator("li.hit").first.wait_for()
        assert await page.locator("li.hit").count() == 1 and await page.locator("li.hit").is_visible()
        before = await page.evaluate("document.querySelector('#map').toDataURL()")
        await page.select_option("#rows", "dp")
        await page.select_option("#columns", "tp")
        assert await page.evaluate("document.querySelector('#map').toDataURL()") != before
        await page.click("#map", position={"x": 29, "y": 8})
        assert (await page.inner_text("#told")).startswith("rank 0 ")


async def test_a_large_job_begins_with_an_overview_and_drills_down(tmp_path: Path) -> None:
    async with browser() as chromium, watched(chromium) as seen:
        page = seen.page
        await page.goto(written(tmp_path, 16384, switches=128))
        await page.locator("#overview[aria-pressed=true]").wait_for()
        await page.focus("#map")
        told = []
        for key in ("ArrowRight", "ArrowRight", "ArrowRight", "ArrowRight"):
            await page.keyboard.press(key)
            told.append(await page.inner_text("#told"))
        assert told[0].startswith("rank 1029 · node-128 · ") and told[0].endswith("suspect")
        assert "255 machines alike · node-0 … node-255 · 2,040 ranks · #1 " in told[-1], told
        await page.keyboard.press("Enter")
        assert await page.inner_text("#part") == "2,040 ranks" and await page.locator("#scope").is_visible()
        await page.keyboard.press("ArrowRight")
        assert (await page.inner_text("#told")).startswith("rank 0 ")
        await page.keyboard.press("Escape")
        await page.keyboard.press("Escape")
        assert not await page.locator("#scope").is_visible()
        await page.select_option("#rows", "switch")
        await page.keyboard.press("Tab")
        await page.focus("#map")
        await page.keyboard.press("ArrowRight")
        assert "switch leaf-8 · " in await page.inner_text("#told")
        # every rank: higher than its frame, nothing cut, and the suspect in sight whatever the axes
        await page.click("#overview")
        await page.select_option("#columns", "")
        for rows, below in (("machine", True), ("pp", False)):
            await page.select_option("#rows", rows)
            high, top, frame = await page.evaluate(
                "(() => { const it = document.querySelector('.canvas'); return [it.scrollHeight, it.scrollTop, it.clientHeight]; })()"
            )
            assert high > 2 * frame and (top > 0) == below, "it lies behind 128 machines, and in the first stage"


async def test_the_stacks_as_a_picture_are_walked_zoomed_and_opened(tmp_path: Path) -> None:
    async with browser() as chromium, watched(chromium) as seen:
        page = seen.page
        await page.goto(written(tmp_path, 1024))
        await page.locator("#icicle g.sole").first.wait_for()
        await page.focus("#icicle")
        await page.keyboard.press("ArrowRight")
        assert (await page.inner_text("#within")).startswith("get_batch · pretrain_gpt.py · 1 rank · 69 · suspect")
        await page.keyboard.press("ArrowDown")
        block = await page.inner_text("#within")
        assert block.startswith("__next__ … (torch, 3 frames)") and block.endswith("Enter opens it")
        await page.keyboard.press("Enter")
        names = await page.locator("#icicle text").all_text_contents()
        assert {"__next__", "_next_data", "_get_data"} <= set(names), names
        trail = await page.locator("#trail button").all_inner_texts()
        assert trail[0] == "All ranks" and trail[-1] == "__next__"
        await page.keyboard.press("Escape")
        assert (await page.inner_text("#within")).startswith("__next__ … (torch, 3 frames)")
        await page.locator("#trail button").first.click()
        assert await page.locator("#trail button").all_inner_texts() == ["All ranks"]
        await page.click("#libraries")
        assert "_communicate" in await page.locator("#icicle text").all_text_contents()


async def test_what_is_drawn_anew_from_a_state_is_what_was_drawn(tmp_path: Path) -> None:
    """As a live page does it: the elements are new ones, the data are read again, and all is as it was left."""
    async with browser() as chromium, watched(chromium) as seen:
        page = seen.page
        await page.goto(written(tmp_path, 1024))
        await page.locator("#raw article").nth(1).wait_for()
        await page.locator("#icicle g.sole").first.wait_for()
        await page.fill("#one", "200")
        await page.get_by_role("button", name="Show", exact=True).click()
        await page.select_option("#rows", "dp")
        await page.fill("#find", "_get_data")
        await page.locator("li.hit").first.wait_for()
        await page.click("#libraries")
        await page.evaluate(
            """() => { const kept = hangdog.state(); const main = document.querySelector("main");
            const fresh = new DOMParser().parseFromString(document.documentElement.outerHTML.replace(/ style="[^"]*"/g, ""), "text/html").querySelector("main");
            fresh.querySelector("#raw").replaceChildren(); fresh.querySelector("#icicle").replaceChildren();
            fresh.querySelector("#rows").replaceChildren(); fresh.querySelector("#find").value = "";
            main.replaceWith(fresh); hangdog.draw(kept); }"""
        )
        assert await page.locator("#raw h3").first.inner_text() == "Rank 200"
        assert await page.input_value("#rows") == "dp" and await page.input_value("#find") == "_get_data"
        assert await page.locator("li.hit").count() == 1
        assert "_communicate" in await page.locator("#icicle text").all_text_contents()
        await page.focus("#map")
        await page.keyboard.press("ArrowRight")
        assert (await page.inner_text("#told")).startswith("rank 69 ")


async def test_what_is_taken_along_is_what_was_found(tmp_path: Path) -> None:
    verdict, _ = judged(*stalled(8, 2, 2, 2))
    async with browser() as chromium, watched(chromium) as seen:
        await seen.page.goto(small(tmp_path))
        files: dict[str, str] = {}
        for button in await seen.page.locator("[data-export]").all():
            async with seen.page.expect_download() as taken:
                await button.click()
            download = await taken.value
            files[download.suggested_filename.partition(".")[2]] = Path(await download.path()).read_text("utf-8")
    assert json.loads(files["verdict.json"])["evict"]["machines"] == list(verdict.evict.machines)
    assert sum(json.loads(files["speedscope.json"])["profiles"][0]["weights"]) == 8
    assert sum(int(line.rpartition(" ")[2]) for line in files["collapsed.txt"].splitlines()) == 8
    assert files["md"].startswith("# llama-70b-run7: machine: node-1 holds ")


async def test_hostile_names_run_nothing_and_fetch_nothing(tmp_path: Path) -> None:
    snapshot, topology = stalled(8, 2, 2, 2)
    wild = replace(renamed(snapshot, OWNED), job=Job(OWNED))
    names = {f"{name}{OWNED}\x1b[31m\u202e": ranks for name, ranks in topology.machines.items()}
    file = tmp_path / "wild.html"
    file.write_text(incident_page(*judged(wild, replace(topology, machines=names))), encoding="utf-8")
    async with browser() as chromium:
        for size in (WIDE, PHONE):
            async with watched(chromium, size) as seen:
                await seen.page.goto(file.as_uri())
                await seen.page.get_by_role("button", name="Open all").click()
                assert await seen.page.evaluate("window.owned") is None
                assert not await scrolls_sideways(seen.page)


async def test_without_scripts_the_answer_and_all_tables_are_there(tmp_path: Path) -> None:
    async with browser() as chromium, watched(chromium, scripts=False) as seen:
        await seen.page.goto(small(tmp_path))
        above = await seen.page.get_by_role("heading", level=1).inner_text()
        assert above.startswith("node-1 holds ")
        for title in ("Who waits for whom", "Where the ranks stand", "All stacks, merged", "What was not seen"):
            assert await seen.page.get_by_role("heading", name=title).is_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_everybody_can_use_them(tmp_path: Path, scheme: str) -> None:
    """What axe-core finds: contrast, names of controls, headings, landmarks, tables."""
    async with browser() as chromium, browsed(tmp_path / "s.db") as site:
        async with watched(chromium, PHONE, ours=site.address, scheme=scheme) as seen:  # type: ignore[arg-type]
            await seen.page.goto(site.address)
            assert await seen.page.get_by_role("heading", level=1).inner_text() == headline([]).text
            found = await Axe().run(seen.page)
            assert found.violations_count == 0 and not await scrolls_sideways(seen.page), found.generate_report()
        name = await hang(site.on)
        pages = [
            small(tmp_path),
            *(f"{site.address}{path}" for path in ("/", "/machines", "/login", f"/incidents/{name}")),
        ]
        for address in pages:
            ours = "file:" if address.startswith("file:") else site.address
            async with watched(chromium, ours=ours, scheme=scheme) as seen:  # type: ignore[arg-type]
                await seen.page.goto(address)
                if address.endswith((".html", name)):
                    await seen.page.locator("#icicle svg").wait_for()
                found = await Axe().run(seen.page)
                assert found.violations_count == 0, f"{address}: {found.generate_report()}"


async def test_a_page_that_is_open_turns_into_the_verdict_by_itself(tmp_path: Path) -> None:
    async with (
        browser() as chromium,
        browsed(tmp_path / "s.db") as site,
        watched(chromium, PHONE, ours=site.address) as seen,
        watched(chromium, ours=site.address) as first,
    ):

        async def look() -> None:
            await first.page.goto(site.address)
            await first.page.locator("tbody a").click()
            await seen.page.goto(first.page.url)
            above = await seen.page.get_by_role("heading", level=1).inner_text()
            assert above.startswith("llama ") and above.endswith(" no verdict yet")

        async with asyncio.timeout(300):
            await hang(site.on, hold=look)
            for page in (seen.page, first.page):
                await page.get_by_role("heading", level=1, name="b holds the job up").wait_for()


async def test_a_machine_is_isolated_by_clicking_while_others_look(tmp_path: Path) -> None:
    """Deciding takes no script; who has the page open sees what came of it, and everybody can use the pages on the way."""
    async with (
        browser() as chromium,
        deciding(tmp_path) as on,
        watched(chromium, ours=on.site.address) as alice,
        watched(chromium, ours=on.site.address, scheme="dark") as bob,
        watched(chromium, PHONE, ours=on.site.address, scripts=False) as plain,
    ):
        for seen, role in ((alice, Role.ACT), (plain, Role.ACT), (bob, Role.VIEW)):
            await seen.page.goto(f"{on.site.address}/login?next=/incidents/{on.incident}")
            await seen.page.get_by_label("Your token").fill(on.tokens[role])
            await seen.page.get_by_role("button", name="Log in").click()
            await seen.page.get_by_text("waits for approval").first.wait_for()
        assert await bob.page.get_by_role("link", name="Approve").count() == 0
        await alice.page.get_by_role("link", name="Approve: isolate a").click()
        await alice.page.get_by_text("a is taken out of use by exclude-file").wait_for()
        for page in (bob.page, alice.page):
            found = await Axe().run(page)
            assert found.violations_count == 0, found.generate_report()
        await plain.page.get_by_role("link", name="Approve: isolate a").click()
        assert not await scrolls_sideways(alice.page)
        await plain.page.get_by_label("Why").fill("fan 3 is dead")
        await plain.page.get_by_role("button", name="Isolate a").click()
        assert plain.page.url.endswith(f"/incidents/{on.incident}")
        await bob.page.get_by_text("a is out of use").first.wait_for()
        assert on.excluded[0].startswith("a ")
        await alice.page.get_by_role("button", name="Isolate a").click()
        await alice.page.get_by_text("a is out of use").first.wait_for()
        # her page asked whether what it asks has changed, and browsers write down that the answer was no page to confirm
        alice.wrong[:] = [one for one in alice.wrong if "409 (Conflict)" not in one]
        for path in ("/", "/machines", "/machines/a", "/machines/a/release"):
            await alice.page.goto(f"{on.site.address}{path}")
            found = await Axe().run(alice.page)
            assert found.violations_count == 0, f"{path}: {found.generate_report()}"
