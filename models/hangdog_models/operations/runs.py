"""From the histories of `hangdog run` to the report: there it is known when a job trained, and what each restart came to."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from hangdog_models.counts import counted
from hangdog_models.operations import evictions
from hangdog_models.operations.chains import Chain, End, chains, ends
from hangdog_models.operations.past import Said, Standing
from hangdog_models.operations.reckoning import machines
from hangdog_models.operations.report import Figure, OperationsReport, Tally, share, span, tally
from hangdog_models.operations.watched import Span, covered, watching
from hangdog_models.recovery.account import Outage, outages
from hangdog_models.recovery.history import (
    Act,
    Done,
    Entry,
    Finished,
    Steady,
    Stepped,
    Troubled,
)

#: How sure a machine's conviction in a history is: the history does not tell; it was evicted, so it counts whole.
_WHOLE = 1.0


@dataclass(frozen=True, slots=True)
class Run:
    """What one history tells: failures with whom they were blamed upon, the time that was watched, and that which was lost."""

    failures: tuple[tuple[Outage, str], ...]
    chains: tuple[Chain, ...]
    watched: tuple[Span, ...]
    lost: tuple[Span, ...]
    said: tuple[Said, ...]
    evicted: tuple[tuple[float, bool], ...]


def report(histories: Iterable[Sequence[Entry]], since: float, until: float) -> OperationsReport:
    """The report of these jobs from `since` to before `until` (Unix seconds); the order of the histories does not matter."""
    runs = [_run(history) for history in histories if history]
    failures = [one for run in runs for one in run.failures if since <= one[0].noticed < until]
    found = [one for run in runs for one in run.chains if since <= one.at < until]
    evicted = [right for run in runs for at, right in run.evicted if since <= at < until]
    return OperationsReport(
        since,
        until,
        "histories of hangdog run",
        (*_times(failures), _ettr(runs, since, until), *_chains(found)),
        tuple(_tallies(failures, found, evicted)),
        machines(one for run in runs for one in run.said if since <= one.at < until),
    )


def _run(history: Sequence[Entry]) -> Run:
    blamed = {entry.at: str(entry.trouble.cause) for entry in history if isinstance(entry, Troubled)}
    all_ = outages(history)
    failures = tuple((one, blamed.get(one.noticed, "unknown")) for one in all_ if not _planned(one))
    return Run(failures, chains(history), *watching(history, all_), *_guilty(history))


def _planned(one: Outage) -> bool:
    """Whether the job was stopped to bring a change of the code in, with nothing wrong."""
    return one.acts[:1] == (Act.UPDATE,) and one.since == one.noticed


def _guilty(history: Sequence[Entry]) -> tuple[tuple[Said, ...], tuple[tuple[float, bool], ...]]:
    """Machines that were evicted or convicted by tests, once an episode; and of each eviction whether tests convicted it."""
    said: dict[tuple[str, int], float] = {}
    tested: set[tuple[str, int]] = set()
    taken: dict[tuple[str, int], float] = {}
    episode, steady = 0, True
    for entry in history:
        if isinstance(entry, Troubled):
            episode, steady = episode + steady, False
        elif isinstance(entry, Stepped) and entry.step.act is Act.EVICT:
            for machine in entry.step.machines:
                said.setdefault((machine, episode), entry.at)
                taken.setdefault((machine, episode), entry.at)
        elif isinstance(entry, Done):
            for machine in entry.convicted:
                said.setdefault((machine, episode), entry.at)
                tested.add((machine, episode))
        elif isinstance(entry, Steady | Finished):
            steady = True
    lines = tuple(
        Said(machine, f"episode {number}", at, Standing.CONVICTED, _WHOLE) for (machine, number), at in said.items()
    )
    return lines, tuple((at, key in tested) for key, at in taken.items())


def _times(failures: list[tuple[Outage, str]]) -> Iterator[Figure]:
    seen = [one.noticed - one.since for one, _ in failures]
    mended = [max(0.0, one.over - one.noticed) for one, _ in failures if one.over is not None]
    left = len(failures) - len(mended)
    yield span(
        "mttd", "time to detect (MTTD)", seen, "failures",
        "From when the job got on last until it was known that it had failed or hung.", "nothing failed",
    )  # fmt: skip
    yield span(
        "mttr", "time to train again (MTTR)", mended, "failures",
        "From a failure's notice until the job told of a step again; one that tells of none: until it was started.",
        "no failure is over", f"leaves out {left} that {'is' if left == 1 else 'are'} not over" if left else "",
    )  # fmt: skip


def _ettr(runs: Sequence[Run], since: float, until: float) -> Figure:
    watched = lost = 0.0
    counted = 0
    for run in runs:
        seen = covered(run.watched, since, until)
        watched, lost, counted = watched + seen, lost + covered(run.lost, since, until), counted + (seen > 0)
    return share(
        "ettr", "effective training time (ETTR)", watched - lost, watched, counted, "runs",
        "Share of the time in which a job got on, of the time that its history tells of: up to its last entry, and without "
        "what lies between two supervisors. Starting counts as lost.",
        "no history tells of this time",
        "at most so much: steps that are trained again after a checkpoint count as trained",
    )  # fmt: skip


def _chains(found: list[Chain]) -> Iterator[Figure]:
    automatic, manual = [one for one in found if not one.manual], [one for one in found if one.manual]
    yield _success(
        "retries", "automatic chains that succeed", automatic, "chains",
        "Chains of restarts by hangdog upon one failure that end in steady training or the job's end, of all that are "
        "decided.",
    )  # fmt: skip
    yield _success(
        "manual", "manual restarts that succeed", manual, "restarts",
        "Times a person started a run again after which it trained steadily or ended before it failed, of all decided.",
    )  # fmt: skip
    yield span(
        "interval", "between automatic restarts", [s for one in automatic for s in one.intervals()], "restarts",
        "From one restart of a chain to the next.", "no chain has two restarts",
    )  # fmt: skip


def _success(key: str, title: str, found: list[Chain], of: str, definition: str) -> Figure:
    decided = [one for one in found if one.end is not End.OPEN]
    good, left = sum(one.end is End.TRAINS for one in decided), len(found) - len(decided)
    partly = f"they took {counted(sum(len(one.restarts) for one in decided), 'restart')}" if of == "chains" else ""
    partly = "; ".join(
        filter(None, (partly, f"{left} that {'is' if left == 1 else 'are'} not decided left out" if left else ""))
    )
    return share(key, title, good, len(decided), len(decided), of, definition, f"no {of} are decided", partly)


def _tallies(failures: list[tuple[Outage, str]], found: list[Chain], evicted: list[bool]) -> Iterator[Tally]:
    causes = Counter(cause for _, cause in failures)
    yield tally(
        "incidents", "failures by what was blamed", "failures",
        "Failures and hangs that the supervisor noticed, by the cause that its verdict or exit told.",
        dict(sorted(causes.items())),
    )  # fmt: skip
    for key, title, manual in (("chains", "automatic restart chains", False), ("manual", "manual restarts", True)):
        mine = [one for one in found if one.manual is manual]
        yield tally(key, title, "chains", "Restarts upon one failure, by how they ended.", ends(mine))
    yield tally(
        "rightness", "were they evicted rightly", "evictions",
        "Right: tests convicted the machine in the same episode. A history tells of nothing that proves one wrong.",
        {evictions.CONVICTED: sum(evicted), evictions.UNKNOWN: len(evicted) - sum(evicted)},
        "that a job trains on without a machine does not prove that it was the machine",
    )  # fmt: skip
