"""From what a server remembers of a stretch of time to the report of it."""

import math
from collections import Counter
from collections.abc import Iterable
from operator import attrgetter

from hangdog_models.machine_history import MentionKind
from hangdog_models.operations import evictions, server_figures, verdict_accuracy
from hangdog_models.operations.past_events import Came, MachineMention, Naming, PastEvents, PastIncident
from hangdog_models.operations.report import (
    Figure,
    Machines,
    Offender,
    OperationsReport,
    report_table,
    share,
    span,
)
from hangdog_models.verdict import Kind

#: Machines that the report names: a page that somebody reads.
LISTED = 20
#: Convictions from which a machine is called a lemon: one may be chance, and a machine that comes back and is named again was
#: not mended (NVSentinel bounds remediation at one in seven days for the same reason).
LEMON = 2
#: Machines whose share of all convictions is told: 3 of 63 nodes had more than half of the exclusions in Lablup's report.
WORST = 3


def report(
    past: PastEvents, since: float, until: float, restart_s: float = server_figures.RESTART_S
) -> OperationsReport:
    """The report of what happened from `since` to before `until` (Unix seconds); the order of the past does not matter.

    A job that begins again within `restart_s` after its end is restarted.
    """
    incidents = [one for one in past.incidents if since <= one.began < until]
    namings = [one for one in past.namings if since <= one.at < until]
    stated = [one for one in past.mentions if since <= one.at < until]
    spoken = {one.id: one.settled for one in past.incidents if one.settled is not None}
    rightness = evictions.rightness(namings, past.trials, spoken)
    sessions = server_figures.training_runs(past.sessions, restart_s)
    return OperationsReport(
        since,
        until,
        "what the server remembers",
        (
            *_times(incidents, namings), *server_figures.figures(sessions, since, until, restart_s), _concentration(stated),
            *verdict_accuracy.figures(
                incidents, past.mentions, verdict_accuracy.settled_causes(incidents, past.trials),
                evictions.taken(rightness),
            ),
        ),
        (
            report_table(
                "incidents", "incidents by verdict", "incidents",
                "Incidents that began in the time of the report, by the kind of their latest verdict.", _kinds(incidents),
            ),
            report_table(
                "evictions", "machines that verdicts would evict", "machines named",
                "Each machine of each verdict to evict, counted once for an incident, by what came of it; `left` is refused "
                "by a bound, worked out in dry-run, or waiting.", evictions.what_came(namings),
            ),
            report_table(
                "rightness", "were they named rightly", "machines named",
                "Right: people settled that it was the machine, or a campaign for the incident, or within a day, convicted it. "
                "Wrong: people settled that it was not, it passed all its tests there, or a person dismissed it and said why. "
                "Anything else is unknown.",
                rightness,
                "that a machine was released says neither: repaired ones come back, too",
            ),
            server_figures.chains(sessions, since, until),
        ),
        machines(stated),
        past.cut,
        server_figures.training(sessions, since, until),
    )  # fmt: skip


def machines(stated: Iterable[MachineMention]) -> Machines:
    """The ranking of machines: convictions first, then the sum of their shares of probability."""
    found: dict[str, list[MachineMention]] = {}
    for one in stated:
        found.setdefault(one.machine, []).append(one)
    order = sorted((_offender(name, lines) for name, lines in found.items()), key=_rank)
    return Machines(
        f"Machines by the incidents and campaigns that convict them (their last word), then by the sum of their shares of "
        f"probability. Lemon: convicted {LEMON} times or more in the time of the report.",
        len(order),
        tuple(order[:LISTED]),
    )


def _times(incidents: list[PastIncident], namings: list[Naming]) -> tuple[Figure, ...]:
    stood = [max(0.0, one.began - one.stood) for one in incidents if one.stood is not None]
    reported = [max(0.0, one.judged - one.began) for one in incidents if one.judged is not None]
    out = [
        max(0.0, one.out - one.began)
        for one in namings
        if one.came is Came.TAKEN and one.out is not None and one.began is not None
    ]
    taken = sum(one.came is Came.TAKEN for one in namings)
    return (
        span(
            "mttd", "time to detect (MTTD)", stood, "incidents",
            "From when the job got on last, by what its agents saw, until its incident began.",
            "no incident was opened by a suspicion that says since when the job stood still",
            _left(len(incidents) - len(stood), "incident", "opened by people, recorded without a server, or of an older one"),
        ),
        span(
            "verdict", "time to verdict", reported, "incidents", "From an incident's beginning until its latest verdict.",
            "no incident has a verdict", _left(len(incidents) - len(reported), "incident", "without a verdict"),
        ),
        span(
            "isolated", "time to isolate", out, "machines taken",
            "From an incident's beginning until its machine was out of use, where it still is.",
            "no machine is out of use by hangdog", _left(taken - len(out), "machine", "released since, or not done yet"),
        ),
    )  # fmt: skip


def _left(count: int, what: str, why: str) -> str:
    return f"leaves out {count} {what}{'s' if count > 1 else ''} ({why})" if count > 0 else ""


def _kinds(incidents: list[PastIncident]) -> dict[str, int]:
    found = Counter(one.kind or ("no verdict: failed" if one.failed else "no verdict yet") for one in incidents)
    names = [*map(str, Kind), "no verdict: failed", "no verdict yet"]
    return {name: found[name] for name in (*names, *sorted(found.keys() - set(names))) if found[name]}


def _concentration(stated: list[MachineMention]) -> Figure:
    counts = Counter(one.machine for one in stated if one.kind is MentionKind.CONVICTED)
    worst = sum(count for _, count in counts.most_common(WORST))
    return share(
        "concentration", f"convictions of the {WORST} worst machines", worst, counts.total(), counts.total(), "convictions",
        f"Share of all convictions, by verdicts and campaigns, that falls on the {WORST} machines convicted most.",
        "no machine was convicted",
    )  # fmt: skip


def _offender(machine: str, lines: list[MachineMention]) -> Offender:
    states = Counter(one.kind for one in lines)
    # fsum, so that the order of the lines does not show in the last digit
    weight = math.fsum(one.probability / max(1, one.among) for one in lines if one.kind is not MentionKind.TAKEN_BACK)
    convicted = states[MentionKind.CONVICTED]
    others = states[MentionKind.SUSPECTED], states[MentionKind.CLEARED] + states[MentionKind.TAKEN_BACK]
    return Offender(machine, convicted, *others, weight, max(map(attrgetter("at"), lines)), convicted >= LEMON)


def _rank(one: Offender) -> tuple[float, float, float, str]:
    return -one.convicted, -one.weight, -one.last, one.machine
