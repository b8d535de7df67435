"""Convicted sites: they are surely faulty, and failed more often than sound machines do by chance."""

from collections.abc import Sequence

import numpy as np

from hangdog_models.planning.campaign.belief import SLACK, Belief
from hangdog_models.planning.campaign.fault_sites import numbers
from hangdog_models.planning.campaign.launch import UNERRING, LaunchResult
from hangdog_models.planning.campaign.posterior import Posterior
from hangdog_models.planning.campaign.thresholds import USUAL, Thresholds


def convicted(belief: Belief, posterior: Posterior, thresholds: Thresholds = USUAL) -> frozenset[int]:
    """The numbers of the sites that are sure enough and failed often enough. A convicted link or leaf evicts no
    machine.

    The surest come first. A failure that includes a site already convicted is no evidence against another.
    """
    prior = np.array(list(belief.machines.values()))
    found: set[int] = set()
    for at in sorted(sure(posterior, thresholds), key=lambda at: (-posterior.place[at], at)):
        alarms, failed = [], 0
        for outcome in belief.evidence:
            touched = posterior.places.touched(numbers(belief, outcome.launch), outcome.launch.diagnostic.network)
            if outcome.result is not LaunchResult.INCONCLUSIVE and at in touched and found.isdisjoint(touched.tolist()):
                alarms.append(outcome.launch.diagnostic.alarm)
                failed += outcome.result is LaunchResult.FAIL
        alike = int((prior >= prior[at] * (1 - SLACK)).sum()) if at < len(prior) else 0
        if failed >= thresholds.failures and alike * by_chance(alarms, failed) <= thresholds.innocent:
            found.add(at)
    return frozenset(found)


def sure(posterior: Posterior, thresholds: Thresholds = USUAL) -> list[int]:
    """The numbers of the sites that are nearly certain. `convicted` decides whether they failed often enough."""
    return [int(at) for at in np.flatnonzero(posterior.place >= thresholds.sure) if at != posterior.places.elsewhere]


def failures_needed(alike: int, alarm: float, thresholds: Thresholds = USUAL) -> int:
    """How many failed launches convict one of `alike` equally suspected machines, if none passes.

    `alarm`: the false-alarm rate of each launch.
    """
    times = thresholds.failures
    while alike * max(alarm, UNERRING) ** times > thresholds.innocent:
        times += 1
    return times


def by_chance(alarms: Sequence[float], failed: int) -> float:
    """The probability that a sound machine fails at least so many launches with these false-alarm rates."""
    counts = np.zeros(len(alarms) + 1)
    counts[0] = 1.0
    for alarm in alarms:
        counts[1:] = counts[1:] * (1 - alarm) + counts[:-1] * alarm
        counts[0] *= 1 - alarm
    return float(counts[failed:].sum())
