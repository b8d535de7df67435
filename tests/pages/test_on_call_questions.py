"""What people on call ask is answered within two clicks and by one command each, as docs/on-call-questions.md says."""

import asyncio
import itertools
import re
import shlex
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from playwright.async_api import Page

from hangdog.main import main
from hangdog_models.actions.caps import Mode
from hangdog_models.actions.respond import ResponseDecision
from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.incident import ResponseKind, SettledCause
from hangdog_server.actions.backends.actions_config import ActionsConfig
from hangdog_server.actions.backends.exclude_file import ExcludeFile
from hangdog_server.auth import tokens
from hangdog_server.auth.tokens import Role
from hangdog_server.listener import ListenerConfig
from hangdog_server.store import actions
from hangdog_server.store.history import responses
from support.cases.stories import trace
from support.real.browser import PHONE, browser, watched
from support.servers.browsed import Browsed, browsed
from support.servers.cast import NOON, PATIENT, Agent, cluster
from support.servers.cast_acting import WIDE

pytestmark = [pytest.mark.slow, pytest.mark.parallel, pytest.mark.timeout(400)]

PAGE = Path(__file__).parents[2] / "docs" / "on-call-questions.md"
#: What the page says, and what the command: the answer to each question. MACHINE and OTHER are an incident's machine, and
#: what an earlier one of its kind was.
ANSWERS = {
    "Which job hangs?": ("llama stands still: c holds it up", "llama"),
    "Since when?": ("What happened when", "what happened when"),
    "Which machine?": ("c holds the job up", " c "),
    "Why do you think so?": ("rank 4 is waiting for storage", "rank 4 is waiting for storage"),
    "Is it safe to isolate it?": ("c is taken out of use by exclude-file, if the bounds still allow it.", "waiting"),
    "What has been done already, and by whom?": ("eve notes: the filer is slow", "eve notes: the filer is slow"),
    "Did the job go on?": ("stands still: c holds it up", "stands still"),
    "Has this happened before?": ("resolved by ada: machine (c), a dead fan", "seen before"),
    "What do I tell the job's owner?": ("# llama: machine: c holds the job up", "machine: c holds the job up"),
    "What if you are wrong?": ("No machine is taken to be at fault", "dismissed"),
}  # fmt: skip
QUESTIONS = dict(part.split("\n", 1) for part in re.split(r"^## ", PAGE.read_text("utf-8"), flags=re.MULTILINE)[1:])


def clicks(question: str) -> list[str]:
    """The links to click, from the first page on."""
    way = re.search(r"^- Click: (.+)$", QUESTIONS[question], re.MULTILINE)
    assert way is not None, question
    first, *then = re.findall(r"\*\*(.+?)\*\*", way[1])
    assert first == "Now"
    return then


def command(question: str) -> str:
    (line,) = re.findall(r"^- Type: `hangdog (.+)`$", QUESTIONS[question], re.MULTILINE)
    return str(line)


def test_the_page_has_ten_questions_each_within_two_clicks() -> None:
    assert list(QUESTIONS) == list(ANSWERS) and len(QUESTIONS) == 10
    for question in QUESTIONS:
        assert len(clicks(question)) <= 2, question
        assert command(question)


async def looked_at(agent: Agent) -> None:
    """Answers two looks at the job, which are the same: rank 4 waits for its disk, all others for it."""
    order = await agent.order()
    ranks = {"a": (0, 1), "b": (2, 3), "c": (4, 5)}[agent.machine]
    stacks = {rank: "disk" if rank == 4 else "scatter" for rank in ranks}
    traces = [trace(rank, stack, state="" if stack == "disk" else "S") for rank, stack in stacks.items()]
    await agent.answer(order, *traces)
    await agent.answer(order, *traces, look=1, last=True)


@asynccontextmanager
async def hanging(folder: Path) -> AsyncIterator[tuple[Browsed, str, str]]:
    """A job that hangs for the second time, and waits for somebody; the latest incident, and the token of one who may act."""
    file, ticks = folder / "tokens.json", itertools.count()
    does = ActionsConfig(Mode.APPROVE, WIDE, (ExcludeFile(folder / "excluded"),), folder / "stop")
    door = ListenerConfig(tokens=file, audit=folder / "audit.jsonl")
    settings = replace(PATIENT, returned_s=0.0)
    async with AsyncExitStack() as stack:
        site = await stack.enter_async_context(
            browsed(
                folder / "s.db", diagnose, door, settings=settings, does=does, clock=lambda: NOON + next(ticks) / 1e4
            )
        )
        spare = await stack.enter_async_context(site.on.agent("x"))
        await spare.hello()
        agents = await stack.enter_async_context(cluster(site.on, a=[0, 1], b=[2, 3], c=[4, 5]))
        found = []
        for _ in range(2):
            asked = asyncio.create_task(site.on.snapshot("llama", rounds=2, job_toml="[topology]\ndp = 6\n"))
            await asyncio.gather(*map(looked_at, agents))
            found.append(str((await asked)[-1].incident))
            async with asyncio.timeout(60):
                while not await site.on.store.ask(actions.of, found[-1]):
                    await asyncio.sleep(0.02)
            if len(found) == 1:
                cause = SettledCause("machine", ("c",), "a dead fan", "ada", NOON + 1)
                await site.on.store.do(responses.resolve, found[0], cause)
        note = ResponseDecision(ResponseKind.NOTED, "eve", NOON + 2, "the filer is slow")
        await site.on.store.do(responses.respond, found[-1], note)
        yield site, found[-1], tokens.new(file, "ada", Role.ACT, NOON)  # from now on whoever asks has one


async def shown(page: Page, then: list[str]) -> str:
    """What the page says at the end of a way; of a download its text."""
    for name in then:
        link = page.get_by_role("link", name=name.replace("gpu-a17", "c")).first
        if await link.get_attribute("download") is not None:
            async with page.expect_download() as taken:
                await link.click()
            return Path(await (await taken.value).path()).read_text("utf-8")
        async with page.expect_navigation():
            await link.click()
    return re.sub(r"\s+", " ", await page.locator("main").inner_text())


async def test_each_question_is_answered_where_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        browser() as chromium,
        hanging(tmp_path) as (site, incident, token),
        watched(chromium, PHONE, ours=site.address) as seen,
    ):
        monkeypatch.setenv("HANGDOG_TOKEN", token)
        await seen.page.goto(f"{site.address}/login?next=/")
        await seen.page.get_by_label("Your token").fill(token)
        await seen.page.get_by_role("button", name="Log in").click()
        await seen.page.locator("h1.headline").wait_for()
        for question, (on_page, typed) in ANSWERS.items():
            await seen.page.goto(site.address)
            told = await shown(seen.page, clicks(question))
            assert on_page in told, f"{question} {told[:2000]}"
            # left first: a page that asks what a command then decides is refused its next update
            await seen.page.goto(site.address)
            line = command(question).replace("gpu-a17", "c").replace("3fa9", incident)
            words = [*shlex.split(line), "--server", site.on.address]
            result = await asyncio.to_thread(CliRunner().invoke, main, words)
            assert result.exit_code in (0, 1, 2) and typed in result.stdout, f"{question} {line}: {result.output}"
