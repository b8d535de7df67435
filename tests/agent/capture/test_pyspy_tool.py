"""py-spy itself: found without PATH, and every way it may fail is a reason."""

import importlib.metadata
import os
import re
import shlex
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hangdog_agent.capture import pyspy
from hangdog_agent.capture.settings import CaptureSettings
from hangdog_agent.confinement.subprocesses import ProcessOutcome
from hangdog_models.stack import Missing, Reason
from support.fakes.targets import WAIT, letter, running, until

SETTINGS = CaptureSettings(stdout_bytes=1 << 20)


def fake(folder: Path, script: str) -> pyspy.PySpy:
    path = folder / "py-spy"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return pyspy.PySpy((str(path),))


def test_it_is_found_beside_us_and_never_on_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake(tmp_path, "echo py-spy 6.6.6")
    monkeypatch.setenv("PATH", str(tmp_path))
    tool = pyspy.load()
    assert isinstance(tool, pyspy.PySpy)
    assert tool.version == importlib.metadata.version("py-spy")


def test_a_package_that_is_not_installed_or_holds_no_binary() -> None:
    for distribution in ("no-such-distribution", "click"):
        missing = pyspy.load(distribution)
        assert isinstance(missing, Missing)
        assert missing.reason is Reason.TOOL_MISSING
        assert "pip install" in missing.message


@pytest.mark.skipif(
    os.geteuid() != 0 or not Path("/proc/sys/vm/memfd_noexec").exists(), reason="needs root and Linux 6.3"
)
@pytest.mark.parametrize(("forbidden", "in_memory"), [(1, True), (2, False)])
def test_it_runs_where_programs_in_memory_are_frowned_upon(forbidden: int, in_memory: bool) -> None:
    """The setting is that of a process namespace, so this machine's own stays as it is."""
    look = (
        "from hangdog_agent.capture.pyspy import load; tool = load(); print(tool.executable is not None, tool.version)"
    )
    script = (
        f"echo {forbidden} > /proc/sys/vm/memfd_noexec && exec {shlex.quote(sys.executable)} -c {shlex.quote(look)}"
    )
    made = ("unshare", "--pid", "--fork", "--mount-proc", "sh", "-c", script)
    said = subprocess.run(made, capture_output=True, text=True, timeout=30, check=True).stdout
    assert said.split() == [str(in_memory), importlib.metadata.version("py-spy")]


@pytest.mark.parametrize("blocking", [False, True])
def test_it_reads_a_process_and_lets_it_go(spy: pyspy.PySpy, blocking: bool) -> None:
    with running(WAIT) as target:
        threads = spy.dump(target.pid, 5.0, SETTINGS, blocking)
        assert not isinstance(threads, Missing)
        assert [frame.function for frame in threads[0].frames] == ["<module>", "stuck_here"]
        until(lambda: letter(target.pid) == "S")  # let go, it takes up its system call again


@pytest.mark.parametrize(
    ("script", "reason", "words"),
    [
        ("sleep 60", Reason.TIMED_OUT, "no answer within 0.5 s"),
        ("trap '' TERM INT HUP; while :; do :; done", Reason.TIMED_OUT, "no answer within 0.5 s"),
        ("sleep 60 & exit 0", Reason.TIMED_OUT, "no answer within 0.5 s"),
        ("exec cat /dev/zero", Reason.TOOL_FAILED, "bytes of output"),
        ("echo '[{'", Reason.TOOL_FAILED, "JSON"),
        ("echo '{}'", Reason.TOOL_FAILED, ""),
        ("echo '[]'", Reason.TOOL_FAILED, ""),
        ("head -c 100000 /dev/urandom", Reason.TOOL_FAILED, ""),
        ("head -c 100000 /dev/zero | tr '\\0' '['", Reason.TOOL_FAILED, ""),
        ("true", Reason.TOOL_FAILED, ""),
        ("exit 101", Reason.TOOL_FAILED, "101"),
        ("kill -SEGV $$", Reason.TOOL_FAILED, "-11"),
        ("echo 'it is raining' >&2; exit 1", Reason.TOOL_FAILED, "it is raining"),
    ],
)
def test_a_tool_gone_wrong_is_contained(tmp_path: Path, script: str, reason: Reason, words: str) -> None:
    began = time.monotonic()
    answer = fake(tmp_path, script).dump(os.getpid(), 0.5, SETTINGS)
    assert time.monotonic() - began < 20.0
    assert isinstance(answer, Missing)
    assert answer.reason is reason
    assert words in answer.message
    assert len(answer.message) <= 500


NO_NAME = "Error: Failed to get process executable name. Check that the process is running.\n\nCaused by:\n    0: "
#: As py-spy 0.4.3 failed on an H200 while Python 3.12 replayed a CUDA graph in a loop.
MOVED = (
    "Error: Failed to get stack traces\n\nCaused by:\n    0: Failed to call get_stack_trace for thread 140386640310592\n"
    "    1: Failed to copy {}\n    2: Bad address (os error 14)\n    3: Bad address (os error 14)\n"
)
NOT_STOPPED = "Error: Failed to get stack traces\n\nCaused by:\n    0: Failed to suspend process\n    1: "


@pytest.mark.parametrize(
    ("stderr", "reason"),
    [
        (f"{NO_NAME}No such file or directory (os error 2)\n", Reason.EXITED),
        (f"{NO_NAME}Permission denied (os error 13)\n", Reason.NOT_PERMITTED),
        ("Permission Denied: Try running again with elevated permissions by going 'sudo !!'\n", Reason.NOT_PERMITTED),
        ("Error: Failed to find python version from target process\n", Reason.NOT_PYTHON),
        (f"{NOT_STOPPED}EPERM: Operation not permitted\n", Reason.TRACED),
        (f"{NOT_STOPPED}unexpected waitpid result PtraceEvent(Pid(5), SIGSTOP, 128) to 5\n", Reason.STOPPED),
        ("Error: Bad address (os error 14)\n", Reason.TOOL_FAILED),
        (MOVED.format("PyFrameObject"), Reason.MOVED),
        (MOVED.format("PyCodeObject"), Reason.MOVED),
        ("Error: UNW_EBADREG: bad register number\n", Reason.TOOL_FAILED),
    ],
)
def test_the_words_of_the_pinned_version_tell_the_reason(stderr: str, reason: Reason) -> None:
    missing = pyspy.explain(ProcessOutcome(1, b"", stderr))
    assert missing.reason is reason
    assert "\n" not in missing.message
    assert missing.message.startswith("py-spy: ")


#: Leaves a folder for each of its runs, for it may write no file; the first ones fail as on a process that moves.
MOVES = """
mkdir {runs}/$$
[ $(ls {runs} | wc -l) -gt {failing} ] || {{ printf '{words}' >&2; exit 1; }}
echo '[{{"pid": 1, "thread_id": 1, "thread_name": "MainThread", "os_thread_id": 1, "active": true, "owns_gil": false, "frames": []}}]'
"""


def runs_of(folder: Path, failing: int, blocking: bool = False) -> tuple[int, object]:
    """How often a py-spy was run that fails so many times, and what it answered in the end."""
    runs = folder / "runs"
    runs.mkdir(mode=0o777)
    words = MOVED.format("PyCodeObject").replace("\n", "\\n")
    tool = fake(folder, MOVES.format(runs=runs, failing=failing, words=words))
    answer = tool.dump(os.getpid(), 5.0, SETTINGS, blocking)
    return len(list(runs.iterdir())), answer


def test_whoever_moves_while_it_is_read_is_read_again_at_once(tmp_path: Path) -> None:
    runs, answer = runs_of(tmp_path, 2)
    assert (runs, isinstance(answer, Missing)) == (3, False)


def test_who_moves_each_time_is_said_to_move(tmp_path: Path) -> None:
    runs, answer = runs_of(tmp_path, 9)
    assert runs == 3 and isinstance(answer, Missing)
    assert answer.reason is Reason.MOVED and "get on" in answer.message


def test_who_is_held_does_not_move(tmp_path: Path) -> None:
    runs, answer = runs_of(tmp_path, 9, blocking=True)
    assert runs == 1 and isinstance(answer, Missing) and answer.reason is Reason.TOOL_FAILED


def test_nothing_else_is_tried_again(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    fake(tmp_path, f"mkdir {runs}/$$; exit 1").dump(os.getpid(), 5.0, SETTINGS)
    assert len(list(runs.iterdir())) == 1


def test_a_process_that_moves_costs_no_more_than_the_deadline(tmp_path: Path) -> None:
    """What the first try took is missing to the second: the tool says for how long it was waited for."""
    words = MOVED.format("PyCodeObject").replace("\n", "\\n")
    answer = fake(tmp_path, f"sleep 1.2; printf '{words}' >&2; exit 1").dump(os.getpid(), 2.0, SETTINGS)
    assert isinstance(answer, Missing) and answer.reason is Reason.TIMED_OUT
    waited = re.search(r"within ([\d.]+) s", answer.message)
    assert waited is not None and float(waited[1]) <= 0.8
