"""What `strace -p` shows: the call that a process does not return from."""

import pytest

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.reading.limits import Limits
from hangdog_models.reading.processes import strace
from support.refused import refused

#: https://github.com/datalad/datalad/issues/3613; the first thread's line is added
OF_THREADS = """$> strace -f -p 3671312 2>&1 | head -n 100
strace: Process 3671312 attached with 46 threads
[pid 3671417] futex(0x7fbcdc000bc8, FUTEX_WAIT_PRIVATE, 0, NULL <unfinished ...>
[pid 3671399] restart_syscall(<... resuming interrupted poll ...> <unfinished ...>
[pid 3671312] read(5,  <unfinished ...>
"""
#: https://github.com/rwth-i6/sisyphus/issues/176
OF_STOPPED = """ % strace -p 1103757
strace: Process 1103757 attached
--- stopped by SIGSTOP ---
^Cstrace: Process 1103757 detached
"""
#: https://github.com/JoeDog/siege/issues/4
OF_FUTEX = """# strace -p 27807
strace: Process 27807 attached
futex(0x558c41f0e408, FUTEX_WAIT_PRIVATE, 2, NULL) = ? ERESTARTSYS (To be restarted if SA_RESTART is set)
"""
#: https://github.com/sivy/pystatsd/issues/45: strace before 4.8, of a process that goes on
OF_OLD = """root@metrics01-eu:~# strace -p 2934
Process 2934 attached - interrupt to quit
futex(0x7f41e40174b0, FUTEX_WAIT_PRIVATE, 0, NULL) = 0
futex(0x7f41e40174b0, FUTEX_WAIT_PRIVATE, 0, NULL) = 0
"""
#: recorded: strace 6.1 of a process that reads a pipe
RECORDED = """strace: Process 30073 attached
read(0, strace: Process 30073 detached
 <detached ...>
"""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (OF_THREADS, [(3671312, "", "read")]),
        (OF_STOPPED, [(1103757, "T", "")]),
        (OF_FUTEX, [(27807, "", "futex")]),
        (OF_OLD, []),
        (RECORDED, [(30073, "", "read")]),
        ("strace: Process 7 attached\nrestart_syscall(<... resuming interrupted poll ...>", [(7, "", "poll")]),
        ("strace: Process 7 attached\n12:00:01.5 read(3, ", [(7, "", "read")]),
        (
            "strace: Process 7 attached\nstrace: Process 8 attached\n[pid 8] read(3,  <unfinished ...>\n[pid 7] poll([{fd=3}], 1, -1",
            [(7, "", "poll"), (8, "", "read")],
        ),
        ('strace: Process 7 attached\nread(3, <unfinished ...>\n<... read resumed>"", 1) = 1\n', []),
        ("strace: Process 7 attached\n", []),
    ],
)
def test_the_call_that_does_not_return(text: str, found: list[tuple[int, str, str]]) -> None:
    assert strace.recognises(text)
    rows = strace.read(text)
    assert [(row.state.pid, row.state.state, row.state.syscall) for row in rows] == found
    assert all(row.asked for row in rows)


def test_a_process_that_goes_on_after_a_stop_is_not_stopped() -> None:
    (row,) = strace.read(OF_STOPPED.replace("^C", "read(3, ^C"))
    assert (row.state.state, row.state.syscall) == ("", "read")


@pytest.mark.parametrize("text", ["", "Process 7 started\nread(3, ", "futex(0x1, FUTEX_WAIT, 0, NULL\n"])
def test_what_says_of_no_process_is_no_strace(text: str) -> None:
    assert not strace.recognises(text)
    with refused("damaged-process-state", UnreadableEvidence, "strace -p"):
        strace.read(text)


def test_there_is_a_limit() -> None:
    with refused("too-many"):
        strace.read("".join(f"strace: Process {pid} attached\n" for pid in range(1, 6)), Limits(threads=4))
