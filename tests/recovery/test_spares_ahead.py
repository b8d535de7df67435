"""Spares are tested and warmed while the job runs: an eviction waits for nothing, and nothing waits for who does not answer."""

import asyncio
import contextlib
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hangdog.supervising.background_command import END_S, BackgroundCommand
from hangdog.supervising.descendants import kill, with_environ
from support.servers.cast import Stage, stage
from support.servers.tested import QUICK, Answer, Machine, broken, machine, machines, skipped, sound

pytestmark = [pytest.mark.slow, pytest.mark.parallel, pytest.mark.timeout(400)]

#: Much longer than anything here takes on a busy machine. Seconds.
PATIENCE_S = 100.0
#: Why a broken spare is not ready.
WHY = "one device: gemm: it fails"
#: A job of two machines. It ends well once `done` is there, and machine b fails once `broken` is there; each start is a line.
JOB = """
import sys, time
from pathlib import Path
machine, folder = sys.argv[1], Path(sys.argv[2])
with (folder / "starts").open("a") as starts:
    starts.write(machine + "\\n")
while not (folder / "done").exists():
    time.sleep(0.05)
    if machine == "b" and (folder / "broken").exists():
        sys.exit(3)
"""


class AheadScene:
    """`hangdog run` of JOB on a and b, with spares c, d and e tested ahead; tests of the stopped job convict b."""

    def __init__(self, folder: Path, server: str, *options: str) -> None:
        self.folder, self.mark = folder, ("MARK_OF_A_TEST", str(folder))
        (folder / "job.py").write_text(JOB)
        self.command = (
            *(sys.executable, "-m", "hangdog", "run", "--state", str(folder / "state"), "--grace", "1s"),
            *("--machine", "a", "--machine", "b", *(word for name in "cde" for word in ("--spare", name))),
            *("--attach", "--server", server, "--on-diagnose", "echo b", *options),
            *("--", sys.executable, str(folder / "job.py"), "{machine}", str(folder)),
        )
        self.process = self.start()

    def start(self) -> subprocess.Popen[bytes]:
        with (self.folder / "said").open("ab") as said:
            self.process = subprocess.Popen(self.command, env=os.environ | dict([self.mark]), stderr=said)
        return self.process

    def touch(self, name: str) -> None:
        (self.folder / name).touch()

    def said(self) -> str:
        return (self.folder / "said").read_text()

    def history(self) -> list[dict[str, Any]]:
        path = self.folder / "state" / "history.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def outcomes(self) -> list[tuple[str, str]]:
        return [(one["machine"], one["outcome"]) for one in self.history() if one["entry"] == "spare-tested"]

    def starts(self) -> list[str]:
        path = self.folder / "starts"
        return path.read_text().split() if path.exists() else []

    async def until(self, true: Callable[[], bool]) -> None:
        until = time.monotonic() + PATIENCE_S
        while not true():
            assert time.monotonic() < until, self.said()
            await asyncio.sleep(0.05)

    async def finish(self, status: int = 0) -> str:
        """Lets the job end, and waits for its supervisor; nothing of it is left."""
        self.touch("done")
        await self.until(lambda: self.process.poll() is not None)
        assert self.process.returncode == status, self.said()
        assert not with_environ(*self.mark)
        return self.said()


@pytest.fixture
async def on(tmp_path: Path) -> AsyncIterator[Stage]:
    async with stage(tmp_path / "s.db", settings=QUICK) as on:
        yield on


@contextlib.contextmanager
def ahead(folder: Path, server: str, *options: str) -> Iterator[AheadScene]:
    scene = AheadScene(folder, server, *options)
    try:
        yield scene
    finally:
        kill(with_environ(*scene.mark), signal.SIGKILL)
        scene.process.kill()
        scene.process.wait()


LEVEL = ("--spare-level", "1", "--spare-ahead")
PASSED = [(name, "passed") for name in "cde"]


def campaigns(played: Machine) -> int:
    """How many campaigns a machine was tested in; each has several launches."""
    return len({order.launch.partition("-")[0] for order in played.orders})


async def test_spares_pass_one_after_the_other_and_one_of_them_takes_a_place_without_a_test(
    on: Stage, tmp_path: Path
) -> None:
    async with machines(on, c=sound, d=sound, e=sound) as played:
        with ahead(tmp_path, on.address, *LEVEL) as scene:
            await scene.until(lambda: scene.outcomes() == PASSED)
            assert scene.starts() == ["a", "b"] or scene.starts() == ["b", "a"], "the job went on meanwhile"
            orders = sum(len(one.orders) for one in played.values())
            scene.touch("broken")
            await scene.until(lambda: "attempt 2 starts on a, c" in scene.said())
            said = await scene.finish()
    assert re.search(r"\bc passed .*ahead", said)
    assert "testing c" not in said
    assert sum(len(one.orders) for one in played.values()) == orders, "a pass that counts is not repeated"


async def test_one_that_fails_is_kept_out_and_a_person_is_told_while_the_job_goes_on(on: Stage, tmp_path: Path) -> None:
    hook = shlex.join(
        ["sh", "-c", f'echo "$HANGDOG_STEP $HANGDOG_STEP_MACHINES $HANGDOG_STEP_BECAUSE" >> {tmp_path}/told']
    )
    async with machines(on, c=broken(1), d=sound, e=sound):
        with ahead(tmp_path, on.address, *LEVEL, "--on-spare", hook) as scene:
            await scene.until(lambda: scene.outcomes()[:2] == [("c", "convicted"), ("d", "passed")])
            await scene.until((tmp_path / "told").exists)
            scene.touch("broken")
            await scene.until(lambda: "attempt 2 starts on a, d" in scene.said())
            said = await scene.finish()
    assert (tmp_path / "told").read_text() == f"spare c {WHY}\n"
    assert len(re.findall(rf"\bspare c .*not ready: {WHY}", said)) == 1


async def test_an_eviction_waits_for_the_test_that_is_running_and_holds_no_second_one(
    on: Stage, tmp_path: Path
) -> None:
    late: Answer = lambda order: None
    async with machines(on, c=late, d=sound, e=sound) as played:
        with ahead(tmp_path, on.address, *LEVEL, "--spare-budget", "10m") as scene:
            order = await played["c"].ordered()
            scene.touch("broken")
            await scene.until(lambda: "waiting for the test of c to end" in scene.said())
            played["c"].answer = sound
            await played["c"]._obey(order)
            await scene.until(lambda: "attempt 2 starts on a, c" in scene.said())
            said = await scene.finish()
            assert campaigns(played["c"]) == 1
    assert "testing c" not in said


async def test_a_supervisor_that_is_killed_forgets_no_pass(on: Stage, tmp_path: Path) -> None:
    async with machines(on, c=sound, d=sound, e=sound) as played:
        with ahead(tmp_path, on.address, *LEVEL) as scene:
            await scene.until(lambda: scene.outcomes() == PASSED)
            scene.process.kill()
            await asyncio.to_thread(scene.process.wait)
            scene.start()
            await scene.until(lambda: "attempt 2 starts on a, b" in scene.said())
            scene.touch("broken")
            await scene.until(lambda: "attempt 3 starts on a, c" in scene.said())
            await scene.finish()
    assert [campaigns(played[name]) for name in "cde"] == [1, 1, 1]


async def test_a_campaign_ends_with_the_job_that_asked_for_it(on: Stage, tmp_path: Path) -> None:
    never: Answer = lambda order: None
    async with machines(on, c=never, d=sound, e=sound) as played:
        with ahead(tmp_path, on.address, *LEVEL) as scene:
            order = await played["c"].ordered()
            await scene.finish()
            await played["c"].ended(order.launch)
    assert scene.outcomes() == []


async def test_a_pass_that_is_too_old_is_renewed(on: Stage, tmp_path: Path) -> None:
    async with machines(on, c=sound, d=sound, e=sound):
        with ahead(tmp_path, on.address, *LEVEL, "--spare-age", "1s") as scene:
            await scene.until(lambda: scene.outcomes().count(("c", "passed")) == 2)
            await scene.finish()


async def test_where_nobody_can_be_tested_yet_it_is_said_once_and_tried_again(on: Stage, tmp_path: Path) -> None:
    bare: Answer = lambda order: skipped(order.levels[0], "torch is not installed")
    async with machine(on, "d", bare):
        with ahead(tmp_path, on.address, *LEVEL) as scene:
            await scene.until(lambda: len(scene.outcomes()) == 3)
            assert scene.outcomes() == [("c", "unanswered"), ("d", "doubtful"), ("e", "unanswered")]
            said = await scene.finish()
    assert re.search(r"\bspare c .*not ready: .*: c: .*not connected", said)
    assert re.search(r"\bspare d .*not ready: .*: torch is not installed", said)


@pytest.mark.parametrize("kind", ["silent", "gone"])
async def test_a_server_that_hangs_or_is_gone_holds_nothing_up(tmp_path: Path, kind: str) -> None:
    """One that takes connections and never answers; and one that nobody listens for."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}" if kind == "silent" else "127.0.0.1:1"
        with ahead(tmp_path, address, *LEVEL) as scene:
            await scene.until((tmp_path / "state" / "spares" / "c.log").exists)
            await asyncio.sleep(1.0)
            began = time.monotonic()
            await scene.finish()
    assert time.monotonic() - began < PATIENCE_S / 2
    assert {outcome for _, outcome in scene.outcomes()} <= {"unanswered"}


async def test_what_a_lying_server_writes_without_an_end_is_cut(tmp_path: Path) -> None:
    """The command that asks the server is one that floods both of its files."""
    flood = (sys.executable, "-c", "import os\nwhile True:\n    os.write(1, b'x' * 65536); os.write(2, b'x' * 65536)")
    process = BackgroundCommand(flood, os.environ, tmp_path / "out", tmp_path / "log", 60.0, 1 << 20)
    until = time.monotonic() + PATIENCE_S
    while (result := process.result()) is None and time.monotonic() < until:
        await asyncio.sleep(0.05)
    assert (result and "File too large" in "".join(process.printed()) + result) or process.status
    assert (tmp_path / "out").stat().st_size <= 1 << 20


async def test_a_command_that_does_not_end_is_ended_with_its_children(tmp_path: Path) -> None:
    mark = ("MARK_OF_A_TEST", str(tmp_path))
    stubborn = ("sh", "-c", "trap '' INT; sleep 600 & sleep 600")
    process = BackgroundCommand(stubborn, os.environ | dict([mark]), tmp_path / "log", tmp_path / "log", 0.5)
    slowest, until = 0.0, time.monotonic() + PATIENCE_S
    while True:
        began = time.monotonic()
        result = process.result()
        slowest = max(slowest, time.monotonic() - began)
        if result is not None or time.monotonic() > until:
            break
        await asyncio.sleep(0.05)
    assert result is not None and "not end" in result and result.endswith(" 0.5 s")
    assert slowest < END_S, "a look waits for nothing"
    while with_environ(*mark) and time.monotonic() < until:
        await asyncio.sleep(0.05)
    assert not with_environ(*mark)


async def test_each_spare_is_warmed_once_and_a_command_that_fails_keeps_none_out(on: Stage, tmp_path: Path) -> None:
    """Without tests, too: what `warm` wrote stands once for each, over two supervisors."""
    warm = shlex.join(["sh", "-c", f'echo "$0" >> {tmp_path}/warmed; echo no disk; test "$0" != d', "{machine}"])
    with ahead(tmp_path, "127.0.0.1:1", "--warm-spare", warm) as scene:
        await scene.until(lambda: "spare e is warm" in scene.said())
        scene.process.kill()
        scene.process.wait()
        scene.start()
        await scene.until(lambda: "attempt 2 starts" in scene.said())
        scene.touch("broken")
        await scene.until(lambda: "attempt 3 starts on a, c" in scene.said())
        said = await scene.finish()
    warmed = (tmp_path / "warmed").read_text().split()
    assert warmed[:3] == ["c", "d", "e"] and set(warmed[3:]) <= {"d"}, "only what failed is tried again"
    assert re.search(r"\bspare d .*NOT warm: status 1: no disk", said)


async def test_a_spare_that_is_being_warmed_is_taken_and_its_command_goes_on(tmp_path: Path) -> None:
    warm = shlex.join(["sh", "-c", f"sleep 5; touch {tmp_path}/warmed-$0", "{machine}"])
    with ahead(tmp_path, "127.0.0.1:1", "--warm-spare", warm) as scene:
        await scene.until((tmp_path / "state" / "spares" / "c.log").exists)
        scene.touch("broken")
        await scene.until(lambda: "attempt 2 starts on a, c" in scene.said())
        await scene.until((tmp_path / "warmed-c").exists)
        await scene.finish()


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        (("--spare", "c", "--spare-ahead"), "say which: --spare-level 1"),
        (("--spare", "c", "--spare-level", "1", "--on-spare", "true"), "ask for them: --spare-ahead"),
        (("--warm-spare", "true"), "name one: --spare NAME"),
        (("--spare", "c", "--warm-spare", "sh -c 'open"), "quote it as in a shell"),
    ],
)
def test_options_that_lack_another_are_refused_before_anything_starts(
    tmp_path: Path, options: tuple[str, ...], hint: str
) -> None:
    command = (sys.executable, "-m", "hangdog", "run", "--state", str(tmp_path / "state"), *options, "--", "true")
    ran = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (ran.returncode, hint in ran.stderr) == (64, True), ran.stderr
    assert not (tmp_path / "state").exists()


def test_a_job_with_too_few_spares_says_so_once(tmp_path: Path) -> None:
    names = [word for name in ("a", "b", "c") for word in ("--machine", name)]
    command = (sys.executable, "-m", "hangdog", "run", "--state", str(tmp_path / "state"), *names)
    attached = ("--attach", "--server", "127.0.0.1:1", "--", "true")
    ran = subprocess.run((*command, *attached), capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert ran.returncode == 0
    assert ran.stderr.count("3 machines with no spare: 1 ") == 1
