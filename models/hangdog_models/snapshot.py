"""A snapshot: everything known about a job at one or more moments, and an account of what was read to know it."""

from dataclasses import dataclass, field

from hangdog_models.collectives import RankCounters, RasReport
from hangdog_models.findings import Finding
from hangdog_models.ranks import Rank
from hangdog_models.stack import ProcessTrace


@dataclass(frozen=True, slots=True)
class Job:
    """Which job this is; `framework` is a hint only (megatron, deepspeed, fsdp, ddp, jax, other or empty)."""

    id: str = ""
    framework: str = ""


@dataclass(frozen=True, slots=True)
class Round:
    """One look at the job: at most one trace for each (rank, role)."""

    number: int
    traces: tuple[ProcessTrace, ...]


@dataclass(frozen=True, slots=True)
class Account:
    """What became of every file (or message) the snapshot was made from; paths are relative to the bundle."""

    files_read: int = 0
    ignored: tuple[str, ...] = ()
    unreadable: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All rounds, oldest first, `interval_s` seconds apart (None: unknown), and what libraries, logs and hardware say.

    `ras` holds reports of one job from old to new; `findings` are what logs and hardware say by themselves.
    """

    job: Job
    rounds: tuple[Round, ...]
    interval_s: float | None = None
    counters: tuple[RankCounters, ...] = ()
    ras: tuple[RasReport, ...] = ()
    findings: tuple[Finding, ...] = ()
    account: Account = Account()

    def highest_rank(self) -> Rank | None:
        """The highest rank any evidence speaks of, None when there is none."""
        ranks = [trace.rank for round_ in self.rounds for trace in round_.traces]
        ranks += [record.rank for record in self.counters]
        ranks += [finding.rank for finding in self.findings if finding.rank is not None]
        return max(ranks, default=None)
