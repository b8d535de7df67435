"""Why a capture failed, from the very words of the tools."""

import pytest

from hangdog_models.reading.stacks import capture_failure
from hangdog_models.stack import Missing, ProcessState, Reason

GONE = "Error: Failed to get process executable name. Check that the process is running.\n"
SUSPEND = "Error: Failed to get stack traces\n\nCaused by:\n    0: Failed to suspend process\n    1: "


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (GONE + "Reason: No such file or directory (os error 2)", Reason.EXITED),
        (GONE + "Reason: Permission denied (os error 13)", Reason.NOT_PERMITTED),
        ("Permission Denied: Try running again with elevated permissions by going 'sudo env \"PATH=$PATH\" !!'", Reason.NOT_PERMITTED),
        ("Error: Failed to find python version from target process", Reason.NOT_PYTHON),
        (SUSPEND + "EPERM: Operation not permitted", Reason.TRACED),
        (SUSPEND + "unexpected waitpid result PtraceEvent(Pid(15196), SIGSTOP, 128) to 15196", Reason.STOPPED),
        ("py-spy dump --native: no answer within 8 s, killed", Reason.TIMED_OUT),
        ("py-spy dump --nonblocking: exit status 1, no output", Reason.TOOL_FAILED),
        ("py-spy: no answer, process in uninterruptible sleep", Reason.UNINTERRUPTIBLE),
        ("py-spy: process is a zombie, no stack", Reason.ZOMBIE),
        ("Could not determine python version from /usr/bin/sleep", Reason.NOT_PYTHON),
        ("Could not read the contents of /proc/15/task", Reason.EXITED),
        ("bash: py-spy: command not found", Reason.TOOL_MISSING),
        ("Error: UNW_EBADREG: bad register number", Reason.TOOL_FAILED),
        ("ssh: connect to host node-3 port 22: Connection timed out", Reason.UNREACHABLE),
        ("ssh: connect to host node-3 port 22: No route to host", Reason.UNREACHABLE),
        ("ssh: connect to host node-3 port 22: Connection refused", Reason.TOOL_FAILED),  # whoever refuses is there
        ("ssh: Could not resolve hostname node-3: Temporary failure in name resolution", Reason.TOOL_FAILED),
        ("srun: error: Task launch for StepId=34.0 failed on node n4: Socket timed out on send/recv operation", Reason.UNREACHABLE),
        ("srun: error: Task launch for 73706.26 failed on node n4: Communication connection failure", Reason.UNREACHABLE),
        ("srun: error: Unable to create step: h100-007 did not answer within 60 s", Reason.UNREACHABLE),
        ("Error from server: error dialing backend: dial tcp 10.0.3.7:10250: i/o timeout", Reason.UNREACHABLE),
        ("capture timed out: node agent does not answer", Reason.NO_AGENT),
        ("no agent of node-3 is connected", Reason.NO_AGENT),
        ("", Reason.TOOL_FAILED),
    ],
)  # fmt: skip
def test_the_reason_behind_a_tools_words(words: str, reason: Reason) -> None:
    assert capture_failure.read(words).reason is reason


@pytest.mark.parametrize(
    ("words", "letter", "reason"),
    [
        ("no answer within 8 s, killed", "D", Reason.UNINTERRUPTIBLE),
        ("exit status 1", "T", Reason.STOPPED),
        ("exit status 1", "t", Reason.TRACED),
        (GONE + "Reason: No such file or directory (os error 2)", "Z", Reason.ZOMBIE),
        ("exit status 1", "X", Reason.EXITED),
        ("no answer within 8 s, killed", "S", Reason.TIMED_OUT),
        ("Permission denied", "D", Reason.NOT_PERMITTED),
    ],
)
def test_the_state_of_the_process_refines_what_the_words_leave_open(words: str, letter: str, reason: Reason) -> None:
    assert capture_failure.read(words, ProcessState(3, letter)).reason is reason


def test_the_words_are_kept_on_one_line_without_control_characters() -> None:
    assert capture_failure.read("Error:\n  \x1b[31mbad\x00").message == r"Error: \x1b[31mbad\x00"
    assert len(capture_failure.read("x" * 100_000).message) == 500


@pytest.mark.parametrize("words", [GONE, SUSPEND, "Permission Denied: Try running again with elevated permissions"])
def test_a_failed_dump_is_recognised_where_its_output_should_be(words: str) -> None:
    assert capture_failure.recognises(words)
    assert not capture_failure.recognises("ValueError: " + words)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        # gdb 13.1, py-spy 0.4.3 and pystack 1.7.2, asked here for a process that is gone, for one of another user, and for `sleep`
        ("ptrace: No such process.\nNo stack.\n", Reason.EXITED),
        ("ptrace: Operation not permitted.\nNo stack.\n", Reason.NOT_PERMITTED),
        ("💀 Engine error: Could not read the contents of /proc/999999/task 💀\n", Reason.EXITED),
        ("💀 Engine error: Could not determine python version from /usr/bin/sleep 💀\n", Reason.NOT_PYTHON),
        (
            ("WARNING(process_remote): Failed to attach to thread 24782: Operation not permitted\n💀 Engine error: Operation not permitted 💀\n\n"
            "The specified process cannot be traced. This could be because the tracer\n"),
            Reason.NOT_PERMITTED,
        ),
        ("Error: Failed to get process executable name. Check that the process is running.\n\nCaused by:\n    0: No such file or directory (os error 2)\n", Reason.EXITED),
        ("Error: Failed to find python version from target process\n\nStack backtrace:\n", Reason.NOT_PYTHON),
        # https://github.com/benfred/py-spy/issues/397
        ("Error: Failed to find a python version from target process\n", Reason.NOT_PYTHON),
    ],
)  # fmt: skip
def test_what_the_tools_print_in_a_stacks_place(words: str, reason: Reason) -> None:
    assert capture_failure.recognises(words)
    assert capture_failure.read(words).reason is reason


def test_refining_without_a_state_changes_nothing() -> None:
    missing = Missing(Reason.TIMED_OUT, "slow")
    assert capture_failure.refine(missing, None) == missing


@pytest.mark.parametrize("reason", Reason)
@pytest.mark.parametrize("words", ["", "stopped, no agent, timed out", "exited: no such process"])
@pytest.mark.parametrize("letter", ["", "Z", "D"])
def test_what_hangdog_wrote_itself_keeps_its_reason(reason: Reason, words: str, letter: str) -> None:
    """Whatever its words sound like, and whatever the kernel says of the process."""
    missing = Missing(reason, words)
    assert (
        capture_failure.read(capture_failure.written(missing), ProcessState(5, letter) if letter else None) == missing
    )
