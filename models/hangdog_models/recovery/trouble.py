"""Why a job needs help: what to blame, from a verdict or from how its processes ended."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from hangdog_models.verdict import Kind, Verdict
from hangdog_models.views.answer_text import percent

#: Exceptions that a line of Python raises by itself, whatever machine it runs on (ByteRobust's "user-space errors": TypeError,
#: IndexError). RuntimeError is none: PyTorch raises it for CUDA and NCCL errors, too.
OF_CODE = frozenset({
    "ArithmeticError", "AssertionError", "AttributeError", "ImportError", "IndentationError", "IndexError", "KeyError",
    "ModuleNotFoundError", "NameError", "NotImplementedError", "SyntaxError", "TypeError", "UnboundLocalError", "ValueError",
    "ZeroDivisionError",
})  # fmt: skip
#: The last line of a traceback; launchers put `[rank3]:`, `[default0]:` or `3:` before it.
_RAISED = re.compile(r"(?:\[[^\]]{1,60}\]:? ?|\d{1,7}: ?){0,2}(?P<name>[A-Za-z_][\w.]{0,100})(?:: .*)?")
_TRACEBACK = "Traceback (most recent call last)"
#: Characters of a line looked at, and kept of what it says.
_LINE, _WORDS = 1000, 200


class Cause(StrEnum):
    """What to blame."""

    MACHINE = "machine"
    SOFTWARE = "software"
    DEPENDENCY = "dependency"
    UNKNOWN = "unknown"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Trouble:
    """`choices` are the sets of machines that may be evicted, the best first; only the cause MACHINE has any."""

    cause: Cause
    what: str
    choices: tuple[tuple[str, ...], ...] = ()


def of_verdict(verdict: Verdict) -> Trouble:
    """The trouble of a verdict. If it evicts no machine it blames none; a slow job may then go on."""
    what = f"verdict {verdict.kind}, {percent(verdict.confidence)}: {verdict.because[0] if verdict.because else 'no reason given'}"
    evict = verdict.evict.machines
    if evict and verdict.kind in (Kind.MACHINE, Kind.GROUP, Kind.SLOW):
        fewer = (suspect.machines for suspect in verdict.suspects if set(suspect.machines) < set(evict))
        return Trouble(
            Cause.MACHINE, what, tuple(dict.fromkeys((evict, *(machines for machines in fewer if machines))))
        )
    causes = {
        Kind.SOFTWARE: Cause.SOFTWARE,
        Kind.DEPENDENCY: Cause.DEPENDENCY,
        Kind.NONE: Cause.NONE,
        Kind.SLOW: Cause.NONE,
    }
    return Trouble(causes.get(verdict.kind, Cause.UNKNOWN), what)


def of_exit(statuses: Mapping[str, int], words: Mapping[str, str]) -> Trouble:
    """The trouble of an exit: the exit statuses by machine, and the last output of each process."""
    failed = [machine for machine, status in statuses.items() if status]
    who = ", ".join(f"{machine} with status {statuses[machine]}" for machine in failed[:4])
    what = f"the job ended on {who}" + (f" and {len(failed) - 4} more machines" if len(failed) > 4 else "")
    for machine in failed:
        _, _, raised = words.get(machine, "").partition(_TRACEBACK)
        for line in raised.splitlines():
            found = _RAISED.fullmatch(line[:_LINE].rstrip())
            if found and found["name"].rpartition(".")[2] in OF_CODE:
                return Trouble(Cause.SOFTWARE, f"{what}: {found[0][:_WORDS]}")
    return Trouble(Cause.UNKNOWN, what)
