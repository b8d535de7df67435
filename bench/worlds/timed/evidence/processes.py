"""What /proc says of a process, and the errors of tools that could not read it."""

from typing import Any

from hangdog_models.ranks import Rank
from worlds.timed.engine.position import Position
from worlds.timed.evidence.plan import Failure
from worlds.timed.evidence.stacks import SPINNING, sleeps, turn
from worlds.timed.incident import Incident

#: The system call of a process that sleeps, by its native frames; futex else.
_CALLS = {
    "tls_write": 1, "file_write": 1, "file_read": 0, "tls_read": 0, "terminal": 0, "poll": 7, "name_lookup": 7, "nccl_init": 7,
    "store": 45, "ray_idle": 232, "jax_connect": 232, "sleep": 230, "child_wait": 61, "driver_call": 16,
}  # fmt: skip
_FUTEX = 202
#: Where the kernel lets each of them wait.
_WAITS = {0: "wait_woken", 1: "sk_stream_wait_memory", 7: "do_sys_poll", 45: "wait_woken", 61: "do_wait", _FUTEX: "futex_wait_queue", 230: "hrtimer_nanosleep", 232: "ep_poll"}  # fmt: skip
#: CPU seconds that a process had used before the simulation began, and those that its other threads use in a second.
_BEFORE_S, _OTHERS = 180.0, 0.03

_ERRORS = {
    Failure.GONE: "Error: Failed to open process {pid}\nReason: No such process (os error 3)\n",
    Failure.NO_FILES: "Error: Failed to open process {pid} - check if it is running.\n\nCaused by:\n    No such file or directory (os error 2)\n",
    Failure.ZOMBIE: "Error: Failed to get process executable name. Check that the process is running.\nReason: No such file or directory (os error 2)\n",
    Failure.UNREACHABLE: "ssh: connect to host {machine} port 22: Connection timed out\n",
    Failure.NOT_STOPPED: "Error: Failed to suspend process\nReason: EPERM: Operation not permitted\n",
    Failure.NO_ANSWER: "hangdog: timed_out: py-spy gave no answer within 10 s\n",
    Failure.FORBIDDEN: "Error: Permission Denied: Try running again with elevated permissions by going 'sudo env \"PATH=$PATH\" !!'\n",
}


def error(failure: Failure, pid: int, machine: str) -> str:
    """The words of the tool that failed."""
    return _ERRORS[failure].format(pid=pid, machine=machine)


def process(incident: Incident, rank: Rank, look: int, pid: int, command: str) -> dict[str, Any] | None:
    """What /proc says of a trainer at a look; None before it was started."""
    time, at, host = incident.looks[look][rank], incident.seen(rank, look), incident.host(rank)
    if at is None:
        return None
    if host.dead is not None and time >= host.dead:
        return _row(pid, "Z", "do_exit", "", _BEFORE_S + host.cpu_s(host.dead), "")
    state = "T" if host.stopped is not None and time >= host.stopped else _state(at, turn(at, rank, time))
    alive = time if state != "T" or host.stopped is None else host.stopped
    used = _BEFORE_S + pid % 97 + host.cpu_s(alive) + _OTHERS * alive
    call, wchan = _waits(at, state)
    return _row(pid, state, wchan, call, used, command, "python" if incident.job.name == "jax" else "pt_main_thread")


def worker(pid: int, *, stuck: bool, blocked: str, command: str, used: float) -> dict[str, Any]:
    """What /proc says of a worker of a data loader; `blocked` is the call of storage that it sleeps in."""
    state = "D" if blocked else "S"
    wchan = blocked or ("pipe_read" if stuck else "do_sys_poll")
    return _row(pid, state, wchan, "0" if stuck else "7", used, command, "pt_data_worker")


def _state(at: Position, inner: str) -> str:
    if at.native in SPINNING:
        return "R"
    return "S" if at.state == "R" and sleeps(at, inner) else at.state


def _waits(at: Position, state: str) -> tuple[str, str]:
    if state in "RT":
        return "running", "0" if state == "R" else "do_signal_stop"
    if state == "D":
        return "1", at.wchan
    call = _CALLS.get(at.native, _FUTEX)
    return str(call), _WAITS.get(call, at.wchan)


def _row(
    pid: int, state: str, wchan: str, call: str, used: float, command: str, name: str = "pt_main_thread"
) -> dict[str, Any]:
    return {
        "pid": pid,
        "state": state,
        "wchan": wchan,
        "syscall": call,
        "cpu_s": round(used, 2),
        "comm": name,
        "cmdline": command,
    }
