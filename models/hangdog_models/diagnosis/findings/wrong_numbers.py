"""What a job's own numbers show: that its arithmetic went wrong, and with which rank it began, if ranks log their own.

Data, code and hardware look alike here, so numbers alone evict no machine. They show where to begin tests.
"""

from collections.abc import Iterable
from dataclasses import replace

from hangdog_models.counts import counted
from hangdog_models.diagnosis.findings.finding_reasons import reason_of
from hangdog_models.diagnosis.hypotheses.hypothesis import Hypothesis, odds
from hangdog_models.diagnosis.rank_words import ranks_of
from hangdog_models.findings import Finding, Impact
from hangdog_models.numbers.wrong_number import WrongNumber, WrongNumbers
from hangdog_models.ranks import Rank
from hangdog_models.rules.likelihoods import by_cause
from hangdog_models.snapshot import Snapshot
from hangdog_models.topology import Topology
from hangdog_models.verdict import Kind, VerdictReason

WRONG_FIRST = by_cause("wrong_first")
_KINDS = {"machine": Kind.MACHINE, "software": Kind.SOFTWARE}
#: Codes of numbers that all ranks have alike, because they were combined: who logs it first is no culprit.
_SHARED = ("loss scale at minimum",)
#: Ranks whose numbers are shown one by one.
_SHOWN = 3
#: Why no machine is evicted.
_ALIKE = VerdictReason(
    "kept-numbers-alike", "nobody is evicted: bad data, code and a device that computes wrongly look alike in a log"
)

_NOBODY_FIRST = VerdictReason("nobody-wrong-first", "no rank's own number was wrong before those of others")


def explain(snapshot: Snapshot, topology: Topology) -> list[Hypothesis]:
    """The rank whose own number was wrong while others' were sound: its device or its data may be the reason."""
    first, alone = wrong_first(snapshot.numbers), _alone(snapshot)
    if first is not None and first.rank is not None:
        rank, reason = first.rank, _first(first, snapshot)
        why = f"the {first.quantity} of rank {rank} was wrong before those of other ranks"
    elif alone is not None:
        rank, reason = alone
        why = f"rank {rank} alone ended because its own numbers were wrong"
    else:
        return []
    machine = topology.machine(rank) or f"rank {rank}"
    return [
        Hypothesis(_KINDS[cause], odds(why, times), (rank,), (machine,), (reason,), hearsay=True)
        for cause, times in WRONG_FIRST.items()
    ]


def unproven(found: Iterable[Hypothesis], snapshot: Snapshot) -> list[Hypothesis]:
    """The hypotheses, where a rank's end alone convicts no machine if its log says that it ended for its wrong numbers."""
    ended = {rank for one in crash_reports(snapshot) for rank in _ranks(one)}
    return [
        replace(one, hearsay=True) if one.kind is Kind.MACHINE and one.ranks and ended.issuperset(one.ranks) else one
        for one in found
    ]


def crash_reports(snapshot: Snapshot) -> tuple[Finding, ...]:
    """Findings in which a log itself reports wrong numbers."""
    return tuple(one for one in snapshot.findings if one.impact is Impact.NUMBERS)


def _alone(snapshot: Snapshot) -> tuple[Rank, VerdictReason] | None:
    """The one rank that ended because its own numbers were wrong, before numbers were combined, and its message.

    None if several report it: what reached all of them may have come from any rank.
    """
    those = [one for one in crash_reports(snapshot) if one.code not in _SHARED]
    ranks = {rank for one in those for rank in _ranks(one)}
    if len(ranks) != 1:
        return None
    (rank,), one = ranks, min(those, key=repr)
    return rank, reason_of(one, f"{one.source} of rank {rank}: {one.what}")


def _ranks(one: Finding) -> tuple[Rank, ...]:
    """The ranks whose numbers a finding reports: those it names, else the rank of its log."""
    return one.ranks or ((one.rank,) if one.rank is not None else ())


def wrong_first(numbers: Iterable[WrongNumber]) -> WrongNumber | None:
    """The number of one rank that went wrong at an earlier step than that of each other known rank; else None.

    A number that all ranks share, such as the norm of the reduced gradients, is wrong everywhere at once. So only the
    same quantity of another rank counts, sound at that step or wrong at a later one.
    """
    own = [one for one in numbers if one.rank is not None and one.step is not None]
    leads = []
    for one in own:
        others = [other for other in own if other.quantity is one.quantity and other.rank != one.rank]
        compared = {other.rank for other in others} | {rank for rank in one.sound if rank != one.rank}
        if compared:
            leads.append(one)
    leads.sort(key=lambda one: (_step(one), str(one.quantity)))
    if not leads or any(one.rank != leads[0].rank and _step(one) == _step(leads[0]) for one in leads):
        return None
    return leads[0]


def summary(snapshot: Snapshot) -> WrongNumbers | None:
    """The number that went wrong first; None if no number requested a verdict."""
    if not snapshot.numbers:
        return None
    lead = wrong_first(snapshot.numbers)
    one = lead or _ordered(snapshot.numbers)[0]
    return WrongNumbers(str(one.quantity), one.worded, one.median, one.step, lead.rank if lead is not None else None)


def reasons(snapshot: Snapshot, topology: Topology) -> tuple[VerdictReason, ...]:
    """What the numbers show, and why no machine is evicted for it."""
    return (*shown(snapshot, topology), _ALIKE)


def shown(snapshot: Snapshot, topology: Topology) -> tuple[VerdictReason, ...]:
    """What the numbers show, the first wrong one first."""
    numbers = _ordered(snapshot.numbers)
    lead = wrong_first(numbers)
    ordered = [*([lead] if lead is not None else []), *(one for one in numbers if one is not lead)]
    lines = [
        VerdictReason("wrong-number", f"{_whose(one, topology)}: {one.message} ({one.line})")
        for one in ordered[:_SHOWN]
    ]
    if rest := {one.rank for one in ordered[_SHOWN:]} - {one.rank for one in ordered[:_SHOWN]}:
        lines.append(VerdictReason("wrong-number", f"the same of {counted(len(rest), 'other rank')}"))
    lines.append(_first(lead, snapshot) if lead is not None else _NOBODY_FIRST)
    return tuple(dict.fromkeys(lines))


def _first(first: WrongNumber, snapshot: Snapshot) -> VerdictReason:
    later = [
        one.rank for one in snapshot.numbers if one.quantity is first.quantity and one.rank not in (None, first.rank)
    ]
    others = sorted(
        {*(rank for rank in later if rank is not None), *(rank for rank in first.sound if rank != first.rank)}
    )
    then = f"{ranks_of(others)} {'was' if len(others) == 1 else 'were'} not yet"
    return VerdictReason("wrong-first", f"rank {first.rank} was wrong at step {first.step}, and {then}")


def _whose(one: WrongNumber, topology: Topology) -> str:
    if one.rank is None:
        return "a log of several ranks"
    machine = topology.machine(one.rank)
    return f"rank {one.rank}{f' on {machine}' if machine else ''}"


def _ordered(numbers: Iterable[WrongNumber]) -> list[WrongNumber]:
    """By step where it is known, then by time."""
    return sorted(
        numbers, key=lambda one: (one.step is None, one.step or 0, one.at_s, -1 if one.rank is None else one.rank)
    )


def _step(one: WrongNumber) -> int:
    return one.step if one.step is not None else 0
