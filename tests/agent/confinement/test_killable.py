"""Programs that hang, flood, linger or die: contained within the deadline, and reaped."""

import sys
import threading
import time
from pathlib import Path

import pytest

from hangdog_agent.confinement.subprocesses import ProcessOutcome, run
from support.fakes import targets
from support.fakes.targets import letter

KIB = 1 << 10


def python(
    program: str, deadline_s: float = 5.0, stdout_bytes: int = KIB, stop: threading.Event | None = None
) -> ProcessOutcome:
    return run((sys.executable, "-I", "-S", "-c", program), deadline_s, stdout_bytes, stop=stop)


def test_a_program_that_ends_well() -> None:
    outcome = python("import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)")
    assert outcome == ProcessOutcome(3, b"out\n", "err\n")


def test_a_program_that_does_not_exist() -> None:
    outcome = run(("/no/such/program",), 1.0, KIB)
    assert outcome.status is None
    assert "cannot be started" in outcome.why


@pytest.mark.parametrize(
    "program",
    [
        "import time; time.sleep(60)",
        "import os, time; os.close(1); os.close(2); time.sleep(60)",
        "import signal, time; [signal.signal(s, signal.SIG_IGN) for s in (1, 2, 13, 15)]; time.sleep(60)",
        "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)",
        "import os, time; os.fork() or time.sleep(60)",  # the parent ends, its child keeps the pipes
        "import sys\nwhile True: sys.stderr.write('x' * 65536)",
    ],
    ids=["sleeps", "closes its pipes", "ignores signals", "stops itself", "leaves a child", "floods stderr"],
)
def test_a_program_that_does_not_end_is_killed_at_its_deadline(program: str) -> None:
    began = time.monotonic()
    outcome = python(program, deadline_s=0.5)
    assert 0.4 < time.monotonic() - began < 30.0
    assert outcome.status is None
    assert outcome.timed_out
    assert "0.5 s" in outcome.why and "killed" in outcome.why
    assert len(outcome.stderr) <= 64 * KIB


def test_all_of_its_group_is_killed(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    program = f"import os, time; (os.fork() or open({str(pid_file)!r}, 'w').write(str(os.getpid()))) and time.sleep(60)"
    assert python(program + "; time.sleep(60)", deadline_s=0.5).timed_out
    targets.until(lambda: letter(int(pid_file.read_text())) in ("", "Z"))


def test_a_flood_of_output_is_cut_off_at_once() -> None:
    began = time.monotonic()
    outcome = python("import sys\nwhile True: sys.stdout.write('x' * 65536)", deadline_s=30.0, stdout_bytes=100 * KIB)
    assert time.monotonic() - began < 10.0
    assert outcome.status is None
    assert not outcome.timed_out
    assert "more than 102400 bytes" in outcome.why
    assert len(outcome.stdout) <= 100 * KIB


def test_output_up_to_the_bound_is_whole() -> None:
    assert len(python("print('x' * 1023)").stdout) == KIB


def test_stopping_the_agent_ends_a_run_early() -> None:
    stop = threading.Event()
    timer = threading.Timer(0.2, stop.set)
    timer.start()
    began = time.monotonic()
    outcome = python("import time; time.sleep(60)", deadline_s=30.0, stop=stop)
    timer.join()
    assert time.monotonic() - began < 5.0
    assert outcome.status is None
    assert not outcome.timed_out
