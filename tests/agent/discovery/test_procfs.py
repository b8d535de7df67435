"""Reading /proc: odd names, vanished processes, and what is never kept."""

import os
from pathlib import Path

import pytest

from hangdog_agent.procfs import Proc, Stat, parse_arguments, parse_environ, parse_stat, parse_status
from hangdog_models.stack import Reason
from support.fakes import targets
from support.fakes.targets import WAIT, running

#: 52 fields of proc(5); those we read hold numbers that tell them apart.
LINE = "7 ({}) S 3 " + " ".join("11" if field == 14 else "5" if field == 15 else str(field) for field in range(5, 53))


@pytest.mark.parametrize("name", ["python", "pt_data_worker", "a b", "a) R 1 (b", ")", "(", ""])
def test_a_name_may_hold_anything(name: str) -> None:
    assert parse_stat(LINE.format(name)) == Stat(7, name, "S", 3, 16, 22, 50)


@pytest.mark.parametrize(
    "text", ["", "7", "7 (python)", "7 (python) S 1 2", "x (python) S " + "1 " * 50, "7 (p) S " + "x " * 50]
)
def test_what_is_no_line_of_stat_is_none(text: str) -> None:
    assert parse_stat(text) is None


def test_a_real_process_with_brackets_in_its_name() -> None:
    name = "x) Z 1 (y"
    with running(f"open('/proc/self/comm', 'w').write({name!r})\n{WAIT}") as target:
        stat = targets.proc.stat(target.pid)
        assert stat is not None
        assert (stat.comm, stat.state, stat.parent) == (name, "S", os.getpid())
        assert stat.started == targets.proc.stat(target.pid, target.pid).started  # type: ignore[union-attr]
        assert stat.image > 0


def test_every_reading_of_a_vanished_process_is_a_value() -> None:
    with running(WAIT) as target:
        pid = target.pid
        targets.end(target)
    proc = targets.proc
    assert proc.stat(pid) is None
    assert proc.status(pid) is None
    assert proc.stat(pid, pid) is None
    assert proc.tids(pid) == ()
    assert (proc.wchan(pid), proc.syscall(pid), proc.executable(pid)) == ("", "", "")
    assert proc.arguments(pid) == ()
    assert proc.raw(pid, "environ") is Reason.EXITED


def test_status_of_this_process() -> None:
    status = targets.proc.status(os.getpid())
    assert status is not None
    assert (status.tracer, status.uid, status.pids[0]) == (0, os.getuid(), os.getpid())


def test_status_of_nothing_is_all_unknown() -> None:
    assert parse_status("TracerPid:\nUid: x\nNSpid:\n\nnonsense") == parse_status("")


def test_only_allowed_variables_are_kept() -> None:
    read = b"RANK=3\0AWS_SECRET_ACCESS_KEY=abc\0RANK=4\0NOT A VARIABLE\0=\0WORLD_SIZE=\xff"
    assert parse_environ(read, frozenset({"RANK", "WORLD_SIZE"})) == {"RANK": "3", "WORLD_SIZE": "�"}


def test_arguments_may_be_empty_or_no_text() -> None:
    assert parse_arguments(b"python\0\0--x=\xff\0") == ("python", "", "--x=\udcff")
    assert parse_arguments(b"") == ()
    assert parse_arguments(Reason.EXITED) == ()


def test_a_drawn_world_stands_in_for_the_real_one(tmp_path: Path) -> None:
    (tmp_path / "7" / "task" / "7").mkdir(parents=True)
    (tmp_path / "self").mkdir()
    (tmp_path / "7" / "stat").write_text(LINE.format("python"))
    (tmp_path / "7" / "wchan").write_text("0")
    (tmp_path / "7" / "cmdline").write_bytes(b"python\0train.py\0")
    proc = Proc(tmp_path)
    assert proc.pids() == (7,)
    assert proc.tids(7) == (7,)
    assert proc.stat(7) is not None
    assert proc.stat(7, 7) is None
    assert proc.wchan(7) == ""
    assert proc.arguments(7) == ("python", "train.py")
    assert proc.setting("sys/kernel/yama/ptrace_scope") is None
