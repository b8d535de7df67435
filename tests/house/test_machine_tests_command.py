"""`hangdog test local` as people and Slurm use it: exit statuses, a report on stdout, and nothing left when it is ended."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import fields
from pathlib import Path

import pytest

from hangdog.commands.act.test import STATE
from hangdog_agent.machine_tests.settings import LevelSettings
from support.fakes.fake_gpus import FakeGpus, built

pytestmark = [pytest.mark.slow, pytest.mark.parallel]

DOCS = Path(__file__).resolve().parents[2] / "docs"
#: A Python without torch: levels that need it are skipped, and the others are quick.
NO_TORCH = "/usr/bin/false"


def call(*args: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "hangdog", "test", "local", "--python", NO_TORCH, *args)


def run(*args: str, **more: str) -> subprocess.CompletedProcess[str]:
    own = {name: os.environ[name] for name in ("HOME", "LANG") if name in os.environ}
    environ = {"PATH": "/nowhere", **own, **more}
    return subprocess.run(call(*args), capture_output=True, text=True, env=environ, check=False, timeout=60)


@pytest.mark.parametrize(
    ("args", "status", "said"),
    [
        (("--level", "5", "--", "/bin/true"), 0, "not convicted by 1 test, which is no proof of health"),
        (
            ("--level", "5", "--", "/bin/false"),
            1,
            "a test failed, for which this machine is not to blame yet: group this machine",
        ),
        (("--level", "1"), 2, "skipped  /usr/bin/false cannot run torch"),
        pytest.param(
            ("--level", "5", "--budget", "9s", "--", "/bin/sleep", "600"),
            1,
            "hangs: rank 0 did not answer within",
            marks=pytest.mark.slow,
        ),
    ],
    ids=["passes", "fails", "open", "hangs"],
)
def test_the_status_says_what_came_of_it(args: tuple[str, ...], status: int, said: str) -> None:
    ended = run(*args)
    assert (ended.returncode, said in ended.stdout) == (status, True), (ended.stdout, ended.stderr)
    assert "looking for devices" in ended.stderr


def test_the_report_is_one_json_object() -> None:
    ended = run("--level", "5", "--format", "json", "--processes", "2", "--", "/bin/true")
    document = json.loads(ended.stdout)
    assert (document["schema"], document["verdict"]) == ("hangdog.diagnosis/1", "not convicted")
    assert [result["test"] for result in document["levels"][0]["results"]] == ["rank 0", "rank 1"]


@pytest.mark.slow
def test_what_convicts_without_a_test_ends_a_gate_before_any_test(tmp_path: Path) -> None:
    library = built(tmp_path)
    if library is None:
        pytest.skip("no C compiler to build the fake NVML with: apt-get install gcc")
    gpus = FakeGpus(tmp_path / "answers", library)
    gpus.say("1/remap", "0 0 0 1")
    fake = {name: gpus.environ[name] for name in ("FAKE_NVML", "LD_LIBRARY_PATH")}
    ended = run("--first", "--format", "json", **fake)
    document = json.loads(ended.stdout)
    assert (ended.returncode, document["verdict"]) == (1, "convicted")
    convicts = [one for level in document["levels"] for result in level["results"] for one in result["convicts"]]
    assert convicts == [{"sort": "device", "names": ["GPU 1"]}]
    assert [level["level"] for level in document["levels"]] == [0, 1, 1, 2, 4]
    assert all(level["skipped"] for level in document["levels"][1:])
    assert "looking for devices" not in ended.stderr, "torch wakes a driver that may be sick"


@pytest.mark.parametrize(
    ("args", "status", "code"),
    [
        (("--level", "5"), 64, "missing-option"),
        (("--", "/bin/true"), 64, "missing-option"),
        (("--level", "3"), 64, "missing-option"),
        (("--level", "6"), 64, "wrong-arguments"),
        (("--budget", "soon"), 64, "wrong-arguments"),
        (("--budget", "0m"), 64, "wrong-arguments"),
        (("--golden", sys.executable), 65, "unreadable-file"),
    ],
)
def test_wrong_use_is_told(args: tuple[str, ...], status: int, code: str) -> None:
    ended = run(*args)
    assert (ended.returncode, ended.stdout) == (status, "") and f"[{code}]" in ended.stderr, ended.stderr


def test_a_report_of_something_else_is_no_stored_answer(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"schema": "hangdog.verdict/1"}')
    assert run("--golden", str(tmp_path / "x.json")).returncode == 65


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_ended_from_outside_it_leaves_nothing(number: int, status: int, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    program = f"import os, time; open({str(pids)!r}, 'w').write(f'{{os.getpid()}}\\n'); time.sleep(600)"
    asking = subprocess.Popen(
        call("--level", "5", "--", sys.executable, "-c", program), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    until = time.monotonic() + 30
    while not (pids.exists() and pids.read_text().endswith("\n")):
        assert asking.poll() is None and time.monotonic() < until
        time.sleep(0.02)
    asking.send_signal(number)
    asking.communicate(timeout=30)
    assert asking.returncode == status
    assert not Path(f"/proc/{pids.read_text().strip()}").exists()


def test_the_agent_keeps_its_memory_where_level_0_looks_for_it() -> None:
    unit = (DOCS.parent / "deploy/systemd/hangdog-agent.service").read_text(encoding="utf-8")
    assert f"StateDirectory={STATE.name}\n" in unit and STATE.parent == Path("/var/lib")


def test_every_setting_and_its_default_is_documented() -> None:
    page = (DOCS / "machine-tests.md").read_text(encoding="utf-8")
    for setting in fields(LevelSettings):
        assert f"| `{setting.name}` | {setting.default} |" in page, setting.name
