"""The whole demo, for real: every fault is found, three times with the soak, and nothing of it survives, however it ends."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import IO

import pytest

from hangdog.demo.demo_plan import draw_plan

#: Seeds by fault, three each, so that every rank is broken at least once and each fault on both pipeline stages.
SEEDS = {
    "dataloader": (2, 31, 12),
    "sigstop": (1, 8, 22),
    "lock": (7, 13, 16),
    "skip-collective": (0, 9, 25),
    "checkpoint": (5, 10, 17),
    "gc": (20, 26, 27),
}
#: A run takes some 25 s on two idle cores; this bounds one on a machine that is busy with something else. Seconds.
RUN_S = 300.0
#: The variable by which this test knows the processes it caused; the demo passes it on like any other.
TOKEN = "TOKEN_OF_A_DEMO_TEST"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(2 * RUN_S),
    pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed: pip install 'hangdog[demo]'"),
]


class Run:
    """One `hangdog demo`, its temporary files and all processes that come of it."""

    def __init__(self, *options: str) -> None:
        # not pytest's tmp_path: the sockets of loader workers lie below, and their path may have 107 characters only
        self.files = Path(tempfile.mkdtemp(prefix="hd-"))
        self.token = f"{TOKEN}={uuid.uuid4()}"
        environ = os.environ | {"TMPDIR": str(self.files)} | dict([self.token.split("=")])
        command = (sys.executable, "-m", "hangdog", "demo", *options)
        self.process = subprocess.Popen(
            command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )

    def read_until(self, text: str, stream: IO[str] | None = None) -> str:
        stream = stream or self.process.stdout
        assert stream is not None
        for line in stream:
            if text in line:
                return line
        pytest.fail(f"the demo ended before it said {text!r}: {self.process.communicate()}")

    def survivors(self) -> dict[int, str]:
        """The processes of this run that are left, with their command lines."""
        found: dict[int, str] = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and self.token.encode() in _read(entry / "environ").split(b"\0"):
                found[int(entry.name)] = _read(entry / "cmdline").replace(b"\0", b" ").decode("utf-8", "replace")
        return found


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # it has ended, or is of another user
        return b""


@pytest.fixture
def runs() -> Iterator[list[Run]]:
    started: list[Run] = []
    yield started
    for run in started:
        for pid in run.survivors():
            os.kill(pid, signal.SIGKILL)
        run.process.communicate()
        shutil.rmtree(run.files, ignore_errors=True)


def start(runs: list[Run], *options: str) -> Run:
    runs.append(Run(*options))
    return runs[-1]


@pytest.mark.parametrize(
    ("fault", "seed"),
    [
        # two of the faults with every change, by turns from another place of the three: all 18 take seven minutes
        pytest.param(fault, seed, marks=() if at == turn % len(seeds) and turn % 3 == 0 else pytest.mark.soak)
        for turn, (fault, seeds) in enumerate(SEEDS.items())
        for at, seed in enumerate(seeds)
    ],
)
def test_the_right_machine_is_named(runs: list[Run], fault: str, seed: int) -> None:
    run = start(runs, "--fault", fault, "--seed", str(seed), "--format", "json")
    stdout, stderr = run.process.communicate(timeout=RUN_S)
    assert stdout, stderr
    document = json.loads(stdout)
    assert document["right"], (document, stderr)
    assert run.process.returncode == 0
    assert document["truth"]["rank"] == draw_plan(seed, fault).rank
    verdict, machine = document["verdict"], document["truth"]["machine"]
    if fault == "skip-collective":
        assert (verdict["verdict"], verdict["evict"]["machines"]) == ("software", [])
    else:
        assert verdict["culprit"]["machines"] == [machine] and verdict["suspects"][0]["machines"] == [machine]
        assert verdict["evict"]["machines"] in ([machine], [])
    assert "step   1   loss" in stderr
    assert not run.survivors()
    assert not list(run.files.iterdir())


def test_a_job_that_merely_pauses_before_its_standstill_is_asked_about_again(runs: list[Run]) -> None:
    """A busy machine may hold all of it up while loaders still have batches in stock; then the first verdict is none."""
    run = start(runs, "--fault", "dataloader", "--seed", "2", "--format", "json")
    told = run.read_until("a fault is injected", run.process.stderr)
    trainers = [pid for pid, command in run.survivors().items() if "hangdog.demo.job.train" in command]
    for pid in trainers:
        os.kill(pid, signal.SIGSTOP)
    told += run.read_until("hangdog is asked why", run.process.stderr)
    for pid in trainers:
        os.kill(pid, signal.SIGCONT)
    stdout, rest = run.process.communicate(timeout=RUN_S)
    document = json.loads(stdout)
    assert "the job went on" in rest, told + rest
    assert document["right"], (document, told + rest)


def test_it_stays_to_be_looked_at_and_the_evidence_it_keeps_gives_the_same_verdict(
    runs: list[Run], tmp_path: Path
) -> None:
    run = start(runs, "--fault", "checkpoint", "--seed", "5", "--keep", str(tmp_path / "kept"), "--stay")
    address = run.read_until("pages ").split()[1]
    with urllib.request.urlopen(address, timeout=RUN_S) as answer:
        page = answer.read().decode()
    headline = page[page.index("<h1") : page.index("</h1>")]
    assert "stands still: perhaps " in headline and "no machine" not in headline
    machine = draw_plan(5, "checkpoint").machine
    assert f'<b><a href="/machines/{machine}">{machine}</a></b>' in page, "it is suspected"
    run.process.send_signal(signal.SIGINT)
    stdout, stderr = run.process.communicate(timeout=RUN_S)
    assert run.process.returncode == 0, stdout + stderr
    assert not run.survivors()
    triage = subprocess.run(
        (sys.executable, "-m", "hangdog", "triage", str(tmp_path / "kept"), "--format", "json"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert triage.returncode == 1, triage.stderr
    verdict = json.loads(triage.stdout)
    assert verdict["culprit"]["machines"] == [draw_plan(5, "checkpoint").machine]
    assert not verdict["evidence"]["unreadable"]


@pytest.mark.parametrize(
    ("moment", "number", "status"),
    [
        ("server and agents start", signal.SIGINT, 130),
        pytest.param("step   2", signal.SIGINT, 130, marks=pytest.mark.soak),
        pytest.param("hangdog is asked why", signal.SIGINT, 130, marks=pytest.mark.soak),
        ("step   2", signal.SIGTERM, 128 + signal.SIGTERM),
    ],
)
def test_an_interrupt_leaves_nothing_behind(runs: list[Run], moment: str, number: signal.Signals, status: int) -> None:
    run = start(runs, "--fault", "sigstop", "--seed", "8")
    run.read_until(moment)
    assert run.survivors()
    run.process.send_signal(number)
    run.process.communicate(timeout=60)
    assert run.process.returncode == status
    assert not run.survivors()
    assert not list(run.files.iterdir())


@pytest.mark.parametrize("fault", [pytest.param("sigstop", marks=pytest.mark.soak), "dataloader"])
def test_not_even_a_kill_leaves_processes_behind(runs: list[Run], fault: str) -> None:
    """One rank is stopped, or its workers wait in the kernel: neither may outlive a conductor that cannot clean up."""
    run = start(runs, "--fault", fault, "--seed", "8")
    run.read_until("hangdog is asked why")
    assert len(run.survivors()) > 8 * 3
    run.process.kill()
    until = time.monotonic() + 30
    while run.survivors() and time.monotonic() < until:
        time.sleep(0.05)  # the kernel is at work; it tells nobody when it is done with processes that are not ours
    assert not run.survivors()
