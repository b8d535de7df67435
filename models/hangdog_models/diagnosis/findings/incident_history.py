"""Earlier incidents of the same kind: one call site on several machines blames the code, on one machine again the
machine.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from hangdog_models.counts import counted, named
from hangdog_models.diagnosis.clustering.cluster_views import views
from hangdog_models.diagnosis.clustering.exact_clusters import Cluster
from hangdog_models.diagnosis.clustering.incident_families import family_of
from hangdog_models.diagnosis.clustering.incident_features import of_ranks
from hangdog_models.diagnosis.findings import hardware
from hangdog_models.diagnosis.hypotheses.hypothesis import Factor, Hypothesis
from hangdog_models.findings import Finding
from hangdog_models.past_incidents import EarlierIncident, Family, Outcome
from hangdog_models.ranks import Rank
from hangdog_models.rules.likelihoods import by_cause, likelihood
from hangdog_models.topology import Topology
from hangdog_models.verdict import Kind, VerdictReason

FAMILY_ELSEWHERE = by_cause("family_elsewhere")
FAMILY_HERE = likelihood("family_here")
FAMILY_TESTED = likelihood("family_tested")
FAMILY_MOST = likelihood("family_most")
#: Incidents that a reason names, the latest ones.
NAMED = 3
#: Seconds of a day and of an hour, for the text.
DAY_S, HOUR_S = 86400, 3600


@dataclass(frozen=True)
class Recurrence:
    """An incident's `family` of earlier ones, as seen from the `machine` blamed now, which has these `ranks`.

    The same ranks of the same machine before prove nothing: it may be what only these ranks do.
    """

    family: Family
    machine: str
    ranks: tuple[Rank, ...]

    @cached_property
    def elsewhere(self) -> float:
        """The weight, in machines, of what points at the code: machines where the incident occurred at least as often
        as here.

        A machine that tests convicted, or with evidence of its own against it, does not count. One that tests cleared
        counts for more.
        """
        found: Counter[str] = Counter()
        cleared = {one.features.machine for one in self.family if one.outcome is Outcome.CLEARED}
        for one in self.family:
            sound = one.outcome is Outcome.OPEN and not one.features.evidence
            if sound and one.features.machine != self.machine:
                found[one.features.machine] += 1
        as_often = {machine for machine, times in found.items() if times >= self.here}
        return min(FAMILY_MOST, len(as_often - cleared) + len(cleared) * FAMILY_TESTED)

    @cached_property
    def here(self) -> float:
        """The weight, in incidents, of what points at this machine: other ranks were in it, or tests convicted it."""
        mine = [one for one in self.family if one.features.machine == self.machine]
        convicted = sum(one.outcome is Outcome.CONVICTED for one in mine)
        moved = sum(one.outcome is Outcome.OPEN and self._moved(one) for one in mine)
        return min(FAMILY_MOST, moved + convicted * FAMILY_TESTED)

    def _moved(self, one: EarlierIncident) -> bool:
        return set(self.ranks).isdisjoint(one.features.ranks)

    def factors(self, kind: Kind) -> tuple[Factor, ...]:
        """The factors on the odds of a hypothesis of this kind."""
        found = []
        if self.elsewhere and kind in FAMILY_ELSEWHERE:
            found.append(Factor(self.reason.text, FAMILY_ELSEWHERE[kind] ** self.elsewhere))
        if self.here and kind is Kind.MACHINE:
            found.append(Factor(self.reason.text, FAMILY_HERE**self.here))
        return tuple(found)

    @cached_property
    def reason(self) -> VerdictReason:
        """How often it was seen before, and what that speaks for."""
        machines = {one.features.machine for one in self.family}
        where = counted(len(machines), "machine") if machines != {self.machine} else f"{self.machine} only"
        longest = max(one.ago_s for one in self.family)
        days, hours = round(longest / DAY_S), round(longest / HOUR_S)
        within = counted(max(1, hours), "hour") if hours < DAY_S // HOUR_S else counted(days, "day")
        latest = sorted(self.family, key=lambda one: (one.ago_s, one.id))[:NAMED]
        seen = f"seen {counted(len(self.family), 'time')} before in {within} on {where}"
        text = f"{seen} ({named([one.id for one in latest])})"
        if self.elsewhere > self.here:
            return VerdictReason("seen-before-elsewhere", f"{text}: speaks for the code")
        if self.here > self.elsewhere:
            return VerdictReason("seen-before-here", f"{text}: speaks for {self.machine}")
        if not self.here and machines == {self.machine}:
            return VerdictReason("seen-before", f"{text}: by the same ranks, so it may be the machine or what they do")
        return VerdictReason("seen-before", f"{text}: speaks neither for the code nor for the machine")


def weighed(
    found: Sequence[Hypothesis],
    past: Sequence[Family],
    clusters: Sequence[Cluster],
    findings: Sequence[Finding],
    topology: Topology,
) -> tuple[Hypothesis, ...]:
    """The hypotheses, with the history of those that blame one machine."""
    if not past:
        return tuple(found)
    shown, against = views(clusters), hardware.kinds(findings, topology)
    known: dict[tuple[str, tuple[Rank, ...]], Recurrence] = {}
    moved = []
    for hypothesis in found:
        if len(hypothesis.units) != 1 or not hypothesis.ranks or hypothesis.hold is not None:
            moved.append(hypothesis)
            continue
        machine, ranks = hypothesis.units[0], hypothesis.ranks
        if (machine, ranks) not in known:
            features = of_ranks(machine, ranks, shown, against.get(machine, ()))
            family = family_of(features, past) if features is not None else ()
            known[machine, ranks] = Recurrence(family, machine, tuple(topology.machines.get(machine, ranks)))
        again = known[machine, ranks]
        if again.family:
            hypothesis = hypothesis.moved(*again.factors(hypothesis.kind)).with_reasons(again.reason)
        moved.append(hypothesis)
    return tuple(moved)
