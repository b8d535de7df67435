"""Tests that stop, loop, flood, die or leave others behind: all are ended within the deadline, and nothing of them is left."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from hangdog_agent.machine_tests.members import Ended, GroupMember, MemberEnd, Ran
from hangdog_agent.machine_tests.run_members import run, sweep
from support.fakes import targets
from support.fakes.targets import letter

pytestmark = pytest.mark.slow  # real processes that hang until their deadline

#: Long enough for two interpreters on a busy machine, short enough to wait for.
DEADLINE_S = 0.8
#: A run must be over this much later, killing and telling included.
LATE_S = 5.0
#: Writes its number to the file named first, and stays for ever, in a session of its own.
STRAY = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open(sys.argv[1], "a").write(f"{os.getpid()}\\n")
        time.sleep(600)
    os._exit(0)
os.wait()
"""


def python(program: str, *arguments: str, name: str = "0") -> GroupMember:
    return GroupMember(name, (sys.executable, "-I", "-S", "-c", program, *arguments))


def alone(
    program: str, *arguments: str, deadline_s: float = DEADLINE_S, stdout_bytes: int = 1 << 20
) -> tuple[Ended, Ran]:
    began = time.monotonic()
    ran = run([python(program, *arguments)], deadline_s, stdout_bytes)
    assert time.monotonic() - began < deadline_s + LATE_S
    return ran.members[0], ran


def gone(pids: Path) -> bool:
    numbers = [int(line) for line in pids.read_text().split()]
    assert numbers, "somebody was there"
    return all(letter(number) == "" for number in numbers)


def test_a_member_that_ends_well_says_all_of_it() -> None:
    ended, ran = alone("import sys; print('out'); print('err', file=sys.stderr)")
    assert (ended.well, ended.stdout, ended.stderr) == (True, "out\n", "err\n")
    assert (ran.left, ran.strays, ran.remarks) == ((), 0, ())


def test_what_it_says_is_told_up_to_the_bound_and_no_more_is_read() -> None:
    assert len(alone("print('x' * 99)", stdout_bytes=100)[0].stdout) == 100
    flooded, _ = alone("import sys\nwhile True: sys.stdout.write('\\0' * 65536)", deadline_s=30.0)
    assert (flooded.how, len(flooded.stdout)) == (MemberEnd.FLOODED, 1 << 20)
    errors, _ = alone("import sys\nwhile True: sys.stderr.write('x' * 65536)")
    assert errors.how is MemberEnd.DEADLINE and len(errors.stderr) == 8 << 10


@pytest.mark.parametrize(
    ("program", "state"),
    [
        ("import time; time.sleep(600)", "S"),
        ("while True: pass", "R"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSTOP)", "T"),
        ("import signal, time; [signal.signal(s, signal.SIG_IGN) for s in (1, 2, 13, 15)]; time.sleep(600)", "S"),
        ("import os, time; os.close(1); os.close(2); time.sleep(600)", "S"),
    ],
    ids=["sleeps", "loops", "is stopped", "ignores signals", "closes its pipes"],
)
def test_a_member_that_does_not_end_is_ended_and_its_state_told(program: str, state: str) -> None:
    ended, ran = alone(program)
    assert (ended.how, ended.status, ended.state[:1]) == (MemberEnd.DEADLINE, None, state)
    assert ended.stopped == (state == "T")
    assert "not answer" in ended.words
    assert ran.left == ()


@pytest.mark.parametrize("after", ["", "import time; time.sleep(600)", "import os; os.kill(os.getpid(), 19)"])
def test_grandchildren_in_sessions_of_their_own_are_ended_too(tmp_path: Path, after: str) -> None:
    pids = tmp_path / "pids"
    _, ran = alone(STRAY + after, str(pids))
    assert gone(pids) and ran.strays == 1
    assert "left behind" in ran.remarks[0]


#: Forks and ends again and again, so that each of its processes lives for a moment only; after a while by itself, lest it
#: outlive a warden that fails.
CHAIN = """
import os, sys, time
until = time.monotonic() + 30
while time.monotonic() < until:
    if os.fork():
        os._exit(0)
    with open(sys.argv[1], "w") as file:
        file.write(str(os.getpid()))
"""


def test_one_that_forks_without_end_is_ended(tmp_path: Path) -> None:
    latest = tmp_path / "latest"
    _, ran = alone(CHAIN, str(latest), deadline_s=0.5)
    assert ran.left == ()
    said = latest.read_text()
    time.sleep(0.3)
    assert latest.read_text() == said, "nobody writes there any more"


def test_one_that_dies_ends_the_wait_for_the_others() -> None:
    began = time.monotonic()
    dying, waiting = run(
        [python("import os; os.kill(os.getpid(), 11)"), python("import time; time.sleep(600)", name="1")],
        60.0,
        linger_s=0.3,
    ).members
    assert time.monotonic() - began < 10
    assert (dying.how, dying.status, dying.words) == (MemberEnd.ITSELF, -11, "0 was ended by SIGSEGV")
    assert waiting.how is MemberEnd.WITH_THE_OTHERS


def test_a_program_that_does_not_exist_is_told() -> None:
    ran = run(
        [GroupMember("0", ("/no/such/program",)), python("import time; time.sleep(600)", name="1")], 60.0, linger_s=0.1
    )
    assert [one.how for one in ran.members] == [MemberEnd.NOT_STARTED, MemberEnd.WITH_THE_OTHERS]
    assert "No such file" in ran.members[0].words


def test_stopping_the_agent_ends_a_run_early(tmp_path: Path) -> None:
    pids, stop = tmp_path / "pids", threading.Event()
    timer = threading.Timer(0.5, stop.set)
    timer.start()
    began = time.monotonic()
    ran = run([python(STRAY + "time.sleep(600)", str(pids))], 60.0, stop=stop)
    timer.join()
    assert time.monotonic() - began < 10
    assert ran.members[0].how is MemberEnd.ABANDONED and gone(pids)


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL], ids=["stopped", "killed"])
def test_even_a_warden_may_be_stopped_or_killed(tmp_path: Path, number: int) -> None:
    pids = tmp_path / "pids"
    program = STRAY + f"os.kill(os.getppid(), {number:d}); time.sleep(600)"
    ended, _ = alone(program, str(pids))
    assert ended.how is MemberEnd.DEADLINE and "warden" in ended.why
    targets.until(lambda: gone(pids))


def test_nothing_is_left_when_whoever_asked_is_killed(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    program = (
        "import sys; from hangdog_agent.machine_tests.run_members import GroupMember, run\n"
        f"run([GroupMember('0', (sys.executable, '-c', {STRAY + 'time.sleep(600)'!r}, {str(pids)!r}))], 60.0)"
    )
    asking = subprocess.Popen([sys.executable, "-c", program])
    targets.until(lambda: pids.exists() and pids.read_text().endswith("\n"))
    asking.kill()
    asking.wait()
    targets.until(lambda: gone(pids))


def test_only_those_with_the_mark_are_swept() -> None:
    with targets.running(targets.WAIT, environ={"HANGDOG_DIAGNOSIS": "other"}) as other:
        with targets.running(targets.WAIT, environ={"HANGDOG_DIAGNOSIS": "mine"}) as mine:
            assert sweep("mine") == 1
            assert mine.wait() == -signal.SIGKILL
        assert other.poll() is None and os.getpgid(other.pid)
