"""Works out why a capture failed from the tool's own words and from what the kernel says of the process."""

import re

from hangdog_models.reading.printable import printable
from hangdog_models.stack import Missing, ProcessState, Reason

#: Words of ssh, of kubectl, and of srun about a node.
_NO_WAY_THERE = (
    r"ssh: connect to host|no route to host|host is down|connection refused|unreachable|error dialing backend|i/o timeout"
    r"|communication connection failure|timed out on send/recv|node failure on|not responding"
    r"|srun: error: .{1,200}(?:did|does) not (?:answer|respond)"
)
#: First match wins, so the texts that name the state of the target stand before those that any failure may hold.
#: The texts are those of py-spy 0.4.3, pystack 1.7, ssh, srun and kubectl, and the plain words of hangdog's agent and of people.
_WORDS = tuple(
    (re.compile(pattern, re.IGNORECASE), reason)
    for pattern, reason in (
        (r"uninterruptible|\bin D state|\bstate D\b", Reason.UNINTERRUPTIBLE),
        (r"zombie|defunct", Reason.ZOMBIE),
        (r"waitpid result PtraceEvent\(.*SIGSTOP|\bstopped\b|\bstate T\b", Reason.STOPPED),
        (r"restarted under|new pid", Reason.RESTARTED),
        (
            r"no agent|\bagent (?:does not|did not|doesn't|didn't) (?:answer|respond)|\bagent (?:is|was) (?:not connected|gone|lost)",
            Reason.NO_AGENT,
        ),
        (r"port \d{1,5}: connection refused", Reason.TOOL_FAILED),  # whoever refuses is there
        # an agent that was there and is silent tells more than a door that may never have been open
        (_NO_WAY_THERE, Reason.UNREACHABLE),
        (r"no answer|timed out|time-?out|deadline", Reason.TIMED_OUT),
        (r"another tracer|already (?:being )?traced|TracerPid|Failed to suspend process.*EPERM", Reason.TRACED),
        (r"py-spy: (?:command )?not found|'py-spy'|tool missing|not installed", Reason.TOOL_MISSING),
        (r"find (?:a )?python version from target|determine python version|not a python process", Reason.NOT_PYTHON),
        (r"permission denied|operation not permitted|not permitted|EPERM|EACCES|CAP_SYS_PTRACE", Reason.NOT_PERMITTED),
        (
            r"get process executable name|open process \d+ - check if it is running|no such process|ESRCH|\bexited\b|\bgone\b|contents of /proc/\d+/task",
            Reason.EXITED,
        ),
    )
)
_FAILED = re.compile(
    r"\s*(?:Error: Failed to (?:get|find|suspend|open|copy|read) |Permission Denied: Try running again"
    r"|(?:WARNING\(\w{1,40}\): [^\n]{1,400}\n){0,64}💀 \w|ptrace: (?:Operation not permitted|No such process)\.|(?:\(lldb\) [^\n]{1,400}\n)?error: attach failed: )"
)
#: How hangdog itself writes a failure whose reason it knows: no words of a tool begin so.
_OURS = re.compile(f"hangdog: ({'|'.join(re.escape(reason) for reason in Reason)})(?:: |:?$)")
#: How tools name the machine that does not answer: ssh, and hangdog's own words.
_HOST = re.compile(r"(?:connect to host|no answer from) (?P<host>[\w.-]{1,253})(?= )")
#: Failures that only say that something went wrong: the kernel's state explains them better.
_VAGUE = frozenset({Reason.TIMED_OUT, Reason.TOOL_FAILED, Reason.NO_EVIDENCE})


def recognises(head: str) -> bool:
    """Whether a text is what py-spy, pystack, gdb or lldb prints when it fails."""
    return _FAILED.match(head) is not None


def reason_of(words: str) -> Reason:
    """The reason behind what a capture tool printed; TOOL_FAILED where its words are not known."""
    line = " ".join(words[:10_000].split())
    return next((reason for pattern, reason in _WORDS if pattern.search(line)), Reason.TOOL_FAILED)


def read(text: str, state: ProcessState | None = None) -> Missing:
    """What a `*.error.txt` tells, refined by the state of the process where that is known too."""
    words = printable(text)
    ours = _OURS.match(words)
    if ours:
        return Missing(Reason(ours[1]), words[ours.end() :])
    return refine(Missing(reason_of(text) if words else Reason.TOOL_FAILED, words), state)


def host_of(text: str) -> str | None:
    """The machine that a failure names as the one that does not answer, None where it names none."""
    found = _HOST.search(" ".join(text[:10_000].split()))
    return found["host"] if found else None


def written(missing: Missing) -> str:
    """The text from which `read` takes the same failure, whatever its words sound like."""
    return f"hangdog: {missing.reason}: {printable(missing.message)}\n"


def refine(missing: Missing, state: ProcessState | None) -> Missing:
    """The same failure with the reason that the state of the process gives for it; the words stay."""
    letter = state.state if state else ""
    reason = missing.reason
    if letter == "Z":
        reason = Reason.ZOMBIE
    elif letter in ("X", "x"):
        reason = Reason.EXITED
    elif letter == "D" and reason in _VAGUE:
        reason = Reason.UNINTERRUPTIBLE
    elif letter == "T" and (reason in _VAGUE or reason is Reason.TRACED):
        reason = Reason.STOPPED
    elif letter == "t" and reason in _VAGUE:
        reason = Reason.TRACED
    return Missing(reason, missing.message)
