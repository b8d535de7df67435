"""Reads `/proc/PID/wchan` and `/proc/PID/syscall` as people show them: below the command, behind the file's name, or as a script
prints them (`pid=7 state=D wchan=nfs_wait`).

Formats of Linux 2.6 to 6.18 (proc(5), fs/proc/base.c). The wait channel has no line end, so the next prompt follows it at once.
"""

import re

from msgspec import structs

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.reading.json_document import text_of
from hangdog_models.reading.limits import DEFAULTS, Limits
from hangdog_models.reading.processes.listed_process import ListedProcess, check_processes
from hangdog_models.reading.stacks.dumped_process import lines_of
from hangdog_models.stack import ProcessState

#: `cat /proc/7/wchan`, `==> /proc/7/task/7/wchan <==`, or `/proc/7/wchan:` before the value, as grep prints it.
_FILE = re.compile(r"/proc/(\d{1,9})(?:/task/(\d{1,9}))?/(wchan|syscall)(?=[\s:;<]|$)(?::(.{0,400}))?")
#: What scripts print that go through the processes of a machine.
_PRINTED = re.compile(
    r"(?i).{0,60}?\bpid[ =:]{1,3}(\d{1,9})\b.{0,80}?\bstate[=:] ?([RSDTtZXI])\b.{0,80}?\bwchan[=:] ?([a-z_][\w.]{0,127}|0|-)?(?=\s|$)"
)
_WCHAN = re.compile(r"[a-zA-Z_][\w.]{0,127}|0")
#: A call's number and its arguments, stack and program counter; -1 in user space, `running` where it does not sleep.
_SYSCALL = re.compile(r"(running)|(-?\d{1,4})(?: 0x[0-9a-f]{1,16}){2,8}")
#: What stands before a command that shows a file is a shell's prompt.
_COMMAND = re.compile(r"(.{0,200}?)\b(?:sudo|cat|head|tail|more|grep)\b")
_HEAD_LINES = 200


def recognises(head: str) -> bool:
    """Whether a text has the name of one of the files in its first lines, and a value for it."""
    lines = "\n".join(line for line, _ in zip(lines_of(head), range(_HEAD_LINES), strict=False))
    return ("/proc/" in lines or "wchan" in lines) and bool(_read(lines, DEFAULTS))


def read(text: str, limits: Limits = DEFAULTS) -> tuple[ListedProcess, ...]:
    """The processes with a wait channel, or a call; raises UnreadableEvidence where there is none."""
    found = _read(text[: limits.file_bytes], limits)
    if not found:
        raise UnreadableEvidence("neither /proc/<pid>/wchan nor /proc/<pid>/syscall", code="damaged-process-state")
    return tuple(ListedProcess(state, asked=True) for state in found.values())


def _read(text: str, limits: Limits) -> dict[int, ProcessState]:
    found: dict[int, ProcessState] = {}
    prompt = ""
    waiting: tuple[int, str] | None = None
    for line in lines_of(text):
        file = _last_file(line)
        if waiting is not None:  # the next command may stand behind a value that has no line end
            _take(found, *waiting, _before(line, prompt), limits)
            waiting = None
        if file is None and (printed := _PRINTED.match(line)) and int(printed[1]):
            state = ProcessState(pid=int(printed[1]), state=printed[2], wchan=text_of(_somewhere(printed[3]), limits))
            found[state.pid] = state
        if file is None or file[2] not in (None, file[1]):
            continue
        pid = int(file[1])
        if file[4] is not None:
            _take(found, pid, file[3], file[4], limits)
        elif pid:
            waiting = pid, file[3]
            command = _COMMAND.match(line) if not prompt else None
            prompt = command[1].strip() if command else prompt
        check_processes(len(found), limits)
    return found


def _somewhere(channel: str | None) -> str:
    return "" if channel in (None, "0", "-") else str(channel)


def _last_file(line: str) -> re.Match[str] | None:
    """The last file that a line names: the one before it may be what a prompt shows."""
    return next(reversed(list(_FILE.finditer(line))), None)


def _before(line: str, prompt: str) -> str:
    """The value in front of the prompt that followed it at once."""
    return line.partition(prompt)[0] if prompt else line


def _take(found: dict[int, ProcessState], pid: int, kind: str, value: str, limits: Limits) -> None:
    value = value.strip()
    state = found.get(pid, ProcessState(pid=pid, state=""))
    if not pid:
        return
    if kind == "syscall":
        if call := _SYSCALL.match(value):
            running = call[1] is not None or call[2] == "-1"
            letter = "R" if call[1] else state.state
            found[pid] = structs.replace(state, state=letter, syscall="" if running else call[0])
    elif _WCHAN.fullmatch(value):
        found[pid] = structs.replace(state, wchan="" if value == "0" else text_of(value, limits))
