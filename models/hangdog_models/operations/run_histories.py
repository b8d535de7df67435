"""From the histories of `hangdog run` to the report: they tell when a job trained, and what each restart came to."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from hangdog_models.machine_history import MentionKind
from hangdog_models.operations import evictions
from hangdog_models.operations.compute import machines
from hangdog_models.operations.past_events import MachineMention
from hangdog_models.operations.report import Figure, OperationsReport, ReportTable, report_table, span
from hangdog_models.operations.restart_chains import Chain, ends
from hangdog_models.operations.training_time import (
    Timeline,
    TrainingRun,
    between,
    ettr,
    failures,
    mttr,
    restarts,
    runs,
    success,
    trained,
)
from hangdog_models.recovery.outage_cost import Outage
from hangdog_models.recovery.recovery_history import (
    Entry,
    Finished,
    OutageOpened,
    RecoveryRung,
    Steady,
    StepDone,
    Stepped,
    Troubled,
)

#: How sure a machine's conviction in a history is: the history does not tell; it was evicted, so it counts whole.
_WHOLE = 1.0


def report(histories: Iterable[Sequence[Entry]], since: float, until: float) -> OperationsReport:
    """The report of these jobs from `since` to before `until` (Unix seconds); the order of the histories does not matter."""
    each = [history for history in histories if history]
    found = runs(Timeline(_name(history), tuple(history), history[-1].at) for history in each)
    guilty = [_guilty(history) for history in each]
    failed, chains = failures(found, since, until), restarts(found, since, until)
    evicted = [right for _, taken in guilty for at, right in taken if since <= at < until]
    return OperationsReport(
        since,
        until,
        "histories of hangdog run",
        (*_times(failed), _ettr(found, since, until), *_chains(chains)),
        tuple(_tallies(failed, chains, evicted)),
        machines(one for stated, _ in guilty for one in stated if since <= one.at < until),
        training=trained(found, since, until, "told by hangdog run"),
    )


def _name(history: Sequence[Entry]) -> str:
    return next((f"run {entry.run}" for entry in history if isinstance(entry, OutageOpened)), "run")


def _guilty(history: Sequence[Entry]) -> tuple[tuple[MachineMention, ...], tuple[tuple[float, bool], ...]]:
    """Machines that were evicted or convicted by tests, once an episode; and of each eviction whether tests convicted it."""
    stated: dict[tuple[str, int], float] = {}
    tested: set[tuple[str, int]] = set()
    taken: dict[tuple[str, int], float] = {}
    episode, steady = 0, True
    for entry in history:
        if isinstance(entry, Troubled):
            episode, steady = episode + steady, False
        elif isinstance(entry, Stepped) and entry.step.act is RecoveryRung.EVICT:
            for machine in entry.step.machines:
                stated.setdefault((machine, episode), entry.at)
                taken.setdefault((machine, episode), entry.at)
        elif isinstance(entry, StepDone):
            for machine in entry.convicted:
                stated.setdefault((machine, episode), entry.at)
                tested.add((machine, episode))
        elif isinstance(entry, Steady | Finished):
            steady = True
    lines = tuple(
        MachineMention(machine, f"episode {number}", at, MentionKind.CONVICTED, _WHOLE)
        for (machine, number), at in stated.items()
    )
    return lines, tuple((at, key in tested) for key, at in taken.items())


def _times(failed: list[tuple[Outage, str]]) -> Iterator[Figure]:
    seen = [one.noticed - one.since for one, _ in failed]
    yield span(
        "mttd", "time to detect (MTTD)", seen, "failures",
        "From when the job got on last until it was known that it had failed or hung.", "nothing failed",
    )  # fmt: skip
    yield mttr(
        failed,
        "the job told of a step again; one that tells of none: until it was started",
        "no failure is over" if failed else "nothing failed",
    )


def _ettr(found: Sequence[TrainingRun], since: float, until: float) -> Figure:
    return ettr(
        found, since, until, "runs",
        "Share of the time in which a job got on, of the time that its history tells of: up to its last entry, and without "
        "what lies between two supervisors. Starting counts as lost.",
        "no history tells of this time",
        "at most so much: steps that are trained again after a checkpoint count as trained",
    )  # fmt: skip


def _chains(found: list[Chain]) -> Iterator[Figure]:
    automatic, manual = [one for one in found if not one.manual], [one for one in found if one.manual]
    yield success(
        "retries", "automatic chains that succeed", automatic, "chains",
        "Chains of restarts by hangdog upon one failure that end in steady training or the job's end, of all that are "
        "decided.",
    )  # fmt: skip
    yield success(
        "manual", "manual restarts that succeed", manual, "restarts",
        "Times a person started a run again after which it trained steadily or ended before it failed, of all decided.",
    )  # fmt: skip
    yield between(automatic, "between automatic restarts")


def _tallies(failures: list[tuple[Outage, str]], found: list[Chain], evicted: list[bool]) -> Iterator[ReportTable]:
    causes = Counter(cause for _, cause in failures)
    yield report_table(
        "incidents", "failures by what was blamed", "failures",
        "Failures and hangs that the supervisor noticed, by the cause that its verdict or exit told.",
        dict(sorted(causes.items())),
    )  # fmt: skip
    for key, title, manual in (("chains", "automatic restart chains", False), ("manual", "manual restarts", True)):
        mine = [one for one in found if one.manual is manual]
        yield report_table(key, title, "chains", "Restarts upon one failure, by how they ended.", ends(mine))
    yield report_table(
        "rightness", "were they evicted rightly", "evictions",
        "Right: tests convicted the machine in the same episode. A history tells of nothing that proves one wrong.",
        {evictions.CONVICTED: sum(evicted), evictions.UNKNOWN: len(evicted) - sum(evicted)},
        "that a job trains on without a machine does not prove that it was the machine",
    )  # fmt: skip
