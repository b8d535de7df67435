"""Reads a training log: what each process in it counted (PyTorch's watchdog, NCCL's calls) and what it met.

A log may be one rank's, one machine's or the whole job's with lines of all ranks mixed. Whose a line is, its prefix
tells: `[rank3]:` is the global rank, torchrun's `[default3]:` the rank on the machine, and a number in `[PG … Rank 3]`
that inside a process group, which is the global one only in the default group.
"""

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from hangdog_models.collectives import WATCHDOG, RankCounters
from hangdog_models.findings import Finding
from hangdog_models.ranks import Rank
from hangdog_models.reading.limits import DEFAULTS, Limits
from hangdog_models.reading.logs import log_process, log_table, nccl_log, watchdog
from hangdog_models.reading.logs.log_counters import LogCounters
from hangdog_models.reading.logs.log_lines import LogLine, lines_of_log
from hangdog_models.reading.logs.log_process import LogProcess
from hangdog_models.reading.logs.reports import crash_report, overseers
from hangdog_models.reading.logs.startup_lines import Arrivals

#: What only logs of training jobs hold; one of them is enough.
_MARKS = (
    "ProcessGroup", "Watchdog caught", "WorkNCCL(", "NCCL WARN", "NCCL INFO", "NCCL error", "CUDA error",
    "CUDA out of memory", "cudaError", "DistBackendError", "worker_count=", "ast enqueued", "Detected mismatch between",
    "[c10d]", "Traceback (most recent call last)", "[rank", "first observed failure", "torch.distributed",
    "torch/distributed", "monitoredBarrier", "DataLoader worker", "store based barrier", "site-packages/torch/",
    "torchrun", "RendezvousConnectionError", "RendezvousTimeoutError", "NCCL version", "desync", "srun: error:", "srun: Job step aborted", "slurmstepd: error:", "salloc: error: Node failure on ",
    "DUE TO JOB NOT ENDING WITH SIGNALS", " (local_rank: ", "/elastic/errors.html",
    "tensors were submitted to be reduced", "[missing ranks:", "may be stuck: participant", "Not all ranks joining collective",
    "missing_ranks", "imed out task names:", "XlaRuntimeError", "coordination service", "Accelerator device halted",
    "*** SIGSEGV", "*** SIGABRT", "*** SIGBUS", "*** SIGFPE", "*** SIGILL", "*** SIGTERM", "] Signal: ", "] Caught signal ",
    "torch_npu", " EI00", "EI0002:", "EI0006:", "runtime result =", "broadcast block found", "EngineCore", "watchdog_timeout=",
    "CUDA_ERROR_", "cuda runtime error", "cudaGetDeviceCount", "HIP error", "HW Exception by GPU", "Memory access fault by GPU",
    "loss scale already at minimum", "/job:jax_worker/", "XlaRuntimeError", "!!!! FATAL ERROR !!!!", "ORTE has lost communication", "PRTE has lost communication",
    "terminate called after throwing", " terminated with signal SIG", "Fatal Python error: Segmentation fault", "Fatal Python error: Bus error", "Fatal Python error: Floating-point exception", "Fatal Python error: Illegal instruction",
    "noticed that process rank", "has exited due to process rank", "Process name: [", "MPI_ABORT was invoked", "exits with return code",
    "SLICE_FAILURE_", "TPU session error", "hccl fftsplus task timeout", "NET/OFI ", "got completion with error:", "Peer host id: ",
    "and may be stuck. ", "due to async NCCL error", "DeepEP timeout check failed", "GLOBAL_RANK: ", "Prolog failure on node", "Prolog hung on node", "ray.exceptions.", "The actor is dead because", "A worker died or was killed", "killed due to memory pressure", "MPI communication peer process", "has been marked dead because", "TCPStore", '"label":"RAY_NODE_REMOVED"', '"label":"RAYLET_MARKED_DEAD"',
)  # fmt: skip
#: Parts of lines that say something, beside those of the table.
_HINTS = (
    "WorkNCCL(", "[PG ", "opCount", "commId", "barrier", "collective", 'File "', "Root Cause", "Error", "Exception",
    "Interrupt", "Exit", "Timeout", "host      : ", "rank      : ", "exitcode  : ", "Fault", "Failure", "ast enqueued", " joined",
    "GLOBAL_RANK: ", " processes registered", "NCCL INFO", "localGid",
    "  what():  ", *crash_report.HINTS, *overseers.HINTS,
)  # fmt: skip
#: Where PyTorch quotes what NCCL warned of last: the words stand in the line below, without NCCL's prefix.
_LAST_ERROR = re.compile(r"(Last error:[ \t\r]{0,8}\n(?:\[rank\d{1,7}\]:? ?)?)(?=\S)")
#: What torchrun writes before it starts the ranks again, and what a log holds where that did not help.
_RESTARTS = "will restart worker group"
_FAILED = (
    "Watchdog caught", "Exception (either an error or timeout)", "Traceback (most recent call last)", "Worker group FAILED", "NCCL WARN",
    "NCCL error", "CUDA error", "Signal ", "first observed failure", "srun: error:",
)  # fmt: skip
#: A line of progress, and so many of them that the ranks train again.
_STEP = re.compile(
    r"\b(?:global_step|step|iteration|iter|epoch)\b\W{0,12}\d{1,12}|\b\d{1,12}/\d{1,12} \[\d{1,4}:\d\d", re.IGNORECASE
)
_STEPS = 10
#: Lines of the kernel in the journal of a machine: another reader's.
_OF_KERNEL = ("NVRM: ", " kernel: ")
#: Processes told apart in one log; a log of a whole job of this size would be larger than what is read of a file.
_MOST_PROCESSES = 1 << 16


#: Rank, local rank, process id and host of a process, as far as a line tells them.
_Owner = tuple[Rank | None, int | None, int | None, str]


@dataclass(frozen=True, slots=True)
class Stream:
    """What one process in a log says. `rank` is None where nothing tells it; `local` is then its rank on the machine, if known.

    The counters of a process without a rank carry the rank -1 until somebody places it. `own`: lines of it are in the
    log; otherwise others only report of it. `host` is the machine as the process itself calls it, `addresses` those of that
    machine; `arrivals` is what it tells of the job's start-up.
    """

    rank: Rank | None
    local: int | None
    counters: RankCounters | None
    findings: tuple[Finding, ...]
    own: bool = True
    host: str = ""
    addresses: frozenset[str] = frozenset()
    arrivals: Arrivals | None = None


def recognises(text: str) -> bool:
    """Whether a text is the log of a training job; to be asked of the whole text."""
    return any(mark in text for mark in _MARKS)


def read(
    text: str, rank: Rank | None, limits: Limits = DEFAULTS, local: int | None = None, at_s: float | None = None
) -> tuple[Stream, ...]:
    """What the processes of a log say, those without a rank last. Lines without a prefix belong to `rank`.

    Where that is not known they belong to the process with the number `local` on its machine. `at_s` is when lines without
    a time of their own were written.

    Never raises; of a log in which nothing is known nothing comes out. Work is linear in the size of the text.
    """
    text = _of_this_start(text)
    if "Last error:" in text:
        text = _LAST_ERROR.sub(r"\1NCCL WARN ", text)
    processes: dict[_Owner, LogProcess] = {}
    listing: LogProcess | None = None  # the process in whose lines a list stands, of failures or of ranks
    # Looking through the whole text for each hint first is cheap, and leaves few of them to look for in each line.
    hints = tuple(hint for hint in dict.fromkeys(_HINTS + log_table.packaged().hints) if hint in text)
    for number, line in enumerate(lines_of_log(text)):
        if listing is None and not any(hint in line.text for hint in hints):
            continue
        if any(mark in line.text for mark in _OF_KERNEL):
            continue
        if line.at_s is None and at_s is not None:
            line = replace(line, at_s=at_s)
        key = _whose(line, rank, local, limits)
        process = processes.get(key)
        if process is None:
            if len(processes) >= _MOST_PROCESSES:
                continue
            process = processes[key] = LogProcess(key[0])
        log_process.take(process, line, number, limits)
        if process.first_failure.lines or process.reports.expecting:
            listing = process
        elif process is listing:
            listing = None
    return tuple(_streams(processes, limits))


def _of_this_start(text: str) -> str:
    """The log since torchrun started the ranks again, where these have trained since and met nothing; else all of it."""
    at = text.rfind(_RESTARTS)
    rest = text[at:] if at >= 0 else ""
    if not rest or any(mark in rest for mark in _FAILED):
        return text
    return rest if sum(1 for _ in itertools.islice(_STEP.finditer(rest), _STEPS)) == _STEPS else text


def _whose(line: LogLine, rank: Rank | None, local: int | None, limits: Limits) -> _Owner:
    """What a line's process is told from others by; only the first that is known counts."""
    if line.rank is not None or rank is not None:
        return line.rank if line.rank is not None else rank, None, None, ""
    group = watchdog.group_of(line.text, limits) if "[PG " in line.text else None
    if group is not None and group.rank is not None:
        return group.rank, None, None, ""
    if line.local is not None or local is not None:
        return None, line.local if line.local is not None else local, None, ""
    return None, None, line.process, "" if line.process is not None else line.host


def _streams(processes: dict[_Owner, LogProcess], limits: Limits) -> Iterator[Stream]:
    counted: dict[Rank, LogCounters] = {}
    findings: dict[Rank, tuple[Finding, ...]] = {}
    loose: list[Stream] = []
    reported: list[dict[Rank, LogCounters]] = []
    by_rank: dict[Rank, Stream] = {}
    for (rank, local, _, _), process in processes.items():
        process.rank = rank = rank if rank is not None else process.called_rank
        found = log_process.findings(process, limits)
        own = _merged(process.watched.counted, nccl_log.named(process.calls))
        reported.append(log_process.hearsay(process))
        if rank is None:
            counters = own.put_together(Rank(-1)) if own.enqueued and local is not None else None
            if found or counters or process.addresses or process.arrivals.mentioned:
                loose.append(_stream(process, local, counters, found))
            continue
        by_rank[rank] = _stream(process, None, None, ())
        counted[rank] = _merged(counted[rank], own) if rank in counted else own
        findings[rank] = findings.get(rank, ()) + found
    for hearsay in reported:  # what a rank says of itself counts more than what others say of it
        for rank, counts in hearsay.items():
            counted[rank] = _merged(counted.get(rank, LogCounters(WATCHDOG)), counts)
    for rank in sorted(counted):
        counts = counted[rank]
        counters = counts.put_together(rank) if counts.enqueued or counts.entries else None
        base = by_rank.get(rank, Stream(rank, None, None, (), own=False))
        if counters or findings.get(rank) or base.addresses or (base.arrivals and base.arrivals.mentioned):
            yield replace(base, counters=counters, findings=findings.get(rank, ()))
    yield from loose


def _stream(
    process: LogProcess, local: int | None, counters: RankCounters | None, found: tuple[Finding, ...]
) -> Stream:
    return Stream(
        process.rank, local, counters, found, host=process.host or process.address, addresses=frozenset(process.addresses),
        arrivals=process.arrivals if process.arrivals.mentioned else None,
    )  # fmt: skip


def _merged(first: LogCounters, second: LogCounters) -> LogCounters:
    """The counts of both; where both speak of a group, the first's."""
    if not second.enqueued and not second.entries:
        return first
    if not first.enqueued and not first.entries:
        return second
    groups = (second.enqueued.keys() | second.entries.keys()) - (first.enqueued.keys() | first.entries.keys())
    for ours, theirs in (
        (first.enqueued, second.enqueued), (first.started, second.started), (first.completed, second.completed),
    ):  # fmt: skip
        ours.update({group: number for group, number in theirs.items() if group in groups})
    first.descriptions.update({group: words for group, words in second.descriptions.items() if group in groups})
    first.entries.update({group: kept for group, kept in second.entries.items() if group in groups})
    return first
