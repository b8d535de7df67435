"""Stacks and counters of different moments: the verdict says so, and is less sure."""

from dataclasses import replace

from hangdog_models.collectives import RankCounters
from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.ranks import Rank
from hangdog_models.topology import Topology
from hangdog_models.verdict import Kind, Verdict
from support.cases.reasons import codes
from support.cases.stories import job, look, snapshot

EIGHT = job(dp=8, per_machine=1)


def counted(story: dict[str, str], late: int | None, topology: Topology = EIGHT) -> Verdict:
    """A job seen twice; by its counters all are in operation 7 except the late one, or everything is finished."""
    looks = [look(story)] * 2
    counters = [RankCounters(Rank(r), {"0": 6 if r == late else 7}, {"0": 6}, (), {}, {}) for r in range(8)]
    if late is None:
        counters = [replace(one, completed={"0": 7}) for one in counters]
    return diagnose(replace(snapshot(*looks), counters=tuple(counters)), topology)


def test_who_is_late_by_counters_and_inside_by_its_stack_is_told_and_not_evicted() -> None:
    agreed = counted({"0-6": "gather", "7": "disk"}, late=7)
    assert (agreed.kind, agreed.evict.machines) == (Kind.MACHINE, ("node-7",))
    assert "stacks-deny-counters" not in codes(agreed.because)
    denied = counted({"0-7": "gather"}, late=7)
    assert "stacks-deny-counters" in codes(denied.because)
    assert denied.evict.machines == ()


def test_dumps_that_know_nothing_of_the_collectives_all_stand_in_are_old() -> None:
    told = counted({"0-6": "gather", "7": "disk"}, late=None)
    assert "dumps-older-than-stacks" in codes(told.because)
    plain = diagnose(snapshot(*[look({"0-6": "gather", "7": "disk"})] * 2), EIGHT)
    assert "dumps-older-than-stacks" not in codes(plain.because)
    assert told.confidence < plain.confidence
    assert told.suspects[0].ranks == plain.suspects[0].ranks == (7,)
