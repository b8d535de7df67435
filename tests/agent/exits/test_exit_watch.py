"""Processes that end, with real ones: when, in which order and how, though they are none of the agent's children."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hangdog_agent.discovery.discover import Key
from hangdog_agent.exits.exit_watch import ExitWatch, ProcessExit
from hangdog_agent.exits.memory_kills import memory_kills
from hangdog_agent.procfs import Proc
from support.fakes import targets

SLEEPS = "import sys, time; print(1, flush=True); time.sleep(float(sys.argv[1])); {}"


@contextmanager
def watch(cgroups: Path = Path("/nowhere")) -> Iterator[ExitWatch]:
    one = ExitWatch(Proc(), cgroups)
    try:
        yield one
    finally:
        one.close()


@contextmanager
def process(end: str = "pass", seconds: float = 60.0) -> Iterator[subprocess.Popen[bytes]]:
    command = (sys.executable, "-c", SLEEPS.format(end), str(seconds))
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as one:
        assert one.stdout is not None and one.stdout.readline()
        try:
            yield one
        finally:
            one.kill()


def key(one: subprocess.Popen[bytes]) -> Key:
    return targets.row(one.pid).key


def ends(of: ExitWatch, count: int) -> list[ProcessExit]:
    found: list[ProcessExit] = []

    def enough() -> bool:
        found.extend(of.ended())
        return len(found) >= count

    targets.until(enough)
    return found


@pytest.mark.parametrize(
    ("end", "status"),
    [("pass", 0), ("raise ValueError", 1), ("import os; os._exit(3)", 3), ("import os; os.abort()", -signal.SIGABRT)],
)
def test_how_a_process_ended_is_known_before_it_is_reaped(end: str, status: int) -> None:
    with process(end, 0.3) as one, watch() as exits:
        exits.follow([key(one)])
        (ended,) = ends(exits, 1)
        assert (ended.key, ended.status, ended.oom) == (key(one), status, False)
        assert one.poll() == status, "it was left for its parent"


def test_the_order_is_that_in_which_they_ended() -> None:
    with process() as first, process() as second, process() as third, watch() as exits:
        exits.follow([key(one) for one in (first, second, third)])
        for one, number in ((second, signal.SIGSEGV), (first, signal.SIGKILL), (third, signal.SIGTERM)):
            one.send_signal(number)
            time.sleep(0.1)
        found = ends(exits, 3)
        assert [(one.key[0], one.status) for one in found] == [(second.pid, -11), (first.pid, -9), (third.pid, -15)]
        assert 0.05 < found[1].at - found[0].at < 1.0


def test_who_is_reaped_at_once_is_known_to_have_ended() -> None:
    shell = f"{sys.executable} -c 'import time; time.sleep(0.5); raise SystemExit(7)' & echo $!; wait"
    with subprocess.Popen(("sh", "-c", shell), stdout=subprocess.PIPE) as parent, watch() as exits:
        assert parent.stdout is not None
        child = targets.row(int(parent.stdout.readline())).key
        exits.follow([child])
        (ended,) = ends(exits, 1)
        assert ended.key == child and ended.status in (7, None)  # Linux before 6.15 forgets it with the process


def test_who_is_followed_no_longer_is_not_told() -> None:
    with process() as one, process() as other, watch() as exits:
        exits.follow([key(one), key(other)])
        exits.follow([key(other)])
        one.kill()
        other.kill()
        assert [each.key for each in ends(exits, 1)] == [key(other)]


def test_who_ended_while_nobody_had_time_to_notice_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ExitWatch, "_keep", lambda self: None)  # the thread never gets a processor
    with process() as one, watch() as exits:
        exits.follow([key(one)])
        one.kill()
        one.wait()
        exits.follow([])
        assert [(each.key[0], each.status in (-9, None)) for each in exits.ended()] == [(one.pid, True)]


def test_another_process_under_the_same_pid_is_not_followed() -> None:
    with process() as one, watch() as exits:
        pid, started = key(one)
        exits.follow([(pid, started + 1)])
        one.kill()
        one.wait()
        time.sleep(0.2)
        assert not exits.ended()


def test_a_kill_for_memory_in_its_control_group_belongs_to_its_end(tmp_path: Path) -> None:
    with process() as one, watch(tmp_path / "cgroup") as exits:
        for line in (tmp_path_of(one)).read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            name = "memory.events" if not controllers else "memory.oom_control"
            folder = tmp_path / "cgroup" / ("" if not controllers else "memory") / path.lstrip("/")
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text("oom 0\noom_kill 2\n")
        found = memory_kills(Proc(), tmp_path / "cgroup", one.pid)
        assert found is not None and found.count == 2 and not found.risen
        exits.follow([key(one)])
        found.file.write_text("oom 0\noom_kill 3\n")
        one.kill()
        assert ends(exits, 1)[0].oom


def tmp_path_of(one: subprocess.Popen[bytes]) -> Path:
    return Path(f"/proc/{one.pid}/cgroup")
