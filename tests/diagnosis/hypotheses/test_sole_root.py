"""The one rank that waits for none while all others wait is named, also where what it does may be a wait that no frame shows."""

from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.stack import ProcessTrace
from hangdog_models.verdict import Verdict
from support.cases.stories import job, look, snapshot, trace

WIDE = job(dp=64, per_machine=8)


def seen(*odd: ProcessTrace, looks: int = 1, waiting: str = "0-4,6-63", at: str = "gather") -> Verdict:
    return diagnose(snapshot(*[[*look({waiting: at}), *odd]] * looks), WIDE)


def test_the_only_rank_that_waits_for_none_is_named_though_nothing_tells_why() -> None:
    for at, odd in (("gather", trace(5, "user", active=True)), ("barrier", trace(5, "user", state="S"))):
        for looks in (1, 2):
            verdict = seen(odd, looks=looks, at=at)
            assert verdict.culprit is not None and verdict.culprit.ranks == (5,)
            assert 0.6 < verdict.culprit.probability < 0.95
            assert verdict.evict.machines == () and all(one.probability < 0.5 for one in verdict.suspects)


def test_beside_a_second_one_of_its_kind_nothing_tells_which_it_is() -> None:
    odd = (trace(5, "user", active=True), trace(40, "user", active=True))
    verdict = seen(*odd, waiting="0-4,6-39,41-63")
    assert verdict.culprit is None or verdict.culprit.probability < 0.2


def test_a_capture_that_failed_is_no_second_one() -> None:
    odd = (trace(5, "user", active=True), trace(40, "timed out"))
    verdict = seen(*odd, waiting="0-4,6-39,41-63")
    assert verdict.culprit is not None and verdict.culprit.ranks == (5,) and verdict.culprit.probability > 0.6


def test_who_moves_between_the_looks_is_at_work() -> None:
    there, on = (trace(5, ["<module> train.py", f"{name} model.py"], active=True) for name in ("first", "second"))
    verdict = diagnose(snapshot(*[[*look({"0-4,6-63": "gather"}), one] for one in (there, on)]), WIDE)
    assert verdict.evict.machines == ()
