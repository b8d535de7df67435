"""The agent as a program: one look as JSON, its help, wrong use, and its end on a signal."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

import pytest

from hangdog_agent.capture.pyspy import PySpy
from hangdog_agent.capture.settings import CaptureSettings
from hangdog_agent.connection.settings import LinkSettings, SpoolSettings
from hangdog_agent.settings import AgentSettings, chosen
from hangdog_agent.stalls.settings import StallSettings
from support.fakes.targets import WAIT, running

pytestmark = [pytest.mark.slow, pytest.mark.parallel]

MARK = ("HANGDOG_TEST_MAIN", str(os.getpid()))
ENVIRON = dict([MARK], RANK="3", LOCAL_RANK="1", WORLD_SIZE="8", HANGDOG_JOB="once")
MATCH = ("--match-env", "=".join(MARK))


def agent(*arguments: str, environ: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hangdog_agent.main", *arguments]
    environ = {**os.environ, **(environ or {})}
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60, env=environ)


def test_one_look_is_one_json_document(spy: PySpy) -> None:
    with running(WAIT, "--api-key=hunter2", environ=ENVIRON) as target:
        ended = agent("--once", "--machine", "gpu-a17", *MATCH)
    assert ended.returncode == 0, ended.stderr
    document = json.loads(ended.stdout)
    assert document["machine"] == "gpu-a17"
    (job,) = document["jobs"]
    assert (job["name"], job["ranks"], job["world_size"]) == ("once", [3], 8)
    (trace,) = job["traces"]
    assert (trace["rank"], trace["role"], trace["pid"], trace["missing"]) == (3, "trainer", target.pid, None)
    assert "hunter2" not in ended.stdout


def test_nothing_to_look_at_is_said(spy: PySpy) -> None:
    ended = agent("--once", *MATCH)
    assert ended.returncode == 0
    assert json.loads(ended.stdout)["jobs"] == []
    assert "no training process" in ended.stderr


def test_the_help_names_every_option_and_what_a_job_may_announce() -> None:
    ended = agent("--help")
    assert ended.returncode == 0
    for word in ("--server", "--machine", "--match-env", "--once", "HANGDOG_JOB", "HANGDOG_TOPOLOGY", "hangdog doctor"):
        assert word in ended.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["--nonsense"],
        ["--match-env", "x"],
        ["--match-env", "=x"],
        ["--set", "look_s"],
        ["--set", "look_s=nan"],
        ["--set", "look_s=-1"],
        ["--set", "retries=1.5"],
        ["--set", "no_such_setting=1"],
    ],
)
def test_wrong_use_ends_with_64_and_says_what_to_do(arguments: list[str]) -> None:
    ended = agent(*arguments)
    assert ended.returncode == 64
    assert ended.stderr.startswith("hangdog-agent: ")
    assert len(ended.stderr.splitlines()) == 2


@pytest.mark.parametrize("name", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_cleanly_on_a_signal_though_no_server_answers(name: signal.Signals) -> None:
    command = [sys.executable, "-m", "hangdog_agent.main", "--server", "127.0.0.1:1", *MATCH]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert "no connection to 127.0.0.1:1" in process.stderr.readline()
        process.send_signal(name)
        rest = process.stderr.read()
        assert process.wait(10) == 0
    assert "Traceback" not in rest


def test_it_imports_nothing_heavy() -> None:
    program = "import sys, hangdog_agent.main, hangdog_agent.connection.link; print(' '.join(sys.modules))"
    modules = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert {"numpy", "click", "rich", "sklearn", "torch"}.isdisjoint(modules)


def test_every_setting_can_be_chosen() -> None:
    settings = chosen(["look_s=7.5", "workers=3", "scan_s=0.1", "look_s=8", "patience_s=9"])
    assert (settings.capture.look_s, settings.capture.pool(), settings.link.scan_s) == (8.0, 3, 0.1)
    assert settings.stalls.patience_s == 9.0
    assert chosen([]) == AgentSettings()


def test_every_setting_stands_in_the_docs_with_its_default() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "agent.md").read_text(encoding="utf-8")
    for field in (*fields(CaptureSettings), *fields(LinkSettings), *fields(StallSettings), *fields(SpoolSettings)):
        default = "by the cores" if field.default is None else str(field.default).removesuffix(".0")
        assert f"| `{field.name}` | {default} |" in page, field.name
