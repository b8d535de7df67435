"""A snapshot: all evidence about a job at one or more moments, and an account of what was read for it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from hangdog_models.collectives import RankCounters, RasReport
from hangdog_models.errors import WrongUse
from hangdog_models.exits import Exit
from hangdog_models.findings import Finding, LogEnd
from hangdog_models.numbers.wrong_number import WrongNumber
from hangdog_models.past_incidents import Family
from hangdog_models.progress.collective_progress import RankProgress
from hangdog_models.ranks import Rank
from hangdog_models.stack import ProcessTrace

_Noun = TypeVar("_Noun")


@dataclass(frozen=True, slots=True)
class Job:
    """Which job this is; `framework` is a hint only (megatron, deepspeed, fsdp, ddp, jax, other or empty).

    `stalled_s`: the seconds for which nothing had moved at capture; None if unknown.
    """

    id: str = ""
    framework: str = ""
    stalled_s: float | None = None


@dataclass(frozen=True, slots=True)
class Round:
    """One capture round of the job: at most one trace for each (rank, role)."""

    number: int
    traces: tuple[ProcessTrace, ...]


@dataclass(frozen=True, slots=True)
class Account:
    """What became of every file (or message) of the snapshot; paths are relative to the bundle.

    `quiet`: the ranks whose own logs were read and say nothing that a reader knows.
    """

    files_read: int = 0
    ignored: tuple[str, ...] = ()
    unreadable: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    quiet: tuple[Rank, ...] = ()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All rounds, oldest first, and what libraries, logs and hardware report.

    - `interval_s`: seconds between two rounds; None: unknown.
    - `progress`: how far the operations of each rank are, by NCCL's profiler.
    - `ras`: reports of NCCL RAS on one job, from old to new.
    - `findings`: what logs and hardware report.
    - `got_on`: ranks that completed operations between the last two rounds with a flight record of them.
    - `stood`: ranks that completed none between these.
    - `past`: earlier known incidents, by their kind.
    - `exits`: the ends of trainers, if the job crashed.
    - `log_ends`: how far logs reach, which dates their events.
    - `checked`: the machine whose checks requested a verdict on it. Its job runs.
    - `numbers`: wrong numbers that ranks logged, if these requested a verdict. The job runs, too.
    """

    job: Job
    rounds: tuple[Round, ...]
    interval_s: float | None = None
    counters: tuple[RankCounters, ...] = ()
    ras: tuple[RasReport, ...] = ()
    findings: tuple[Finding, ...] = ()
    account: Account = Account()
    got_on: tuple[Rank, ...] = ()
    stood: tuple[Rank, ...] = ()
    past: tuple[Family, ...] = ()
    exits: tuple[Exit, ...] = ()
    log_ends: tuple[LogEnd, ...] = ()
    checked: str = ""
    numbers: tuple[WrongNumber, ...] = ()
    progress: tuple[RankProgress, ...] = ()

    def highest_rank(self) -> Rank | None:
        """The highest rank in any evidence; None if there is none."""
        ranks = [trace.rank for round_ in self.rounds for trace in round_.traces]
        ranks += [record.rank for record in self.counters]
        ranks += [ring.rank for ring in self.progress]
        ranks += [finding.rank for finding in self.findings if finding.rank is not None]
        ranks += [number.rank for number in self.numbers if number.rank is not None]
        return max(ranks, default=None)


def merged(parts: Iterable[Snapshot]) -> Snapshot:
    """Unites partial snapshots of the same moments, as of several machines. Their order and grouping do not matter.

    Rounds with one number are one round. Of two traces of one (rank, role), or two counters of one (rank, source), the
    fuller one is kept. Equal RAS reports and findings count once. Traces are ordered by rank, reports by age.

    Raises WrongUse if there are no parts or they name different jobs.
    """
    them = sorted(parts, key=lambda part: (part.job.id, part.job.framework))
    ids = {part.job.id for part in them if part.job.id}
    if not them or len(ids) > 1:
        raise WrongUse(
            f"snapshots of {' and '.join(sorted(ids)) or 'nothing'} cannot be merged",
            "merge parts of one job",
            code="different-jobs",
        )
    rounds: dict[int, list[ProcessTrace]] = {}
    for part in them:
        for round_ in part.rounds:
            rounds.setdefault(round_.number, []).extend(round_.traces)
    reports = {repr(report): report for part in them for report in part.ras}
    findings = {repr(finding): finding for part in them for finding in part.findings}
    return Snapshot(
        job=Job(
            max(ids, default=""),
            max(part.job.framework for part in them),
            max((part.job.stalled_s for part in them if part.job.stalled_s is not None), default=None),
        ),
        rounds=tuple(
            Round(number, _fullest(traces, lambda trace: (trace.rank, trace.role), _completeness))
            for number, traces in sorted(rounds.items())
        ),
        interval_s=min((part.interval_s for part in them if part.interval_s is not None), default=None),
        counters=_fullest(
            (record for part in them for record in part.counters),
            lambda record: (record.rank, record.source),
            lambda record: sum(record.enqueued.values()) + sum(record.completed.values()),
        ),
        ras=tuple(reports[key] for key in sorted(reports, key=lambda key: (reports[key].at_s or 0.0, key))),
        findings=tuple(findings[key] for key in sorted(findings)),
        account=_summed(part.account for part in them),
        got_on=tuple(sorted({rank for part in them for rank in part.got_on})),
        stood=tuple(sorted({rank for part in them for rank in part.stood})),
        checked=max(part.checked for part in them),
        numbers=tuple(sorted({one for part in them for one in part.numbers}, key=repr)),
        progress=_fullest(
            (ring for part in them for ring in part.progress),
            lambda ring: (ring.rank, ""),
            lambda ring: sum(one.collectives + one.point_to_points for one in ring.communicators),
        ),
        exits=tuple(sorted({one for part in them for one in part.exits}, key=lambda one: (one.at_s, one.rank))),
        log_ends=tuple(sorted({one for part in them for one in part.log_ends}, key=repr)),
    )


def _completeness(trace: ProcessTrace) -> int:
    """How full a trace is, to choose between two: by frames, a capture without a failure, and the kernel's state."""
    frames = sum(len(thread.frames) for thread in trace.threads)
    return 4 * frames + 2 * (trace.missing is None) + (trace.state is not None)


def _fullest(
    nouns: Iterable[_Noun], whose: Callable[[_Noun], tuple[Rank, str]], reported: Callable[[_Noun], int]
) -> tuple[_Noun, ...]:
    """The fullest noun of each owner, ordered by owner; among equals their text decides."""
    best: dict[tuple[Rank, str], _Noun] = {}
    for noun in nouns:
        owner = whose(noun)
        other = best.get(owner)
        if other is None or (reported(noun), repr(noun)) > (reported(other), repr(other)):
            best[owner] = noun
    return tuple(best[owner] for owner in sorted(best))


def _summed(accounts: Iterable[Account]) -> Account:
    every = list(accounts)
    unreadable: dict[str, str] = {}
    for path, reason in sorted((item for account in every for item in account.unreadable.items()), reverse=True):
        unreadable[path] = reason
    return Account(
        files_read=sum(account.files_read for account in every),
        ignored=tuple(sorted(path for account in every for path in account.ignored)),
        unreadable=dict(sorted(unreadable.items())),
        notes=tuple(sorted({note for account in every for note in account.notes})),
        quiet=tuple(sorted({rank for account in every for rank in account.quiet})),
    )
