"""Reads for how long a job had stood still, as watchdogs and time-outs in its log state it.

A watchdog that gives up says for how long it waited. Nothing that it waits for had moved for as long. A log in which steps
follow, or another start, states nothing any more.
"""

import re
from itertools import islice

from hangdog_models.reading.json_document import int_of
from hangdog_models.reading.limits import DEFAULTS, Limits
from hangdog_models.reading.logs.log_lines import lines_of_log
from hangdog_models.reading.numbers import number_line

#: A longer wait than a year is a damaged number. Seconds.
_LONGEST_S = 366 * 86_400.0
#: Lines after the last statement in which steps are sought.
_AFTER = 100_000
#: What torchrun and NCCL write when ranks begin again.
_BEGINS = (
    "Rendezvous complete for workers",
    "Starting worker group",
    "estarting worker group",
    "Init START",
    "Init COMPLETE",
)
#: Each with the seconds in one unit of its number, and where the line is from.
_STATED: tuple[tuple[str, re.Pattern[str], float], ...] = (
    # PyTorch ProcessGroupNCCL.cpp: a time-out in earnest; a shorter run ended with a closed connection
    ("before timing out", re.compile(r"Timeout\(ms\)=(?P<bound>\d{1,12})\) ran for (\d{1,12}) milliseconds before timing out"), 1e-3),
    # PyTorch ProcessGroupNCCL.cpp, HeartbeatMonitor
    ("watchdog", re.compile(r"watchdog (?:thread )?got stuck for (\d{1,9}) seconds without making progress"), 1.0),
    # PyTorch third_party/gloo, transport/tcp/unbound_buffer.cc
    ("Timed out waiting", re.compile(r"Timed out waiting (\d{1,12})ms for (?:send|recv) operation to complete"), 1e-3),
    # PyTorch ProcessGroupGloo.cpp, monitoredBarrier
    ("monitoredBarrier", re.compile(r"failed to pass monitoredBarrier in (\d{1,12}) ?ms"), 1e-3),
    # PyTorch TCPStore.cpp
    ("wait timeout after", re.compile(r"wait timeout after (\d{1,12}) ?ms"), 1e-3),
    # sgl-project/sglang, the watchdog of the scheduler
    ("watchdog_timeout=", re.compile(r"atchdog timeout \(self\.watchdog_timeout=(\d{1,9})"), 1.0),
    # NVIDIA/nvidia-resiliency-ext, fault_tolerance/rank_monitor_server.py
    ("heartbeat. Waited", re.compile(r"Did not get (?:initial|subsequent) heartbeat\. Waited (\d{1,9})"), 1.0),
    # apple/axlearn, common/trainer.py
    ("step has not incremented", re.compile(r"step has not incremented in the last (\d{1,9})"), 1.0),
)  # fmt: skip


def read(text: str, limits: Limits = DEFAULTS) -> float | None:
    """The longest wait that a log states, in seconds; None where it states none, or the job goes on after the last statement.

    Work is linear in the size of the text. Never raises.
    """
    stated, last = [], 0
    for hint, pattern, unit_s in _STATED:
        if hint not in text:
            continue
        for found in pattern.finditer(text):
            wait_s = (int_of(found[found.lastindex or 1]) or 0) * unit_s
            bound_s = (int_of(found.groupdict().get("bound")) or 0) * unit_s
            last = max(last, found.end())
            if bound_s / 2 <= wait_s <= _LONGEST_S:
                stated.append(wait_s)
    return None if not stated or _goes_on(text[last:], limits) else max(stated)


def _goes_on(text: str, limits: Limits) -> bool:
    """Whether steps follow, or the job begins anew. The first line is the rest of the statement."""
    if any(mark in text for mark in _BEGINS):
        return True
    lines = islice(lines_of_log(text), 1, _AFTER)
    return any(number_line.read(line, limits) is not None for line in lines)
