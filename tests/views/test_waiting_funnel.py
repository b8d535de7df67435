"""The funnel: everybody who waits for the first suspect is in one band, the nearest first, and how that is known is told."""

from dataclasses import replace

from hangdog_models.diagnosis.judge import investigate
from hangdog_models.diagnosis.verdict.case import Case
from hangdog_models.diagnosis.verdict.conclude import conclude
from hangdog_models.diagnosis.waits.waits import GroupWait, Waits
from hangdog_models.ranks import Rank, size
from hangdog_models.verdict import Suspect
from hangdog_models.views.pictures.waiting_funnel import BANDS, DEEPEST, Funnel, funnel
from hangdog_models.views.waits_view import Known
from support.cases.stalled import stalled


def waiting(case: Case, holds: list[GroupWait], waiting: tuple[int, ...] = ()) -> Case:
    """A case in which these holds are all."""
    awaiting: dict[Rank, tuple[GroupWait, ...]] = {}
    for hold in holds:
        for rank in hold.awaited:
            awaiting[rank] = (*awaiting.get(rank, ()), hold)
    return replace(case, waits=Waits((), tuple(map(Rank, waiting)), (), tuple(holds), awaiting))


def hold(inside: range, awaited: int, inferred: bool = False, counted: bool = False) -> GroupWait:
    return GroupWait("tp", tuple(map(Rank, inside)), (Rank(awaited),), f"call {inside.start}", inferred, counted)


def test_all_that_waits_is_in_one_band() -> None:
    case = investigate(*stalled(64))
    suspects = conclude(case).suspects
    found = funnel(case, suspects)
    ranks = [rank for band in found.bands for low, high in band.ranks for rank in range(low, high + 1)]
    assert len(ranks) == len(set(ranks)) and set(ranks) == case.waits.reached_from(suspects[0].ranks)
    assert not set(ranks) & set(suspects[0].ranks) and size(found.suspect) == 1
    assert [band.steps for band in found.bands] == sorted(band.steps for band in found.bands)
    near = {band.known for band in found.bands if band.steps == 1}
    assert Known.COUNTERS in near and Known.FRAMES in near


def test_a_band_tells_how_far_it_is_and_how_it_is_known() -> None:
    case = investigate(*stalled(64))
    holds = [hold(range(1, 3), 0, counted=True), hold(range(3, 9), 1, inferred=True), hold(range(9, 10), 3)]
    found = funnel(waiting(case, holds, tuple(range(1, 12))), [Suspect((Rank(0),), ("m",), 0.9, ())])
    assert [(band.steps, band.known, size(band.ranks)) for band in found.bands] == [
        (1, Known.COUNTERS, 2), (2, Known.GUESSED, 6), (3, Known.FRAMES, 1), (0, Known.UNKNOWN, 2),
    ]  # fmt: skip


def test_a_chain_without_end_has_an_end_and_many_bands_are_counted() -> None:
    case = investigate(*stalled(64))
    suspect = [Suspect((Rank(0),), ("m",), 0.9, ())]
    chain = [hold(range(at + 1, at + 2), at) for at in range(40)]
    found = funnel(waiting(case, [*chain, hold(range(1), 40)]), suspect)
    assert max(band.steps for band in found.bands) == DEEPEST
    assert len(found.bands) == BANDS and found.more == 30
    assert found.more_ranks + sum(size(band.ranks) for band in found.bands) == 40


def test_nobody_waits_for_nobody() -> None:
    case = investigate(*stalled(64))
    assert funnel(case, ()) == Funnel()
    assert funnel(waiting(case, [], (1, 2)), [Suspect((Rank(0),), ("m",), 0.9, ())]) == Funnel()
