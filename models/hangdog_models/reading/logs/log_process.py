"""What the log lines of one process come to: its counters, what it reports of others, and what it met first."""

from dataclasses import dataclass, field, replace

from hangdog_models.collectives import WATCHDOG, CollectiveRecord
from hangdog_models.findings import Finding, Impact
from hangdog_models.ranks import Rank, format_ranks
from hangdog_models.reading.json_document import text_of
from hangdog_models.reading.limits import Limits
from hangdog_models.reading.logs import desync, log_table, nccl_log, startup_lines, watchdog
from hangdog_models.reading.logs.log_counters import LogCounters
from hangdog_models.reading.logs.log_lines import LogLine
from hangdog_models.reading.logs.traceback_lines import Traceback
from hangdog_models.reading.printable import printable

SOURCE = "log"
#: The group under which operations stand that were compared before they ran: that check has numbers of its own.
CHECKED = "collective check"
#: Lines after a process's first error within which further errors are its consequences: an abort during shutdown, a
#: second exception while the first is handled. Later ones are news again: a harmless warning may lie hours before.
_AFTERMATH = 2_000
#: Different findings of one process that are kept; after the first few everything is consequence.
_MOST = 64
#: Bearings that a process's first error does not explain: a broken device is no consequence of an abort.
_NEW_IMPACTS = (Impact.TELLS_NOTHING, Impact.CONVICTS, Impact.RESET)


@dataclass(slots=True)
class LogProcess:
    """One process while its lines come in; `hearsay` is what it reports of other ranks (global numbers)."""

    rank: Rank | None
    found: dict[tuple[object, ...], Finding] = field(default_factory=dict)
    watched: watchdog.Watched = field(default_factory=lambda: watchdog.Watched(LogCounters(WATCHDOG)))
    calls: nccl_log.Calls = field(default_factory=nccl_log.Calls)
    barriers: dict[str, startup_lines.StoreBarrier] = field(default_factory=dict)
    first_failure: startup_lines.FirstFailure = field(default_factory=startup_lines.FirstFailure)
    traceback: Traceback = field(default_factory=Traceback)
    timed_out_at: tuple[str, int] | None = None
    lags: list[desync.Lag] = field(default_factory=list)
    checked: dict[Rank, CollectiveRecord] = field(default_factory=dict)
    failed_at: int | None = None
    called_rank: Rank | None = None


def take(process: LogProcess, line: LogLine, number: int, limits: Limits) -> None:
    """Notes what line `number` of the log says of its process."""
    text = line.text
    ended = process.traceback.ends_with(text)
    if "opCount" in text or "commId" in text:
        called = nccl_log.take(process.calls, text)
        process.called_rank = called if called is not None else process.called_rank
        return
    if "barrier" in text:
        startup_lines.take_barrier(process.barriers, text)
    if process.first_failure.take(text):
        _note(process, _first_failure(process.first_failure, limits), line)
        return
    if "[PG " in text or "WorkNCCL(" in text:
        watchdog.take(process.watched, text, watchdog.group_of(text, limits), limits)
    if "collective" in text:
        _take_report(process, line, limits)
    if process.failed_at is None and (process.watched.timed_out or process.checked):
        process.failed_at = number
    known = log_table.packaged().find(text)
    if known is not None:
        row, match = known
        named = match.groupdict()
        finding = Finding(
            SOURCE, row.code, row.impact, row.what, device=text_of(named.get("device"), limits),
            ranks=desync.ranks_in(named.get("ranks") or ""),
            peers=tuple(text_of(peer, limits) for peer in (named.get("peer"),) if peer),
        )  # fmt: skip
        _note_error(process, finding, line, number)
    elif ended is not None:
        what = f"the program ended with {ended[0]}" + (f": {printable(ended[1], 200)}" if ended[1] else "")
        _note_error(process, Finding(SOURCE, ended[0], Impact.PROGRAM, what), line, number)


def _take_report(process: LogProcess, line: LogLine, limits: Limits) -> None:
    """Lines of a desync report, and of the check of collectives before they run."""
    if at := desync.timed_out_at(line.text):
        process.timed_out_at = at
    if (lag := desync.lag(line.text)) and len(process.lags) < _MOST:
        process.lags.append(lag)
    if "Detected mismatch" in line.text or "CollectiveFingerPrint" in line.text:
        quoted = list(desync.fingerprints(line.text, CHECKED, limits))
        if quoted and process.rank is not None and quoted[0][0] != process.rank:
            quoted = []  # the numbers are those inside some group: whose they are cannot be told
        process.checked.update(quoted)
        sides = "; ".join(f"rank {rank}: {_shown(record)}" for rank, record in quoted)
        what = "ranks of one group run different collectives at the same number" + (f" ({sides})" if sides else "")
        ranks = tuple(rank for rank, _ in quoted) or ((process.rank,) if process.rank is not None else ())
        _note(process, Finding(SOURCE, "mismatched collectives", Impact.PROGRAM, what, ranks=ranks), line)


def _shown(record: CollectiveRecord) -> str:
    sizes = f" of {list(record.input_sizes[0])}" if record.input_sizes else ""
    return f"{record.operation.removeprefix('nccl:')}{sizes} as number {record.sequence}"


def _note_error(process: LogProcess, finding: Finding, line: LogLine, number: int) -> None:
    """Notes an error, unless it is a consequence of the process's first; a broken device is never a consequence."""
    key = _key(finding)
    after = process.failed_at is not None and number - process.failed_at < _AFTERMATH
    if after and key not in process.found and finding.impact not in _NEW_IMPACTS:
        return
    if finding.impact is not Impact.TELLS_NOTHING and not after:
        process.failed_at = number
    _note(process, finding, line)


def _note(process: LogProcess, finding: Finding, line: LogLine) -> None:
    key = _key(finding)
    known = process.found.get(key)
    if known is not None:
        process.found[key] = replace(known, times=known.times + 1)
    elif len(process.found) < _MOST:
        process.found[key] = replace(finding, at_s=line.at_s)


def _key(finding: Finding) -> tuple[object, ...]:
    return finding.code, finding.impact, finding.device, finding.ranks, finding.peers


def _first_failure(failure: startup_lines.FirstFailure, limits: Limits) -> Finding:
    who = "a process" if failure.rank is None else f"rank {failure.rank}"
    what = f"the launcher saw {who} end first, with exit code {text_of(failure.exitcode, limits)}: whoever ends first is mostly a victim"
    rank = desync.ranks_in("" if failure.rank is None else str(failure.rank))
    return Finding(
        SOURCE, "first observed failure", Impact.VICTIM, what, text_of(failure.host, limits), *(rank[:1] or (None,))
    )


def findings(process: LogProcess) -> tuple[Finding, ...]:
    """All findings of the process, those of the watchdog and of start-up last; each belongs to the process's rank."""
    counted = process.watched.counted
    found = list(process.found.values())
    for work in watchdog.settled(process.watched):
        found.append(_timed_out(work, counted))
    if process.lags:
        ranks = tuple(sorted({rank for lag in process.lags for rank in lag.ranks})) if _global(process) else ()
        named = f"rank{'' if len(ranks) == 1 else 's'} {format_ranks(ranks)}" if ranks else "other members of its group"
        what = f"the desync report says that {named} did not come to the operation this rank waits in: a position, not yet a cause"
        found.append(Finding(SOURCE, "desync report", Impact.VICTIM, what, ranks=ranks))
    for barrier in process.barriers.values():
        if meaning := startup_lines.meaning(barrier):
            found.append(Finding(SOURCE, *meaning, times=barrier.lines))
    return tuple(f if f.rank is not None or process.rank is None else replace(f, rank=process.rank) for f in found)


def _timed_out(work: watchdog.TimedOut, counted: LogCounters) -> Finding:
    unnamed = work.group.startswith(watchdog.UNNAMED)
    name = "" if unnamed else f" of group {counted.descriptions.get(work.group) or work.group}"
    after = "" if work.ran_ms is None else f" after {work.ran_ms / 1000:.0f} s"
    what = f"{watchdog.operation_of(work.operation).removeprefix('nccl:')} {work.sequence}{name} was given up{after}"
    if work.ran_ms is not None and work.ran_ms * 2 < work.timeout_ms:
        what += ", long before its time: a connection was closed"
    elif counted.completed.get(work.group, 0) < 1 and work.sequence <= 1:
        what += ", and it was the group's first: start-up or transport"
    return Finding(SOURCE, "watchdog time-out", Impact.VICTIM, what + "; who waits is not the cause")


def _global(process: LogProcess) -> bool:
    """Whether the numbers of a desync report are global ranks: those of the default group are, as are an unnamed one's."""
    group = _group_of_report(process)
    return group.startswith(watchdog.UNNAMED) or watchdog.is_default(
        group, process.watched.counted.descriptions.get(group, "")
    )


def _group_of_report(process: LogProcess) -> str:
    operation, sequence = process.timed_out_at or ("", -1)
    works = watchdog.settled(process.watched)
    near = next((w for w in works if w.sequence == sequence or sequence < 0), None)
    return near.group if near else watchdog.unnamed(operation, sequence)


def hearsay(process: LogProcess) -> dict[Rank, LogCounters]:
    """What the process reports of the counters of other ranks, and of its own."""
    reported: dict[Rank, LogCounters] = {}
    if process.lags and _global(process):
        group = _group_of_report(process)
        for lag in process.lags:
            for rank in lag.ranks:
                counted = reported.setdefault(rank, LogCounters(WATCHDOG))
                counted.enqueued[group], counted.completed[group] = lag.joined, lag.finished
    for rank, record in process.checked.items():
        counted = reported.setdefault(rank, LogCounters(WATCHDOG))
        counted.add(record)
        counted.completed[CHECKED] = record.sequence - 1
    return reported
