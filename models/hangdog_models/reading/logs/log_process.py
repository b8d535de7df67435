"""What the log lines of one process come to: its counters, what it reports of others, and what it met first."""

from dataclasses import dataclass, field, replace

from hangdog_models.collectives import UNNAMED, WATCHDOG, CollectiveRecord
from hangdog_models.exits import SIGNALS
from hangdog_models.findings import Finding, Impact
from hangdog_models.ranks import Rank, format_ranks
from hangdog_models.reading.json_document import text_of
from hangdog_models.reading.limits import Limits
from hangdog_models.reading.logs import desync, log_table, nccl_log, startup_lines, watchdog
from hangdog_models.reading.logs.failure_summary import FirstFailure
from hangdog_models.reading.logs.log_counters import LogCounters
from hangdog_models.reading.logs.log_lines import LogLine, is_same_host
from hangdog_models.reading.logs.reports import crash_report
from hangdog_models.reading.logs.reports.overseers import Overseers
from hangdog_models.reading.logs.traceback_lines import Traceback, impact_of, others_lack
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
#: Codes of errors that are mere numbers: the lines after them say what the number means.
_NUMBERED = frozenset({"NPU time-out", "NPU call failed"})
#: Codes of causes that follow from no lost connection, wherever they stand in a log.
_NO_CONSEQUENCES = frozenset({"GPU out of memory"})
_OF_A_CONNECTION = frozenset({"connection lost", "NCCL remote error", "NCCL system error"})
#: Impacts of a device that failed: the watchdog's own number tells whose it is, where the line bears no other.
_OF_A_DEVICE = (Impact.CONVICTS, Impact.RESET)
#: Of a line that says by itself that ranks disagree.
_MISMATCH = "Detected mismatch"
#: Names that torchrun gives a machine that has none.
_NO_NAMES = ("localhost", "localhost.localdomain")
_MOSTLY = "whoever ends first is mostly a victim"


@dataclass(slots=True)
class LogProcess:
    """One process while its lines come in; `hearsay` is what it reports of other ranks (global numbers)."""

    rank: Rank | None
    found: dict[tuple[object, ...], Finding] = field(default_factory=dict)
    watched: watchdog.Watched = field(default_factory=lambda: watchdog.Watched(LogCounters(WATCHDOG)))
    calls: nccl_log.Calls = field(default_factory=nccl_log.Calls)
    arrivals: startup_lines.Arrivals = field(default_factory=startup_lines.Arrivals)
    first_failure: FirstFailure = field(default_factory=FirstFailure)
    traceback: Traceback = field(default_factory=Traceback)
    reports: Overseers = field(default_factory=Overseers)
    timed_out_at: tuple[str, int] | None = None
    lags: list[desync.Lag] = field(default_factory=list)
    checked: dict[Rank, CollectiveRecord] = field(default_factory=dict)
    failed_at: int | None = None
    died: tuple[object, ...] | None = None
    at_place: bool = False
    called_rank: Rank | None = None
    host: str = ""
    address: str = ""
    addresses: set[str] = field(default_factory=set)


def take(process: LogProcess, line: LogLine, number: int, limits: Limits) -> None:
    """Notes what line `number` of the log says of its process."""
    text = line.text
    if line.host:
        process.host = process.host or line.host
        process.addresses.update(nccl_log.own_addresses(text))
    process.address = process.address or line.address
    if _MISMATCH in text:  # also where torchrun's list quotes it
        _take_report(process, line, limits)
    if process.first_failure.take(text):
        if not process.first_failure.lines:
            _take_first_failure(process, line.at_s, limits)
        return
    if process.reports.take(text):
        return
    ended = process.traceback.ends_with(text)
    if "opCount" in text or "commId" in text:
        called = nccl_log.take(process.calls, text)
        process.called_rank = called if called is not None else process.called_rank
        return
    if "barrier" in text or " joined" in text or "GLOBAL_RANK: " in text or " processes registered" in text:
        process.arrivals.take(text)
    if "[PG " in text or "WorkNCCL(" in text or "ast enqueued" in text:
        watchdog.take(process.watched, text, watchdog.group_of(text, limits), limits)
    if "collective" in text and _MISMATCH not in text:
        _take_report(process, line, limits)
    gave_up = any(not work.failed for work in process.watched.timed_out)
    if process.failed_at is None and (gave_up or process.checked):
        process.failed_at = number
    if process.died is not None:
        _note_place_of_death(process, text)
    finding = _of_text(text, ended, limits)
    if finding is not None:
        finding = _without_itself(finding, process, line)
        if process.rank is None and finding.impact in _OF_A_DEVICE and (speaker := watchdog.speaker(text)) is not None:
            finding = replace(finding, rank=speaker)
        _note_error(process, finding, line, number)
        if crash_report.FATAL in text and (noted := process.found.get(_key(finding))) is not None and noted.times == 1:
            process.died = _key(finding)


def _note_place_of_death(process: LogProcess, text: str) -> None:
    """Where Python says that a signal ended its process: the first frame of the current thread, some lines below."""
    if "Current thread 0x" in text:
        process.at_place = True
    elif process.at_place and process.died is not None and (frame := crash_report.PLACE.search(text)):
        crash = process.found[process.died]
        place = f"; it died in {printable(frame['function'], 80)} ({printable(frame['file'], 120)}:{frame['line']})"
        process.found[process.died] = replace(crash, what=crash.what + place)
        process.died, process.at_place = None, False


def _of_text(text: str, ended: tuple[str, str] | None, limits: Limits) -> Finding | None:
    """What a line says by itself: that a signal ended a process, what the table knows, or how a traceback ends."""
    if crash := crash_report.finding(text, SOURCE):
        return crash
    known = log_table.packaged().find(text)
    if known is not None:
        row, match = known
        named = match.groupdict()
        quote = f" ({printable(named['quote'], 200)})" if named.get("quote") else ""
        ranks = desync.ranks_in(named.get("ranks") or "")
        if ranks and row.impact is Impact.VICTIM:
            quote += f" ({_ranks_of(ranks)})"
        peers = tuple(dict.fromkeys(text_of(named[key], limits) for key in ("peer", "peer_gid") if named.get(key)))
        if peers and row.impact in (Impact.VICTIM, Impact.PATH):
            quote += _other_end(peers[0])
        return Finding(
            SOURCE, row.code, row.impact, row.what + quote, text_of(named.get("host"), limits),
            device=text_of(named.get("device"), limits),
            ranks=ranks,
            peers=peers,
        )  # fmt: skip
    if ended is None and (thrown := crash_report.THROWN.match(text)):
        what = f"the process ended with an exception of C++: {printable(thrown['what'], 200)}"
        return Finding(SOURCE, "C++ exception", Impact.VICTIM, f"{what}; by itself that tells no cause")
    if ended is None:
        return None
    impact = impact_of(*ended)
    what = f"the program ended with {ended[0]}" + (f": {printable(ended[1], 200)}" if ended[1] else "")
    if others_lack(ended[1]):
        what = f"{what.rstrip('.')}; by these words it waited for others, and who waits is not the cause"
    elif impact is Impact.VICTIM:
        what += "; that comes from below the program, and the cause may be elsewhere"
    return Finding(SOURCE, ended[0], impact, what)


def _other_end(peer: str) -> str:
    return f" (the other end: {peer})"


def _without_itself(finding: Finding, process: LogProcess, line: LogLine) -> Finding:
    """The finding without peers that are the very machine which reports: a connection between two of its processes."""
    own = [peer for peer in finding.peers if peer in process.addresses or is_same_host(peer, line.host)]
    if not own or finding.impact is not Impact.VICTIM:
        return finding
    return replace(
        finding, what=finding.what.replace(_other_end(finding.peers[0]), " (of the same machine)"),
        peers=tuple(peer for peer in finding.peers if peer not in own),
    )  # fmt: skip


def _take_report(process: LogProcess, line: LogLine, limits: Limits) -> None:
    """Lines of a desync report, and of the check of collectives before they run."""
    if at := desync.timed_out_at(line.text):
        process.timed_out_at = at
    if (lag := desync.lag(line.text)) and len(process.lags) < _MOST:
        process.lags.append(lag)
    quoted = list(desync.fingerprints(line.text, CHECKED, limits))
    # `Running collective: CollectiveFingerPrint(` alone is no mismatch: that is printed before every collective.
    if _MISMATCH in line.text or quoted:
        if quoted and process.rank is not None and quoted[0][0] != process.rank:
            quoted = []  # the numbers are those inside some group: whose they are cannot be told
        process.checked.update(quoted)
        sides = "; ".join(f"rank {rank}: {_shown(record)}" for rank, record in quoted)
        what = "ranks of one group run different collectives at the same number" + (f" ({sides})" if sides else "")
        ranks = tuple(rank for rank, _ in quoted) or ((process.rank,) if process.rank is not None else ())
        _note(process, Finding(SOURCE, "mismatched collectives", Impact.PROGRAM, what, ranks=ranks), line.at_s)


def _shown(record: CollectiveRecord) -> str:
    sizes = f" of {list(record.input_sizes[0])}" if record.input_sizes else ""
    return f"{record.operation.removeprefix('nccl:')}{sizes} as number {record.sequence}"


def _note_error(process: LogProcess, finding: Finding, line: LogLine, number: int) -> None:
    """Notes an error, unless it is a consequence of the process's first; a broken device is never a consequence.

    The same error of another path or of other ranks is none either: which ones fail tells where. Nor is a signal that
    ended one more process, nor memory that is used up: no lost connection does that. A path that fails after mere
    suspicions says more than they do.
    """
    key = _key(finding)
    codes = {one.code for one in process.found.values()}
    after = process.failed_at is not None and number - process.failed_at < _AFTERMATH
    again = (finding.impact is Impact.PATH or finding.ranks) and finding.code in codes
    again = again or (bool(codes) and codes <= _NUMBERED)
    again = again or (finding.code in _NO_CONSEQUENCES and _only_lost_connections(process))
    again = again or (finding.impact is Impact.PATH and _only_suspicions(process))
    again = again or (finding.code in codes and _first_with_a_peer(process, finding))
    again = again or (finding.code in crash_report.CODES and not codes.isdisjoint(crash_report.CODES))
    if after and key not in process.found and finding.impact not in _NEW_IMPACTS and not again:
        return
    if finding.impact is not Impact.TELLS_NOTHING and not after:
        process.failed_at = number
    _note(process, finding, line.at_s)


def _only_lost_connections(process: LogProcess) -> bool:
    known = [one for one in process.found.values() if one.impact is not Impact.TELLS_NOTHING]
    return all(one.code in _OF_A_CONNECTION for one in known) and not process.watched.timed_out


def _only_suspicions(process: LogProcess) -> bool:
    known = [one for one in process.found.values() if one.impact is not Impact.TELLS_NOTHING]
    return all(one.impact in (Impact.SUSPECTS, Impact.SLOWS) for one in known)


def _first_with_a_peer(process: LogProcess, finding: Finding) -> bool:
    """Whether a finding is the first of its code that names the other end."""
    return bool(finding.peers) and not any(one.peers for one in process.found.values() if one.code == finding.code)


def _note(process: LogProcess, finding: Finding, at_s: float | None) -> None:
    key = _key(finding)
    unnamed = _key(replace(finding, rank=None))
    if finding.rank is not None and unnamed in process.found and finding.impact in _OF_A_DEVICE:
        process.found[key] = replace(process.found.pop(unnamed), rank=finding.rank)
    known = process.found.get(key)
    if known is not None:
        process.found[key] = replace(known, times=known.times + 1)
    elif len(process.found) < _MOST:
        process.found[key] = replace(finding, at_s=at_s)


def _key(finding: Finding) -> tuple[object, ...]:
    process = finding.what if finding.code in crash_report.CODES else ""
    where = finding.rank, finding.ranks, finding.machine
    return finding.code, finding.impact, finding.device, finding.peers, process, where


def _take_first_failure(process: LogProcess, at_s: float | None, limits: Limits) -> None:
    """The entry of torchrun's list is complete: who ended first, and what its traceback or its signal says."""
    failure = process.first_failure
    host = text_of(failure.host, limits)
    who = "a process" if failure.rank is None else f"rank {failure.rank}"
    who += f" on {host}" if host and host not in _NO_NAMES else ""
    (rank,) = desync.ranks_in("" if failure.rank is None else str(failure.rank))[:1] or (None,)
    code, impact, why = SIGNALS.get(failure.exitcode, ("first observed failure", Impact.VICTIM, _MOSTLY))
    what = f"the launcher saw {who} end first, with exit code {text_of(failure.exitcode, limits)}: {why}"
    if failure.error is not None:
        ending = f"{failure.error[0]}: {failure.error[1]}"
        error = _of_text(ending, failure.error, limits) or Finding(
            SOURCE, failure.error[0], impact_of(*failure.error), ending
        )
        # Not a consequence of what stands before: the launcher's own error does, which follows from this one.
        _note(process, replace(error, machine=host, rank=rank), at_s)
        code, impact, what = "first observed failure", Impact.VICTIM, f"{what} ({printable(ending, 200)})"
    _note(process, Finding(SOURCE, code, impact, what, host, rank), at_s)


def findings(process: LogProcess, limits: Limits) -> tuple[Finding, ...]:
    """All findings of the process, those of the watchdog, of start-up and of others last; each belongs to the process's rank."""
    failure = process.first_failure
    if failure.lines and failure.exitcode and not failure.headless:  # the log was cut inside of the list
        _take_first_failure(process, None, limits)
    counted = process.watched.counted
    found = list(process.found.values())
    found += [_timed_out(work, counted) for work in watchdog.settled(process.watched) if not work.failed]
    if not process.watched.timed_out:
        found += [_given_up(group, number, counted) for group, number in process.watched.given_up.items()]
    if not process.watched.timed_out and watchdog.ONLY in counted.enqueued:
        last, done = counted.enqueued[watchdog.ONLY], counted.completed.get(watchdog.ONLY, -1)
        what = f"of {last} operations {done} were completed when the watchdog gave up; who waits is not the cause"
        found.append(Finding(SOURCE, "watchdog time-out", Impact.VICTIM, what))
    if process.lags:
        ranks = tuple(sorted({rank for lag in process.lags for rank in lag.ranks})) if _global(process) else ()
        named = _ranks_of(ranks) if ranks else "other members of its group"
        what = f"the desync report says that {named} did not come to the operation this rank waits in: a position, not yet a cause"
        found.append(Finding(SOURCE, "desync report", Impact.VICTIM, what, ranks=ranks))
    if process.rank is None and (sides := watchdog.sides(process.watched)):
        found.append(_mismatch(sides))
    for barrier in process.arrivals.barriers.values():
        if meaning := startup_lines.meaning(barrier):
            found.append(Finding(SOURCE, *meaning, times=barrier.lines))
    found += process.reports.findings(SOURCE, process.rank is not None, bool(process.first_failure.exitcode))
    found = _united(found)
    return tuple(f if f.rank is not None or process.rank is None else replace(f, rank=process.rank) for f in found)


def _united(found: list[Finding]) -> list[Finding]:
    """The findings without crashes of a machine's process that its launcher tells of as well, with the rank."""
    placed = {(one.code, one.machine) for one in found if one.machine and one.rank is not None}
    return [
        one for one in found
        if one.rank is not None or one.code not in crash_report.CODES or (one.code, one.machine) not in placed
    ]  # fmt: skip


def _ranks_of(ranks: tuple[Rank, ...]) -> str:
    return f"rank{'' if len(ranks) == 1 else 's'} {format_ranks(ranks)}"


def _mismatch(sides: list[tuple[str, tuple[Rank, ...]]]) -> Finding:
    """Ranks that gave up different operations: the few are named, where one side is smaller than all others."""
    listed = "; ".join(f"{_ranks_of(ranks)}: {operation.removeprefix('nccl:')}" for operation, ranks in sides)
    what = f"ranks of one group waited in different collectives when their time was over ({listed})"
    fewest, more = sides[0][1], sides[1][1]
    ranks = fewest if len(fewest) < len(more) else tuple(sorted(rank for _, side in sides for rank in side))
    return Finding(SOURCE, "mismatched collectives", Impact.PROGRAM, what, ranks=ranks)


def _given_up(group: str, number: int, counted: LogCounters) -> Finding:
    name = counted.descriptions.get(group) or group
    done = counted.completed.get(group, -1)
    what = f"operation {number} of group {name} was given up, and {done} was the last to complete; who waits is not the cause"
    return Finding(SOURCE, "watchdog time-out", Impact.VICTIM, what)


def _timed_out(work: watchdog.TimedOut, counted: LogCounters) -> Finding:
    unnamed = _nameless(work.group)
    name = "" if unnamed else f" of group {counted.descriptions.get(work.group) or work.group}"
    after = "" if work.ran_ms is None else f" after {work.ran_ms / 1000:.0f} s"
    number = "" if work.sequence < 0 else f" {work.sequence}"
    what = f"{watchdog.operation_of(work.operation).removeprefix('nccl:')}{number}{name} was given up{after}"
    if work.ran_ms is not None and work.ran_ms * 2 < work.timeout_ms:
        what += ", long before its time: a connection was closed"
    elif counted.completed.get(work.group, 0) < 1 and 0 <= work.sequence <= 1:
        what += ", and it was the group's first: start-up or transport"
    return Finding(SOURCE, "watchdog time-out", Impact.VICTIM, what + "; who waits is not the cause")


def _global(process: LogProcess) -> bool:
    """Whether the numbers of a desync report are global ranks: those of the default group are, as are an unnamed one's."""
    group = _group_of_report(process)
    return _nameless(group) or watchdog.is_default(group, process.watched.counted.descriptions.get(group, ""))


def _nameless(group: str) -> bool:
    return group == watchdog.ONLY or group.startswith(UNNAMED)


def _group_of_report(process: LogProcess) -> str:
    operation, sequence = process.timed_out_at or ("", -1)
    works = watchdog.settled(process.watched)
    near = next((w for w in works if w.sequence == sequence or sequence < 0), None)
    return near.group if near else watchdog.unnamed(operation, sequence)


def hearsay(process: LogProcess) -> dict[Rank, LogCounters]:
    """What the process reports of the counters of other ranks, and of its own."""
    reported = process.reports.analysis.positions(WATCHDOG)
    if process.rank is None:
        reported |= watchdog.together(process.watched)
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
