"""A thread that runs with the interpreter's lock beside a main thread that sleeps: no evidence where the main thread stands with its peers."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from msgspec import structs

from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.stack import ProcessTrace, Thread
from hangdog_models.verdict import Kind, StallCause, Verdict
from support.cases.stories import first, frames, job, look, snapshot, trace

WIDE = job(dp=32, per_machine=8)
PUBLISH = ["_bootstrap threading.py", "_publish tracker.py"]


def holding(rank: int, stack: str | Sequence[str]) -> ProcessTrace:
    """A rank whose tracker's thread runs Python at this moment."""
    one = trace(rank, stack, state="S")
    thread = Thread("Tracker", 7000 + rank, frames(PUBLISH), True, True)
    return structs.replace(one, threads=(*one.threads, thread))


def judged(odd: Sequence[ProcessTrace], others: str, stalled_s: float | None = 900.0, looks: int = 1) -> Verdict:
    elsewhere = {one.rank for one in odd}
    seen = [one for one in look({"0-31": others}) if one.rank not in elsewhere]
    asleep = [structs.replace(one, state=odd[0].state) for one in seen]
    found = snapshot(*[[*asleep, *odd]] * looks)
    return diagnose(replace(found, job=replace(found.job, stalled_s=stalled_s)), WIDE)


@pytest.mark.parametrize("place", ["gather", "user", "item"])
@pytest.mark.parametrize("ranks", [(9,), (3, 9, 20, 27)])
def test_who_stands_with_its_peers_is_not_accused_for_a_thread_of_its_tracker(place: str, ranks: Sequence[int]) -> None:
    for stalled_s in (None, 900.0):
        verdict = judged([holding(rank, place) for rank in ranks], place, stalled_s)
        assert verdict.evict.machines == () and first(verdict) not in {ranks, ranks[:1]}


def test_who_stands_alone_behind_such_a_thread_is_held_up_by_code() -> None:
    verdict = judged([holding(9, "other")], "gather", looks=3)
    assert (verdict.kind, first(verdict), verdict.evict.machines) == (Kind.SOFTWARE, (9,), ())
    assert verdict.causes[StallCause.SOFTWARE] > verdict.causes[StallCause.MACHINE]
