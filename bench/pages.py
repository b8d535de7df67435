"""What the incident page costs, and how fast it is there: CPU seconds to draw it, its size, first paint in Chromium.

    python bench/pages.py [RANKS ...] [--pictures DIR]        default: 8 1024 16384 131072

Each job is one rank of the first pipeline stage that waits for its data loader, on machines of eight ranks; 8 ranks are on
four machines. First paint is the median of five fresh pages opened from a file, on a screen of 1280x800 and one of 375x812. `long` are the tasks of 50 ms
and more of one such opening together (Long Tasks API), in the middle of five. A stall is the longest task while the map is walked over.
The last line says how much else the machine had to do.
`--pictures` writes what docs/ shows; those of recorded jobs need the corpus beside the repository, ../shared/corpus.
"""

import argparse
import asyncio
import os
import shutil
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import process_time

from playwright.async_api import Browser, Page, async_playwright

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from hangdog_models.actions.caps import Mode
from hangdog_models.diagnosis.judge import investigate
from hangdog_models.diagnosis.verdict.conclude import conclude
from hangdog_models.views import incident_view
from hangdog_server.actions.backends.actions_config import ActionsConfig
from hangdog_server.actions.backends.exclude_file import ExcludeFile
from hangdog_server.web.incident_page import incident_page
from support.cases.stalled import stalled
from support.cases.stories import trace
from support.servers.browsed import browsed
from support.servers.cast import PATIENT, cluster
from support.servers.cast_acting import WIDE
from support.servers.recorded import NO_CORPUS, RECORDED

SIZES = (8, 1024, 16384, 131072)
SCREENS = {"wide": (1280, 800), "phone": (375, 812)}
#: Fresh pages opened for one figure.
OPENED = 5
PAINTED = """() => new Promise((done) => {
    const look = () => performance.getEntriesByName("first-contentful-paint")[0];
    if (look()) { done(look().startTime); return; }
    new PerformanceObserver(() => { if (look()) done(look().startTime); }).observe({ type: "paint", buffered: true });
})"""
#: Notes tasks of 50 ms and more from the first one on, and adds them up.
OPENING = """window.opening = 0; new PerformanceObserver((list) => {
    for (const one of list.getEntries()) window.opening += one.duration;
}).observe({ type: "longtask", buffered: true });"""
#: By then everything is drawn. Milliseconds.
DRAWN_MS = 1500
#: Watches for tasks of 50 ms and more, which browsers call long: meanwhile nothing moves.
WATCHED = """() => { window.long = [0]; new PerformanceObserver((list) => {
    for (const one of list.getEntries()) window.long.push(one.duration);
}).observe({ type: "longtask" }); }"""
#: The loader's disk does not answer: it sleeps in the kernel, and only its machine can be why.
ASLEEP = {"loader": "D"}
#: The pictures of the documentation: of how many ranks, on which screen, and of which part where not of what is seen first.
PICTURES = {
    "incident-8": (8, "wide", ""),
    "incident-1024": (1024, "wide", ""),
    "incident-131072": (131072, "wide", ""),
    "stacks": (1024, "wide", "section:has(#tree)"),
    "waits": (1024, "wide", "section:has(#waits)"),
    "compared": (1024, "wide", "section:has(#rank)"),
}


async def opened(browser: Browser, file: Path, size: tuple[int, int]) -> Page:
    page = await browser.new_page(viewport={"width": size[0], "height": size[1]})
    await page.goto(file.as_uri())
    return page


async def painted(browser: Browser, file: Path, size: tuple[int, int]) -> float:
    """Milliseconds from opening the page to its first paint."""
    times = []
    for _ in range(OPENED):
        page = await opened(browser, file, size)
        times.append(float(await page.evaluate(PAINTED)))
        await page.close()
    return median(times)


async def opening_ms(browser: Browser, file: Path) -> float:
    """Milliseconds of long tasks, all together, from opening the page until everything is drawn."""
    spent = []
    for _ in range(OPENED):
        page = await browser.new_page(viewport={"width": SCREENS["wide"][0], "height": SCREENS["wide"][1]})
        await page.add_init_script(OPENING)
        await page.goto(file.as_uri())
        await page.wait_for_timeout(DRAWN_MS)
        spent.append(float(await page.evaluate("window.opening")))
        await page.close()
    return median(spent)


async def stalled_ms(browser: Browser, file: Path) -> float:
    """The longest task, in milliseconds, while the pointer crosses the map, it is scrolled, and arrow keys walk on it; 0: none of 50 ms."""
    page = await opened(browser, file, SCREENS["wide"])
    box = await page.locator(".canvas").bounding_box()
    assert box is not None
    await page.evaluate(WATCHED)
    await page.mouse.move(box["x"] + 30, box["y"] + 10)
    await page.mouse.move(box["x"] + box["width"] - 30, box["y"] + box["height"] - 10, steps=100)
    for _ in range(10):
        await page.mouse.wheel(0, 100)
    await page.focus("#map")
    for _ in range(5):
        await page.keyboard.press("ArrowRight")
    await page.wait_for_timeout(200)  # what is observed is told later
    longest = float(await page.evaluate("Math.max(...window.long)"))
    await page.close()
    return longest


def drawn(ranks: int, folder: Path) -> tuple[Path, str]:
    """Writes the page of a job of so many ranks, and says what that cost."""
    snapshot, topology = stalled(ranks) if ranks >= 64 else stalled(ranks, tensor=2, stages=2, per_machine=2)
    began = process_time()
    case = investigate(snapshot, topology)
    verdict = conclude(case)
    judged = process_time()
    shown = incident_view.of(case, verdict)
    seen = process_time()
    page = incident_page(verdict, shown)
    ended = process_time()
    file = folder / f"{ranks}.html"
    file.write_text(page, encoding="utf-8")
    cost = f"{judged - began:7.2f} {seen - judged:7.2f} {ended - seen:7.2f} {len(page.encode()) / 1024:8.0f}"
    return file, cost


def of_recorded(name: str, folder: Path) -> Path:
    """Writes the page of a recorded job, as `hangdog triage --html` does."""
    case = RECORDED[name].case()
    verdict = conclude(case)
    file = folder / f"{name}.html"
    file.write_text(incident_page(verdict, incident_view.of(case, verdict)), encoding="utf-8")
    return file


async def live(browser: Browser, folder: Path, pictures: Path) -> None:
    """Pictures of a server's pages: a quiet night, and one incident on a phone that nobody reloads, until its machine is out of use."""
    does = ActionsConfig(Mode.APPROVE, WIDE, (ExcludeFile(folder / "excluded"),), folder / "stop")
    async with browsed(folder / "s.db", settings=replace(PATIENT, returned_s=0.0), does=does) as site:
        page = await browser.new_page(viewport={"width": 1280, "height": 400})
        await page.goto(site.address)
        await page.screenshot(path=pictures / "now-quiet.png")
        page = await browser.new_page(viewport={"width": SCREENS["phone"][0], "height": SCREENS["phone"][1]})
        machines = {"gpu-a17": [0, 1], "gpu-a18": [2, 3], "gpu-a19": [4, 5]}
        async with cluster(site.on, **machines) as agents, site.on.agent("gpu-a20") as spare:
            await spare.hello()  # else nothing could take the place of whoever is isolated, and a bound forbids it
            asking = asyncio.create_task(site.on.snapshot("llama", rounds=2, job_toml="[topology]\ndp = 6\n"))
            orders = [await agent.order() for agent in agents]
            await page.goto(f"{site.address}/incidents/{orders[0].order}")
            await page.screenshot(path=pictures / "live-looking.png")
            stacks = (("backward", "backward"), ("backward", "backward"), ("loader", "backward"))
            for agent, order, two in zip(agents, orders, stacks, strict=True):
                traces = [
                    trace(agents.index(agent) * 2 + at, stack, state=ASLEEP.get(stack, "S"))
                    for at, stack in enumerate(two)
                ]
                await agent.answer(order, *traces)
                await agent.answer(order, *traces, look=1, last=True)
            await asking
            await page.get_by_text("waits for approval").first.wait_for()
            await page.screenshot(path=pictures / "live-judged.png")
            await site.http.post(f"/api/incidents/{orders[0].order}/approve", json={"because": "fan 3 is dead"})
            await page.get_by_text("is out of use").first.wait_for()
            await page.screenshot(path=pictures / "live-acted.png")


async def run(sizes: list[int], pictures: Path | None) -> None:
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with tempfile.TemporaryDirectory() as folder:
        async with async_playwright() as driver:
            browser = await driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            print(
                f"{'ranks':>8} {'judge s':>7} {'scene s':>7} {'page s':>7} {'KiB':>8} {'wide ms':>8} {'phone ms':>8} {'long ms':>8} {'stall ms':>8}"
            )
            files = {}
            for ranks in sizes:
                files[ranks], cost = drawn(ranks, Path(folder))
                times = [await painted(browser, files[ranks], size) for size in SCREENS.values()]
                long = await opening_ms(browser, files[ranks])
                stall = await stalled_ms(browser, files[ranks])
                print(f"{ranks:8} {cost} {times[0]:8.0f} {times[1]:8.0f} {long:8.0f} {stall:8.0f}", flush=True)
            print(f"load {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores")
            for name, (ranks, screen, part) in PICTURES.items() if pictures else ():
                file = files.get(ranks) or drawn(ranks, Path(folder))[0]
                page = await opened(browser, file, SCREENS[screen])
                await page.locator("#icicle svg").wait_for()
                path = (pictures or Path()) / f"{name}.png"
                await (page.locator(part).screenshot(path=path) if part else page.screenshot(path=path))
            for name in RECORDED if pictures else ():  # one screen of each: what somebody sees who does not scroll
                if not RECORDED[name].path.is_dir():
                    print(f"no picture of real-{name}: {NO_CORPUS}", file=sys.stderr)
                    continue
                page = await opened(browser, of_recorded(name, Path(folder)), SCREENS["wide"])
                await page.locator("#icicle svg").wait_for()
                await page.screenshot(path=(pictures or Path()) / f"real-{name}.png")
            if pictures:
                await live(browser, Path(folder), pictures)
            await browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("ranks", nargs="*", type=int)
    parser.add_argument("--pictures", type=Path)
    given = parser.parse_args()
    asyncio.run(run(given.ranks or list(SIZES), given.pictures))


if __name__ == "__main__":
    main()
