"""Logs as JSON: one object a line whatever is said, with what it is about; lines for people stay as they were."""

import asyncio
import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hangdog_proto.logs import JsonFormatter, log_context
from support.servers.cast import cluster, stage, trainer

log = logging.getLogger("hangdog_tests")


class Lines(logging.Handler):
    """Keeps what a log store would read."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(JsonFormatter({"site": "hall-2"}))
        self.lines: list[dict[str, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        line = self.format(record)
        assert "\n" not in line
        self.lines.append(json.loads(line))


@pytest.fixture
def lines() -> Iterator[list[dict[str, str]]]:
    handler, root = Lines(), logging.getLogger()
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    yield handler.lines
    root.setLevel(before)
    root.removeHandler(handler)


def test_a_record_is_one_object_on_one_line(lines: list[dict[str, str]]) -> None:
    log.info("a %s of\n%d lines and \N{SNOWMAN}", "message", 2)
    (line,) = lines
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line.pop("time"))
    message = "a message of\n2 lines and \N{SNOWMAN}"
    assert line == {"level": "info", "logger": "hangdog_tests", "message": message, "site": "hall-2"}


def test_an_error_brings_its_traceback(lines: list[dict[str, str]]) -> None:
    try:
        raise ValueError("a bug")
    except ValueError:
        log.exception("failed")
    assert lines[0]["level"] == "error" and lines[0]["error"].splitlines()[-1] == "ValueError: a bug"


async def test_tasks_and_threads_speak_of_what_their_maker_does(lines: list[dict[str, str]]) -> None:
    with log_context(incident="3fa9", message="forged"):
        with log_context(job="llama"):
            task = asyncio.create_task(asyncio.to_thread(log.info, "within"))
        log.info("outside of the job")
    await task
    log.info("outside")
    told = {line["message"]: (line.get("incident"), line.get("job")) for line in lines}
    assert told == {"within": ("3fa9", "llama"), "outside of the job": ("3fa9", None), "outside": (None, None)}


async def test_the_server_says_which_machine_and_which_incident(tmp_path: Path, lines: list[dict[str, str]]) -> None:
    async with stage(tmp_path / "s.db") as on, cluster(on, a=[0]) as (a,):
        asking = asyncio.ensure_future(on.snapshot("llama"))
        order = await a.order()
        await a.answer(order, trainer(0), look=9)
        await a.answer(order, trainer(0))
        await asking
    (refused,) = (line for line in lines if "refused" in line["message"])
    assert (refused["machine"], refused["level"]) == ("a", "warning")
    (ended,) = (line for line in lines if "undetermined" in line["message"])
    assert (ended["incident"], ended["job"], "machine" in ended) == (order.order, "llama", False)


@pytest.mark.parametrize("form", ["json", "text"])
def test_the_agent_writes_the_form_it_is_told_to(form: str) -> None:
    command = (sys.executable, "-m", "hangdog_agent.main", "--server", "127.0.0.1:1", "--machine", "gpu-a17")
    mark = ("--match-env", f"HANGDOG_TEST_LOGS={os.getpid()}", "--log-format", form)
    with subprocess.Popen((*command, *mark), stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        line = next(line for line in process.stderr if "no connection to" in line)
        process.terminate()
    if form == "json":
        said = json.loads(line)
        assert (said["machine"], said["level"], said["logger"]) == (
            "gpu-a17",
            "warning",
            "hangdog_agent.connection.link",
        )
    else:
        assert re.match(r"\d{4}-\d\d-\d\d [\d:,]+ hangdog-agent: no connection to 127\.0\.0\.1:1 ", line)
