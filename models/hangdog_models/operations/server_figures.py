"""What a server saw of jobs, as figures: by the same reckoning as the histories of `hangdog run`, and with what it leaves unknown."""

from collections.abc import Iterable

from hangdog_models.operations.figure_text import duration
from hangdog_models.operations.report import Figure, ReportTable, Training, Unit, report_table
from hangdog_models.operations.restart_chains import ends
from hangdog_models.operations.session_histories import STEADY_S, SessionHistory, histories
from hangdog_models.operations.training_time import (
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

#: A job that begins again so soon after its end is its restart: ByteRobust's longest unproductive time was 50 minutes, and what
#: comes hours later may be another experiment of the same name. Seconds.
RESTART_S = 3600.0
_NONE = "no agent showed a job in this time"
_WHO = "agents see that a job is restarted, not by whom; give `hangdog report --history` what `hangdog run` wrote"
_WHOSE = (
    ("retries", "automatic chains that succeed", "chains", "Chains of automatic restarts that end in training."),
    ("manual", "manual restarts that succeed", "restarts", "Restarts by people after which the job trains."),
)


def training_runs(sessions: Iterable[SessionHistory], restart_s: float) -> tuple[TrainingRun, ...]:
    """The jobs that agents showed; who restarted them is not known of any."""
    return runs(histories(sessions, restart_s))


def figures(found: tuple[TrainingRun, ...], since: float, until: float, restart_s: float) -> tuple[Figure, ...]:
    """What the report says of training, by what agents saw."""
    failed, restarted = failures(found, since, until), restarts(found, since, until)
    within = duration(restart_s)
    return (
        mttr(
            failed,
            "the job moved again, or its ranks were there again; a failure is a standstill, or an end that was followed by a "
            f"beginning within {within}",
            ("no failure is over" if failed else "nothing failed") if found else _NONE,
        ),
        ettr(
            found, since, until, "jobs",
            "Share of the time in which a job got on, of the time in which agents showed it. Lost are standstills, and what "
            f"lies between an end and a beginning that were both seen and are no more than {within} apart; what nobody saw "
            "is not counted.",
            _NONE,
            "at most so much: from when its ranks are there, starting and steps that are trained again count as trained",
        ),
        *(Figure(key, title, Unit.SHARE, None, 0, of, services, _WHO) for key, title, of, services in _WHOSE),
        success(
            "restarts", "restart chains that succeed", restarted, "chains",
            "Chains of restarts upon one failure, by whomever, after which the job trained for "
            f"{duration(STEADY_S)}, of all that are decided.",
        ),
        between(restarted, "between restarts"),
    )  # fmt: skip


def chains(found: tuple[TrainingRun, ...], since: float, until: float) -> ReportTable:
    """How the chains of restarts ended."""
    return report_table(
        "chains", "restart chains", "chains",
        "Restarts upon one failure, by whomever, by how they ended; one that ends with nobody knowing is not decided.",
        ends(restarts(found, since, until)),
    )  # fmt: skip


def training(found: tuple[TrainingRun, ...], since: float, until: float) -> Training:
    """Each job's share."""
    return trained(found, since, until, "seen by agents")
