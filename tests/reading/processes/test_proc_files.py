"""`/proc/PID/wchan` and `/proc/PID/syscall`, as shells, grep, head and scripts show them."""

import subprocess
from collections.abc import Iterator

import pytest

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.reading.limits import Limits
from hangdog_models.reading.processes import proc_files
from support.refused import refused

#: recorded: Linux 6.18, of a process that reads a pipe; `grep .`, then `head`
OF_GREP = """/proc/30073/wchan:anon_pipe_read
/proc/30073/syscall:0 0x0 0x7fb227d128a0 0x1 0x556a5ea29320 0x0 0x0 0x7ffd2fe85498 0x7fb227f162ad
"""
OF_HEAD = """==> /proc/30073/wchan <==
anon_pipe_read
==> /proc/30073/syscall <==
0 0x0 0x7fb227d128a0 0x1 0x556a5ea29320 0x0 0x0 0x7ffd2fe85498 0x7fb227f162ad
"""
CALL = "0 0x0 0x7fb227d128a0 0x1 0x556a5ea29320 0x0 0x0 0x7ffd2fe85498 0x7fb227f162ad"


@pytest.mark.parametrize("text", [OF_GREP, OF_HEAD])
def test_channel_and_call_are_of_one_process(text: str) -> None:
    assert proc_files.recognises(text)
    (row,) = proc_files.read(text)
    assert (row.state.pid, row.state.state, row.state.wchan, row.state.syscall) == (30073, "", "anon_pipe_read", CALL)
    assert row.asked


def test_a_prompt_follows_the_channel_at_once() -> None:
    prompt = "root@gpu-a17:~# "
    text = f"{prompt}cat /proc/7/wchan\nfutex_wait_queue{prompt}cat /proc/7/syscall\nrunning\n{prompt}sudo cat /proc/8/wchan\n0{prompt}\n"
    assert [(row.state.pid, row.state.state, row.state.wchan) for row in proc_files.read(text)] == [
        (7, "R", "futex_wait_queue"),
        (8, "", ""),
    ]


@pytest.mark.parametrize(
    "line",
    ["pid=7 state=D wchan=nfs_wait", "== pid 7 main: state=D wchan=nfs_wait", "PID 7 (python) state=D wchan=nfs_wait"],
)
def test_what_scripts_print(line: str) -> None:
    (row,) = proc_files.read(f"{line}\n")
    assert (row.state.pid, row.state.state, row.state.wchan) == (7, "D", "nfs_wait")


def test_threads_other_than_the_first_are_left_out() -> None:
    text = "/proc/7/task/7/wchan:pipe_read\n/proc/7/task/9/wchan:nfs_wait\n"
    assert [row.state.wchan for row in proc_files.read(text)] == ["pipe_read"]


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def test_what_the_kernel_shows_here(sleeper: subprocess.Popen[bytes]) -> None:
    text = subprocess.run(
        ["head", f"/proc/{sleeper.pid}/wchan", f"/proc/{sleeper.pid}/syscall"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    if "<==\n" in text and text.count("==>") == 2:  # both may be read
        assert [row.state.pid for row in proc_files.read(text)] == [sleeper.pid]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "cat /proc/7/wchan\n",
        "cat /proc/7/wchan\ncat: Permission denied!\n",
        "/proc/0/wchan:x\n",
        "the wchan is long\n",
    ],
)
def test_without_a_value_there_is_nothing(text: str) -> None:
    assert not proc_files.recognises(text)
    with refused("damaged-process-state", UnreadableEvidence):
        proc_files.read(text)


def test_there_is_a_limit() -> None:
    with refused("too-many"):
        proc_files.read("".join(f"/proc/{pid}/wchan:x\n" for pid in range(1, 6)), Limits(threads=4))
