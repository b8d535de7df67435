"""Reads the line by which a library reports that a signal ended its process: Abseil and glog, Open MPI, UCX, PyTorch's C++, Python."""

import re

from hangdog_models.exits import SIGNALS, STOP_ORDER, signal_name
from hangdog_models.findings import Finding, Impact

_FORMS = (
    # Abseil, glog: *** SIGSEGV (@0x0), see ... received by PID 71 (TID 72) ***; *** SIGABRT received at time=170 on cpu 3 ***
    re.compile(r"\*\*\* (?P<name>SIG[A-Z]{2,6})\b.{0,200}? received (?:by PID (?P<pid>\d{1,10})\b|at time=\d)"),
    # Open MPI: [host:71] Signal: Aborted (6)
    re.compile(r"\[(?P<host>[A-Za-z0-9][\w.-]{0,252}):(?P<pid>\d{1,10})\] Signal: [\w ]{1,40}\((?P<number>\d{1,2})\)"),
    # UCX: [host:71  :0:71] Caught signal 11 (Segmentation fault: ...)
    re.compile(
        r"\[(?P<host>[A-Za-z0-9][\w.-]{0,252}):(?P<pid>\d{1,10})(?: {0,8}:\d{1,10}){1,2}\] Caught signal (?P<number>\d{1,2}) \("
    ),
    # c10::FatalSignalHandler: SIGABRT(6), PID: 71, Thread 72:
    re.compile(r"\b(?P<name>SIG[A-Z]{2,6})\(\d{1,2}\), PID: (?P<pid>\d{1,10}), Thread \d{1,10}: ?"),
    # torch.multiprocessing: process 1 terminated with signal SIGSEGV
    re.compile(r"\bprocess (?P<pid>\d{1,7}) terminated with signal (?P<name>SIG[A-Z]{2,6})\b"),
    # CPython's faulthandler; not `Aborted`, by which people and watchdogs have it print the stacks of a process that hangs
    re.compile(
        r"\bFatal Python error: (?P<words>Segmentation fault|Bus error|Floating-point exception|Illegal instruction)\b"
    ),
)
#: The names of the signals by the words of CPython.
_WORDS = {
    "Segmentation fault": "SEGV",
    "Bus error": "BUS",
    "Floating-point exception": "FPE",
    "Illegal instruction": "ILL",
}
#: What a process that gave itself up may say of it: its own log says why.
_ABORTED = ("aborted", Impact.VICTIM, "it gave itself up; why stands before that in its log")
_ORDERED = ("HUP", "INT", "QUIT", "TERM", "USR1", "USR2")
_NUMBERS = {"ABRT": 6, "ILL": 4, "BUS": 7, "FPE": 8, "KILL": 9, "SEGV": 11}
#: Codes of findings that such a line makes of a process that was not told to end.
CODES = frozenset({code for code, impact, _ in SIGNALS.values() if impact is Impact.PROGRAM} | {_ABORTED[0]})
#: Parts of lines, one of which stands in each form.
FATAL = "Fatal Python error: "
HINTS = (
    "*** SIG",
    " terminated with signal SIG",
    "] Signal: ",
    "] Caught signal ",
    "), PID: ",
    FATAL,
    "Current thread 0x",
)
#: What C++ prints of an exception that nobody caught, below the line with its class.
THROWN = re.compile(r"\s{1,4}what\(\):\s{1,4}(?P<what>\S.{0,400})")
#: A frame below that line, of the thread that a signal struck.
PLACE = re.compile(r"File \"(?P<file>[^\"\n]{1,4000})\", line (?P<line>\d{1,9}) in (?P<function>\S{1,200})")


def finding(line: str, source: str) -> Finding | None:
    """The end of a process by a signal; None if a line tells of none, or of a signal that ends no process by itself."""
    if not any(hint in line for hint in HINTS):
        return None
    found = next((match for form in _FORMS if (match := form.search(line))), None)
    if found is None:
        return None
    named = found.groupdict()
    words = named.get("words")
    name = _WORDS[words] if words else named.get("name") or signal_name(int(named.get("number") or 0))
    name = name.removeprefix("SIG")
    pid, host = named.get("pid"), named.get("host") or ""
    who = f"process {pid}" if pid else "a process"
    if name in _ORDERED:
        return Finding(source, STOP_ORDER, Impact.TELLS_NOTHING, f"{who} was told to end by SIG{name}", host)
    if name not in _NUMBERS:
        return None
    code, impact, why = SIGNALS.get(f"-{_NUMBERS[name]}", _ABORTED)
    return Finding(source, code, impact, f"{who} ended by SIG{name}: {why.removeprefix(f'SIG{name}, ')}", host)
