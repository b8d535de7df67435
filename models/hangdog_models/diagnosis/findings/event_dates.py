"""Which kernel log events had passed long before the stall, by all dates in the evidence.

An idle log ends with the event, however old: then other machines' logs and dumps date it. Events that a later line
would take back are lasting, and so is a broken device. Events that agents find have their own dates.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from hangdog_models.findings import Finding, Impact, LogEnd
from hangdog_models.ranks import Rank
from hangdog_models.rules import policy
from hangdog_models.rules.likelihoods import likelihood
from hangdog_models.snapshot import Snapshot

EVENT_HALVES_S = likelihood("event_halves_s")

_SOURCE = "kernel log"
#: Events that pass by themselves: the job went on after them, or not.
_PASSING = (Impact.PROGRAM, Impact.PATH, Impact.SUSPECTS, Impact.SLOWS)


def dated(snapshot: Snapshot) -> Snapshot:
    """The snapshot whose passing events have a least time before the stall."""
    if not any(_passes(finding) for finding in snapshot.findings):
        return snapshot
    stalled_s = snapshot.job.stalled_s or 0.0
    asked = [report.at_s - policy.ZONES_S for report in snapshot.ras[-1:] if report.at_s is not None]
    ends: defaultdict[str, list[LogEnd]] = defaultdict(list)
    for end in snapshot.log_ends:
        if end.source == _SOURCE:
            ends[end.machine].append(end)
        elif end.at_s is not None:
            asked.append(end.at_s - policy.ZONES_S)
    # The job was at work when it launched an operation, so the stall is not subtracted from launches.
    witnessed = _newest([*asked, *_dates(ends), *(launch + stalled_s for launch in _launches(snapshot))])
    findings = (
        replace(one, before_s=max(0.0, _age(one, ends[one.machine], witnessed) - stalled_s)) if _passes(one) else one
        for one in snapshot.findings
    )
    return replace(snapshot, findings=tuple(findings))


def weight(finding: Finding) -> float:
    """The share of an event's weight that is left: all within an hour before the stall, next to nothing after a day."""
    passed = min(finding.before_s, policy.STALE_S) - policy.OLD_S
    return float(2 ** (-max(0.0, passed) / EVENT_HALVES_S))


def _passes(finding: Finding) -> bool:
    timed = finding.age_s is None and (finding.at_s is not None or finding.uptime_s is not None)
    passing = finding.source == _SOURCE and finding.impact in _PASSING
    return timed and passing and finding.code not in policy.kernel().lasting()


def _newest(dates: Sequence[float]) -> tuple[float, ...]:
    """The newest date that all sources show. One a day beyond all others is of a wrong clock."""
    ordered = sorted(dates)
    while len(ordered) > 1 and ordered[-1] - ordered[-2] > policy.STALE_S:
        ordered.pop()
    return tuple(ordered[-1:])


def _age(finding: Finding, ends: Sequence[LogEnd], witnessed: Sequence[float]) -> float:
    """The least seconds from an event to the newest date: of its machine's log, or of all sources."""
    ages = [0.0]
    if finding.at_s is not None:
        newest = (*witnessed, *(end.at_s for end in ends if end.at_s is not None))
        ages += [date - finding.at_s for date in newest]
    if finding.uptime_s is not None:
        ages += [end.uptime_s - finding.uptime_s for end in ends if end.uptime_s is not None]
    return max(ages)


def _dates(ends: Mapping[str, Sequence[LogEnd]]) -> Iterator[float]:
    """The newest date of each machine's kernel logs."""
    for of_machine in ends.values():
        yield from sorted(end.at_s for end in of_machine if end.at_s is not None)[-1:]


def _launches(snapshot: Snapshot) -> Iterator[float]:
    """When each rank launched the last operation that its recorder has."""
    newest: dict[Rank, float] = {}
    for counters in snapshot.counters:
        for record in counters.entries:
            newest[counters.rank] = max(newest.get(counters.rank, 0.0), record.created_s)
    return (created - policy.ZONES_S for created in newest.values() if created)
