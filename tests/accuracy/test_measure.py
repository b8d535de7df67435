"""The benchmark measures what it says: every figure is checked against a case counted by hand."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from accuracy import calibration
from accuracy.bounds import readings
from accuracy.figures import figures, ours, theirs
from accuracy.measure import Answer, among_first, score
from accuracy.misses import classes, misses
from accuracy.simulator.incident import Evidence, Incident, Truth
from accuracy.table import document, markdown, report
from accuracy.trial import Side, Task, Trial, judge, quick, run, select
from hangdog_models.ranks import Rank
from hangdog_models.topology import Layout
from hangdog_models.verdict import Kind
from support.cases.stories import job, look, snapshot

HOST = Truth("gc", "host", (Kind.MACHINE,), (Rank(4),), ("b",), 1)
LINK = Truth("link", "link", (Kind.GROUP,), (Rank(2), Rank(4)), ("a", "b"), 1)
TWO = Truth("gc + gc", "two", (Kind.MACHINE,), (Rank(2), Rank(4)), ("a", "b"), 2)
BUG = Truth("mismatch", "software", (Kind.SOFTWARE,), (), (), 0)


def answer(kind: Kind | None, evicted: str, *suspects: str, p: float | None = None) -> Answer:
    return Answer(tuple(evicted), tuple(map(tuple, suspects)), kind, p, p)


def trial(truth: Truth, mine: Answer, peers: Answer, evidence: Evidence = Evidence.STACKS, seed: int = 0) -> Trial:
    sides = [Side(one, score(one, truth), 0.5) for one in (mine, peers, peers)]
    return Trial(seed, 64, truth.fault, truth.family, "ddp", evidence, truth.kinds, truth.machines, 2, *sides)


def test_containment_wants_every_guilty_machine() -> None:
    assert score(answer(Kind.MACHINE, "b", "b"), HOST).contained
    assert not score(answer(Kind.MACHINE, "a", "a"), HOST).contained
    half = score(answer(Kind.MACHINE, "a", "a"), TWO)
    assert (half.contained, half.caught, half.first) == (False, 1, True)
    assert score(answer(Kind.MACHINE, "ab", "a", "b"), TWO).contained


def test_a_group_too_wide_to_evict_is_named_and_not_contained() -> None:
    wide = score(answer(Kind.GROUP, "", "abcdefghi"), LINK)
    assert (wide.contained, wide.named, wide.abstained, wide.first) == (False, True, False, True)
    assert not score(answer(Kind.GROUP, "", "bcdefghi"), LINK).named
    assert not score(answer(Kind.MACHINE, "", "ab"), LINK).named
    assert not score(answer(Kind.GROUP, "cd", "ab"), LINK).named


def test_an_eviction_is_wrong_where_nobody_is_guilty() -> None:
    assert score(answer(Kind.MACHINE, "a", "a"), BUG).wrong
    assert not score(answer(Kind.SOFTWARE, ""), BUG).wrong
    assert not score(answer(Kind.MACHINE, "a", "a"), HOST).wrong  # a miss, counted as one
    assert score(answer(Kind.SOFTWARE, ""), BUG).top1 is None


def test_who_gives_no_kind_abstains_by_evicting_nobody() -> None:
    assert score(answer(None, ""), HOST).abstained
    assert not score(answer(None, "a", "a"), HOST).abstained
    assert score(answer(None, ""), HOST).right is None
    assert score(answer(Kind.UNDETERMINED, "", "b"), HOST).abstained
    assert score(answer(Kind.UNDETERMINED, "", "b"), HOST).top1 == 1.0


@pytest.mark.parametrize(
    ("suspects", "guilty", "count", "chance"),
    [
        (["a", "b", "c", "d"], "c", 1, 0.0),
        (["a", "b", "c", "d"], "c", 3, 1.0),
        (["a", "b", "c", "d"], "d", 3, 0.0),
        (["abcd"], "c", 1, 1 / 4),
        (["abcd"], "c", 3, 3 / 4),
        (["abcd"], "cd", 3, 1.0),
        (["abcd"], "cd", 1, 1 / 2),
        (["a", "abc"], "c", 3, 1.0),  # a machine named twice takes one place
        (["a", "bcde"], "c", 3, 2 / 4),
        ([], "c", 3, 0.0),
    ],
)
def test_the_machines_of_one_suspect_stand_in_no_order(
    suspects: list[str], guilty: str, count: int, chance: float
) -> None:
    assert among_first(suspects, set(guilty), count) == pytest.approx(chance)


def test_figures_are_counted_by_hand() -> None:
    nobody = answer(None, "")
    trials = [
        trial(HOST, answer(Kind.MACHINE, "b", "b", p=0.9), answer(None, "abcd", "abcd")),
        trial(HOST, answer(Kind.MACHINE, "ab", "a", "b", p=0.6), nobody),
        trial(HOST, answer(Kind.UNDETERMINED, "", "a", p=0.4), nobody),
        trial(LINK, answer(Kind.GROUP, "", "abcdefghi", p=0.8), answer(None, "abcd", "abcd")),
        trial(BUG, answer(Kind.SOFTWARE, ""), answer(None, "ab", "ab")),
        trial(BUG, answer(Kind.MACHINE, "c", "c", p=0.95), nobody),
    ]
    mine, peers = figures(trials, ours), figures(trials, theirs)
    assert (mine.trials, mine.contained, mine.named) == (6, 2 / 4, 1 / 4)
    assert (mine.per_fault, mine.evicted) == (3 / 2, 3 / 2)
    assert (mine.wrong, mine.silent, mine.right) == (1 / 2, 1 / 6, 4 / 6)
    assert mine.top1 == pytest.approx((1 + 0 + 0 + 2 / 9) / 4)
    assert mine.brier == pytest.approx((0.1**2 + 0.6**2 + 0.4**2 + 0.2**2 + 0.95**2) / 5)
    assert (peers.contained, peers.per_fault, peers.evicted) == (2 / 4, 8 / 3, 4)
    assert (peers.wrong, peers.silent, peers.right, peers.brier) == (1 / 2, 3 / 6, None, None)
    assert figures([], ours).contained is None


def test_bounds_are_missed_by_name_and_met_without_the_miss() -> None:
    good = trial(HOST, answer(Kind.MACHINE, "b", "b", p=0.9), answer(None, "ab", "ab"))
    bad = trial(HOST, answer(Kind.MACHINE, "abc", "a", p=0.9), answer(None, "ab", "ab"))
    wrong = trial(BUG, answer(Kind.MACHINE, "a", "a", p=0.9), answer(None, ""))
    assert {reading.name for reading in readings([good]) if not reading.met} == set()
    assert {reading.name for reading in readings([bad, wrong]) if not reading.met} == {
        "host faults, stacks: machines a fault",
        "nobody guilty: evicted wrongly",
        "host faults, no counters: machines, where both evict",
    }
    alone = trial(HOST, answer(Kind.MACHINE, "abc", "b", p=0.9), answer(None, ""))
    (beside,) = [reading for reading in readings([good, alone]) if "both evict" in reading.name]
    assert (beside.trials, beside.reached, beside.peer) == (1, 1.0, 2.0)
    silent = trial(HOST, answer(Kind.UNDETERMINED, ""), answer(None, "ab", "ab"))
    assert {reading.name for reading in readings([silent]) if not reading.met} == {
        "host faults, stacks: contained",
        "host faults, no counters: contained, beside the peer",
    }


def test_a_miss_tells_its_way_and_what_is_right_is_none() -> None:
    peers = answer(None, "ab", "ab")
    ways = [
        (HOST, answer(Kind.MACHINE, "b", "b"), ""),
        (HOST, answer(Kind.MACHINE, "abc", "b"), "evicts more than the peer"),
        (HOST, answer(Kind.MACHINE, "c", "c"), "evicts the innocent only"),
        (TWO, answer(Kind.MACHINE, "a", "a"), "contains part of it"),
        (HOST, answer(Kind.GROUP, "b", "b"), "another kind"),
        (HOST, answer(Kind.UNDETERMINED, ""), "undetermined"),
        (BUG, answer(Kind.MACHINE, "b", "b"), "evicts, and nobody is guilty"),
    ]
    for truth, mine, why in ways:
        found = [miss.why for miss in misses([trial(truth, mine, peers)])]
        assert found == ([why] if why else [])
    lost = [trial(BUG, ways[-1][1], peers, seed=seed) for seed in (3, 5)]
    (line,) = classes(misses(lost))
    assert line.split()[:2] == ["2", "mismatch"]
    assert "3@64 5@64" in line
    (line,) = classes(misses([trial(HOST, ways[2][1], peers)]))
    assert "the peer contains 1" in line and "at one place" not in line
    (line,) = classes(misses([trial(HOST, replace(ways[5][1], together=True), peers)]))
    assert "| all at one place  (" in line


def made_by_hand() -> Incident:
    """Two looks at a job of four machines in which rank 5 reads from a disk that does not answer and the rest wait."""
    topology = job(tp=2, dp=4)
    traces = look({"0-4,6-7": "metrics", "5": "disk"})
    truth = Truth("spin", "host", (Kind.MACHINE,), (Rank(5),), ("node-2",), 1)
    seen = {Evidence.STACKS: snapshot(traces, traces), Evidence.RECORDER: snapshot(traces)}
    return Incident("by hand", 7, "ddp", topology, Layout(), truth, seen)


def test_both_methods_are_asked_on_the_same_snapshots() -> None:
    first, second = judge(made_by_hand())
    assert (first.evidence, second.evidence) == (Evidence.STACKS, Evidence.RECORDER)
    assert first.ours.answer.evicted == first.theirs.answer.evicted == ("node-2",)
    assert (first.seed, first.ranks, first.guilty) == (7, 8, ("node-2",))
    assert first.ours.seconds > 0


def test_a_method_that_fails_has_no_answer_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("no ranks")

    monkeypatch.setattr("accuracy.trial.diagnose", fail)
    one = judge(made_by_hand())[0]
    assert one.ours.crash == "ZeroDivisionError: no ranks"
    assert not one.ours.score.contained
    assert one.theirs.score.contained
    assert [miss.why for miss in misses([one])] == ["crashed"]


def test_a_report_is_the_same_in_all_its_forms() -> None:
    shown = report(list(judge(made_by_hand())))
    assert shown.incidents == 1
    rows = document(shown)["tables"]["by fault and evidence"]
    assert [row["evidence"] for row in rows] == ["stacks", "+ recorder"]
    assert rows[0]["hangdog"]["contained"] == 1.0
    assert "| spin | stacks | 1 | 100 |" in markdown(shown)


TASKS: Sequence[Task] = [(seed, ranks, fault) for seed in range(40) for ranks in (64, 4096) for fault in ("gc", "link")]


def test_a_quick_run_takes_every_fault_alike_and_no_large_job() -> None:
    chosen = quick(TASKS, 20)
    assert len(chosen) == len(set(chosen)) == 20
    assert {(ranks, fault) for _, ranks, fault in chosen} == {(64, "gc"), (64, "link")}
    assert max(seed for seed, _, _ in chosen) > 30  # spread over what there is


def test_incidents_are_selected_by_every_option() -> None:
    assert select(TASKS, fault="gc", ranks=64, seeds=range(3, 5)) == [(3, 64, "gc"), (4, 64, "gc")]
    assert select(TASKS) == TASKS


def test_a_curve_counts_every_guess_once() -> None:
    guesses = [(0.0, False), (0.05, True), (0.1, False), (0.95, True), (0.951, True), (1.0, False)]
    bins = calibration.reliability(guesses)
    assert [(b.low, b.count) for b in bins] == [(0.0, 3), (0.9, 1), (0.95, 1), (0.98, 1)]
    assert bins[0].observed == pytest.approx(1 / 3)


def test_a_fit_finds_the_odds_that_guesses_were_made_with() -> None:
    """A forecaster who says 0.9 where 0.7 come true, and 0.1 where 0.3 do, is put right."""
    guesses = [(0.9, at < 700) for at in range(1000)] + [(0.1, at < 300) for at in range(1000)]
    mended = calibration.fit(guesses)
    assert mended(0.9) == pytest.approx(0.7, abs=0.01)
    assert mended(0.1) == pytest.approx(0.3, abs=0.01)
    assert calibration.isotonic(guesses) == [(0.1, 0.3), (0.9, 0.7)]
    assert calibration.error(guesses) == pytest.approx(0.2)


def test_a_fit_does_not_run_away_from_guesses_that_are_nearly_all_sure_and_right() -> None:
    sure = [(0.9999, True)] * 300 + [(0.97, False)] * 8 + [(0.97, True)] * 12 + [(0.75, False)] * 10
    mended = calibration.fit(sure)
    assert 0.5 < mended.slope < 5.0
    assert mended(0.97) == pytest.approx(0.6, abs=0.15)
    assert mended(0.9999) > 0.99


def test_a_fit_of_few_guesses_changes_little() -> None:
    assert calibration.fit([])(0.8) == pytest.approx(0.8)
    assert 0.8 < calibration.fit([(0.8, True)])(0.8) < 0.9


def test_isotonic_steps_never_fall() -> None:
    steps = calibration.isotonic([(0.2, True), (0.4, False), (0.6, True), (0.6, False), (0.9, True)])
    observed = [share for _, share in steps]
    assert observed == sorted(observed)


def test_nothing_to_run_is_no_failure() -> None:
    assert run([], 2) == []
