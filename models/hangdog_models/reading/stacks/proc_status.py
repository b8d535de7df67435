"""Reads what the kernel says of a process: `*.proc.json`, or the text of `/proc/<pid>/status`."""

import re

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.progress.device_readings import DeviceReadings
from hangdog_models.ranks import MAX_RANK
from hangdog_models.reading.json_document import int_of, text_of
from hangdog_models.reading.limits import DEFAULTS, Limits
from hangdog_models.stack import ProcessState

#: The state letters of proc(5), kernels since 2.6; I is an idle kernel thread.
_STATES = "RSDTtZXxKWPI"
#: More CPU time than any process has had: tells a number from nonsense such as 1e999.
_MOST_SECONDS = 1e12
#: More often than any thread was put on a processor, or any job made a step.
_MOST_TIMES = 1 << 62
_STATUS_LINE = re.compile(r"^(Name|State|Pid):(.*)$", re.MULTILINE)


def recognises(document: object) -> bool:
    """Whether a JSON document is one process state."""
    return isinstance(document, dict) and "pid" in document and "state" in document and "frames" not in document


def read(document: object, limits: Limits = DEFAULTS) -> ProcessState:
    """The state a `*.proc.json` holds; raises UnreadableEvidence where pid or state make no sense."""
    if not isinstance(document, dict):
        raise UnreadableEvidence("not a process state: no JSON object", code="damaged-process-state")
    pid = int_of(document.get("pid"))
    if pid is None or pid <= 0:
        raise UnreadableEvidence("not a process state: no pid", code="damaged-process-state")
    return ProcessState(
        pid=pid,
        state=_letter(text_of(document.get("state"), limits)),
        wchan=text_of(document.get("wchan"), limits),
        syscall=text_of(document.get("syscall"), limits),
        cpu_s=_seconds(document.get("cpu_s")),
        comm=text_of(document.get("comm"), limits),
        cmdline=text_of(document.get("cmdline"), limits),
        ran_s=_seconds(document.get("ran_s")),
        wakes=_times(document.get("wakes")),
        steps=_times(document.get("steps")),
        device=_device(document.get("device")),
    )


def recognises_status(head: str) -> bool:
    """Whether a text is `/proc/<pid>/status`."""
    return {"Name", "State"} <= {key for key, _ in _STATUS_LINE.findall(head)}


def read_status(text: str, limits: Limits = DEFAULTS) -> ProcessState:
    """The state in the text of `/proc/<pid>/status`; raises UnreadableEvidence where lines are missing."""
    lines = {key: value.strip() for key, value in _STATUS_LINE.findall(text)}
    pid = int_of(lines.get("Pid"))
    if pid is None or pid <= 0 or "State" not in lines:
        raise UnreadableEvidence("not /proc/<pid>/status: no Pid or no State line", code="damaged-process-state")
    return ProcessState(pid=pid, state=_letter(lines["State"]), comm=text_of(lines.get("Name"), limits))


def _seconds(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and 0 <= value < _MOST_SECONDS else None


def _times(value: object) -> int | None:
    return _number(value, _MOST_TIMES)


def _number(value: object, most: int) -> int | None:
    number = int_of(value)
    return number if number is not None and 0 <= number < most else None


def _device(value: object) -> DeviceReadings | None:
    """The readings of a device; None where they are none: they are no reason to lose the rest of the state."""
    if not isinstance(value, dict):
        return None
    counts = [_number(value.get(name), 1 << 64) for name in ("waiting", "behind", "sending", "communicator")]
    places = [int_of(value.get(name, -1)) for name in ("number", "peer")]
    if None in counts or any(place is None or not -1 <= place <= MAX_RANK for place in places):
        return None
    return DeviceReadings(*counts, *places)  # type: ignore[arg-type]  # seen to just above


def _letter(state: str) -> str:
    letter = state.strip()[:1]
    if letter not in _STATES or not letter:
        raise UnreadableEvidence(
            f"not a process state: {state[:20]!r} is none of {' '.join(_STATES)}", code="damaged-process-state"
        )
    return letter
