"""What may be tuned in the agent, with the reason of each default."""

import math
import os
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any

from hangdog_models.errors import WrongUse


@dataclass(frozen=True, slots=True)
class CaptureSettings:
    """Bounds of one look at the processes of a job on this machine; every time is in seconds."""

    #: A nonblocking py-spy takes 10 to 100 ms; twenty times that is a tool that hangs.
    nonblocking_s: float = 2.0
    #: A blocking one stops the trainer while it lasts, so its deadline bounds the freeze too.
    blocking_s: float = 5.0
    #: Nonblocking reads race with a running target: 31 of 40 succeed at once under heavy thread churn, nearly all after two more.
    retries: int = 2
    #: The whole look; below the 20 s that a server waits for an answer, so that a slow one still arrives.
    look_s: float = 15.0
    #: A rank's stacks are some 7 KiB of JSON, 274 KiB were the most seen.
    stdout_bytes: int = 8 << 20
    #: Processes read at the same time; None chooses by the cores. A py-spy takes 8 MiB.
    workers: int | None = None
    #: Children looked at of one rank: data loader and compile workers number in the tens.
    children: int = 128

    def pool(self) -> int:
        """How many processes are read at the same time: twice the cores of this machine, at least 4, at most 32."""
        return self.workers or min(32, max(4, 2 * len(os.sched_getaffinity(0))))


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """How the agent keeps its line to the server; every time is in seconds."""

    #: Back-off before the first reconnection; the real pause is drawn evenly between 0 and the bound (full jitter).
    backoff_first_s: float = 0.5
    #: Largest bound: after a server's restart a whole cluster is back within half a minute, spread out.
    backoff_most_s: float = 30.0
    #: Between two looks at the process table; a scan of some hundred processes takes a few milliseconds.
    scan_s: float = 2.0
    #: Heartbeat until the server's Welcome names another.
    heartbeat_s: float = 5.0
    #: Most looks one order may ask for, whatever a server says.
    rounds: int = 100
    #: Longest pause between two looks of one order, whatever a server says.
    interval_s: float = 60.0
    #: Orders waiting or running at once; a server has one incident at a time for each job.
    orders: int = 16
    #: A dead rank of a job with no living rank here is remembered this long.
    forget_s: float = 600.0


def chosen(assignments: Iterable[str]) -> tuple[CaptureSettings, LinkSettings]:
    """The settings with each `NAME=VALUE` in the place of its default; raises WrongUse. Values are numbers, 0 or more."""
    capture, link = CaptureSettings(), LinkSettings()
    for assignment in assignments:
        name, _, value = assignment.partition("=")
        kinds = {field.name: type(field.default) for each in (capture, link) for field in fields(each)}
        if name not in kinds:
            raise WrongUse(f"{name!r} is no setting", f"settings are {', '.join(sorted(kinds))}")
        number = _number(value, whole=kinds[name] is not float)
        if number is None:
            raise WrongUse(f"{assignment!r} sets no number of 0 or more", f"write it as {name}=NUMBER")
        change: dict[str, Any] = {name: number}
        if name in {field.name for field in fields(capture)}:
            capture = replace(capture, **change)
        else:
            link = replace(link, **change)
    return capture, link


def _number(text: str, whole: bool) -> float | None:
    try:
        number = int(text) if whole else float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None
