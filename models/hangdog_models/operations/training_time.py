"""How much of its time a job trained, what came of its restarts, and how soon it was back: reckoned of histories, whoever told them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from hangdog_models.counts import counted
from hangdog_models.operations.report import Figure, Trained, Training, share, span
from hangdog_models.operations.restart_chains import Chain, ChainEnd, chains
from hangdog_models.operations.watch_periods import Span, covered, watching
from hangdog_models.recovery.outage_cost import Outage, outages
from hangdog_models.recovery.recovery_history import Entry, RecoveryRung, Troubled

#: Jobs that a report lists: a page that somebody reads.
LISTED = 20


@dataclass(frozen=True, slots=True)
class Timeline:
    """A job's history, never empty and in the order in which it happened, and until when it is known (Unix seconds)."""

    job: str
    history: tuple[Entry, ...]
    until: float


@dataclass(frozen=True, slots=True)
class TrainingRun:
    """What is told of one job: failures with whom they were blamed upon, restarts, the time that was watched, and the lost."""

    job: str
    failures: tuple[tuple[Outage, str], ...]
    chains: tuple[Chain, ...]
    watched: tuple[Span, ...]
    lost: tuple[Span, ...]


def runs(reported: Iterable[Timeline]) -> tuple[TrainingRun, ...]:
    """The jobs of these histories, by name; several histories of one job are taken together."""
    ordered = sorted(reported, key=lambda one: (one.job, one.history[0].at, one.until))
    return tuple(_together(job, [_run(one) for one in mine]) for job, mine in groupby(ordered, key=lambda one: one.job))


def _run(reported: Timeline) -> TrainingRun:
    blamed = {entry.at: str(entry.trouble.cause) for entry in reported.history if isinstance(entry, Troubled)}
    all_ = outages(reported.history)
    failures = tuple((one, blamed.get(one.noticed, "unknown")) for one in all_ if not _planned(one))
    return TrainingRun(
        reported.job, failures, chains(reported.history), *watching(reported.history, reported.until, all_)
    )


def _together(job: str, parts: Sequence[TrainingRun]) -> TrainingRun:
    return TrainingRun(
        job,
        tuple(one for part in parts for one in part.failures),
        tuple(one for part in parts for one in part.chains),
        tuple(one for part in parts for one in part.watched),
        tuple(one for part in parts for one in part.lost),
    )


def _planned(one: Outage) -> bool:
    """Whether the job was stopped to bring a change of the code in, with nothing wrong."""
    return one.acts[:1] == (RecoveryRung.UPDATE,) and one.since == one.noticed


def failures(found: Iterable[TrainingRun], since: float, until: float) -> list[tuple[Outage, str]]:
    """The failures that were noticed in the time of the report, each with what was blamed."""
    return [one for run in found for one in run.failures if since <= one[0].noticed < until]


def restarts(found: Iterable[TrainingRun], since: float, until: float) -> list[Chain]:
    """The chains of restarts that began in the time of the report."""
    return [one for run in found for one in run.chains if since <= one.at < until]


def mttr(found: Sequence[tuple[Outage, str]], until: str, none: str) -> Figure:
    """The time to train again; `until` says what that is taken by, `none` why it is unknown where there is no case."""
    mended = [max(0.0, one.over - one.noticed) for one, _ in found if one.over is not None]
    left = len(found) - len(mended)
    return span(
        "mttr", "time to train again (MTTR)", mended, "failures", f"From a failure's notice until {until}.",
        none, f"leaves out {left} that {'is' if left == 1 else 'are'} not over" if left else "",
    )  # fmt: skip


def ettr(
    found: Sequence[TrainingRun], since: float, until: float, of: str, definition: str, none: str, partly: str
) -> Figure:
    """The share of the time in which the jobs got on, over all of them."""
    listed = [_trained(run, since, until) for run in found]
    watched = sum(one.watched for one in listed)
    lost = sum(one.lost for one in listed)
    counted = sum(one.watched > 0 for one in listed)
    return share(
        "ettr",
        "effective training time (ETTR)",
        max(0.0, watched - lost),
        watched,
        counted,
        of,
        definition,
        none,
        partly,
    )


def trained(found: Iterable[TrainingRun], since: float, until: float, seen: str) -> Training:
    """Each job's share, those that lost most first; `seen` says who told of them."""
    listed = [one for run in found if (one := _trained(run, since, until)).watched > 0]
    listed.sort(key=lambda one: (-one.lost, -one.watched, one.job))
    return Training(
        f"Of each job, {seen}: the time that is known, what of it was lost, and the share that was not; those that lost most "
        "first.",
        seen,
        len(listed),
        tuple(listed[:LISTED]),
    )


def _trained(run: TrainingRun, since: float, until: float) -> Trained:
    watched, lost = covered(run.watched, since, until), covered(run.lost, since, until)
    failed, chained = failures([run], since, until), restarts([run], since, until)
    return Trained(run.job, watched, min(lost, watched), len(failed), sum(len(one.restarts) for one in chained))


def success(key: str, title: str, found: Sequence[Chain], of: str, definition: str) -> Figure:
    """How many chains end in training, of those that are decided."""
    decided = [one for one in found if one.end is not ChainEnd.OPEN]
    good, left = sum(one.end is ChainEnd.TRAINS for one in decided), len(found) - len(decided)
    partly = f"they took {counted(sum(len(one.restarts) for one in decided), 'restart')}" if of == "chains" else ""
    partly = "; ".join(
        filter(None, (partly, f"{left} that {'is' if left == 1 else 'are'} not decided left out" if left else ""))
    )
    return share(key, title, good, len(decided), len(decided), of, definition, f"no {of} are decided", partly)


def between(found: Iterable[Chain], title: str) -> Figure:
    """How long one restart of a chain came after the other."""
    return span(
        "interval", title, [s for one in found for s in one.intervals()], "restarts",
        "From one restart of a chain to the next.", "no chain has two restarts",
    )  # fmt: skip
