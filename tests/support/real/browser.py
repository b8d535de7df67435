"""A real browser that opens our pages: the distribution's Chromium, which sees to it that nothing breaks or is fetched from outside."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Literal

import pytest
from playwright.async_api import Browser, Page, async_playwright

#: What Debian and Ubuntu call it; a laptop may have Chrome.
NAMES = ("chromium", "chromium-browser", "google-chrome")
#: No step takes this long, however busy the machine. Milliseconds.
PATIENCE_MS = 120_000
WIDE, PHONE = (1280, 800), (375, 812)


@dataclass
class Watched:
    """A page, and what went wrong in it."""

    page: Page
    wrong: list[str] = field(default_factory=list)


@asynccontextmanager
async def browser() -> AsyncIterator[Browser]:
    """The browser, or the test is skipped with what to install."""
    path = next((found for name in NAMES if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip(f"no browser here: none of {', '.join(NAMES)} is installed (apt-get install chromium)")
    async with async_playwright() as driver:
        # without its own sandbox it runs as root in a container; it opens our pages alone
        chromium = await driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield chromium
        finally:
            await chromium.close()


@asynccontextmanager
async def watched(
    by: Browser,
    size: tuple[int, int] = WIDE,
    ours: str = "file:",
    scripts: bool = True,
    scheme: Literal["light", "dark"] = "light",
) -> AsyncIterator[Watched]:
    """A page of this size that may ask for `ours` alone; ends with what went wrong, if anything did."""
    context = await by.new_context(
        viewport={"width": size[0], "height": size[1]}, java_script_enabled=scripts, color_scheme=scheme
    )
    context.set_default_timeout(PATIENCE_MS)
    found = Watched(await context.new_page())
    found.page.on("console", lambda said: found.wrong.append(f"console: {said.text}"))
    found.page.on("pageerror", lambda error: found.wrong.append(f"error: {error}"))
    found.page.on("dialog", lambda dialog: found.wrong.append(f"dialog: {dialog.message}"))
    found.page.on(
        "request",
        lambda asked: (
            None if asked.url.startswith((ours, "data:", "blob:")) else found.wrong.append(f"request: {asked.url}")
        ),
    )
    try:
        yield found
        assert found.wrong == [], found.wrong
    finally:
        await context.close()
