"""Whatever the demo started is gone when it ends, even if a process is stopped, deaf, an orphan, or the demo is killed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

#: Runs in a process of its own: it ends all children it has, and those of the test runner are not its own.
PLAY = """
import os, signal, sys
from pathlib import Path
from hangdog.demo.pipes import first_line
from hangdog.demo.processes import Processes

deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
lonely = "import os, signal; os.fork() and os._exit(0); os.setsid(); signal.signal(signal.SIGHUP, signal.SIG_IGN); "
programs = {"plain": "", "stopped": "", "deaf": deaf, "orphan": lonely}
with Processes(Path(sys.argv[1]), grace_s=0.5) as processes:
    pids = []
    for name, preparation in programs.items():
        code = preparation + "import os, signal; print(os.getpid(), flush=True); signal.pause()"
        pids.append(int(first_line(processes.start(name, [sys.executable, "-c", code], os.environ), 20)))
    os.kill(pids[1], signal.SIGSTOP)
    print(*pids, flush=True)
    ending = sys.argv[2]
    if ending == "error":
        raise RuntimeError("an error in the middle")
    if ending != "return":
        signal.pause()
"""


def start(folder: Path, ending: str) -> tuple[subprocess.Popen[str], list[int]]:
    play = subprocess.Popen([sys.executable, "-c", PLAY, folder, ending], stdout=subprocess.PIPE, text=True)
    assert play.stdout is not None
    return play, [int(pid) for pid in play.stdout.readline().split()]


def gone(pid: int) -> bool:
    """Whether a process has ended; a dead one whose new parent has not yet reaped it has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.mark.parametrize(
    ("ending", "number", "status"),
    [
        ("return", None, 0),
        ("error", None, 1),
        ("signal", signal.SIGTERM, 128 + signal.SIGTERM),
        ("signal", signal.SIGHUP, 128 + signal.SIGHUP),
        ("signal", signal.SIGINT, -signal.SIGINT),
    ],
)
def test_nothing_is_left_however_it_ends(
    tmp_path: Path, ending: str, number: signal.Signals | None, status: int
) -> None:
    play, pids = start(tmp_path, ending)
    if number is not None:
        play.send_signal(number)
    assert (play.wait(60), play.communicate()[0]) == (status, "")
    assert len(pids) == 4
    assert all(map(gone, pids))


def test_a_second_interrupt_does_not_cut_the_ending_short(tmp_path: Path) -> None:
    play, pids = start(tmp_path, "signal")
    play.send_signal(signal.SIGINT)
    while not gone(pids[0]):  # the first thing the ending does
        pass
    play.send_signal(signal.SIGINT)
    play.communicate(timeout=60)
    assert all(map(gone, pids))


def test_the_kernel_ends_them_when_the_demo_itself_is_killed(tmp_path: Path) -> None:
    play, pids = start(tmp_path, "signal")
    play.kill()
    play.communicate(timeout=60)
    children = pids[:3]  # a daemon that left its parent is out of the kernel's reach; no process of the demo does so
    while not all(map(gone, children)):
        pass
    os.kill(pids[3], signal.SIGKILL)
