"""Slow jobs of frameworks that no rule knows, and phases of healthy ones, which many looks may see."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from hangdog_models.diagnosis.observe.activity import NO_RULE, RankState
from hangdog_models.diagnosis.observe.canonicalise import canonicalise
from hangdog_models.diagnosis.observe.motion import Look
from hangdog_models.diagnosis.stragglers.fail_slow import NO_RULE_KNOWS, find
from hangdog_models.diagnosis.stragglers.lateness import moments
from hangdog_models.ranks import Rank
from hangdog_models.rules.ruleset import Wait, packaged
from hangdog_models.verdict import Activity, Kind
from support.cases.stories import frames, job

JOB = job(per_machine=8, tp=8, pp=2, dp=4)  # 64 ranks, 8 machines
SAVED = RankState(Activity.COLLECTIVE, Wait.GROUP, operation="barrier", label="save_checkpoint")
SAVING = RankState(Activity.CHECKPOINT, Wait.NONE, label="save")
COMPILING = RankState(Activity.COMPILE, Wait.NONE, label="compile")
TRAINING = RankState(Activity.COLLECTIVE, Wait.GROUP, operation="all_reduce", label="backward")


def unnamed(label: str, activity: Activity = Activity.COMPUTE) -> RankState:
    """A host that spins, or sleeps, at a place that no rule knows."""
    return RankState(activity, Wait.NONE, label=label, rule=NO_RULE)


def look(*places: tuple[RankState, Iterable[int]]) -> Look:
    """The first place is that of all who are at none of the others."""
    found = dict.fromkeys(map(Rank, range(64)), places[0][0])
    for state, ranks in places[1:]:
        found.update({Rank(rank): state for rank in ranks})
    return found


@pytest.mark.parametrize("activity", [Activity.COMPUTE, Activity.UNKNOWN])
def test_who_works_while_many_wait_at_places_that_no_rule_knows_is_named_and_not_evicted(activity: Activity) -> None:
    """At no place there are more than half: three places of waiters, and one rank at work."""
    places = [unnamed(name, activity) for name in ("flush", "pull", "push", "turn")]
    looks = [
        look(
            (places[at % 4], ()),
            (places[(at + 1) % 4], range(24)),
            (places[(at + 2) % 4], range(40, 60)),
            (unnamed(f"kernel {at}"), [21]),
        )
        for at in range(5)
    ]
    answer = find(looks, JOB)
    assert answer.kind is Kind.SLOW and answer.suspects[0].ranks == (21,)
    assert answer.suspects[0].probability <= 0.9 and NO_RULE_KNOWS in answer.reasons


def test_nearly_all_in_one_call_of_c_wait_there_for_who_is_elsewhere() -> None:
    """PyTorch's gradient norm reads a number back from the device: all but one rank stand in it, in one look after another."""
    norm = RankState(Activity.COMPUTE, Wait.NONE, operation="clip_grad_norm_", label="step", rule="operator", busy=True)
    loads = RankState(Activity.DATALOADER, Wait.NONE, label="advance")
    others = [(RankState(Activity.COMPUTE, Wait.NONE, label=str(at), rule="operator", busy=True)) for at in range(4)]
    turn = look(
        (others[0], range(16)), (others[1], range(16, 32)), (others[2], range(32, 48)), (others[3], range(48, 64))
    )
    answer = find([look((norm, ()), (loads, [21])), turn] * 4, JOB, rounds=8)
    assert answer.kind is Kind.SLOW and answer.suspects[0].ranks == (21,)
    assert (answer.suspects[0].late, answer.suspects[0].probability <= 0.9) == (4, True), "where all work nobody waits"
    half = [look((norm, ()), (others[1], range(32)), (loads, [41])), turn] * 4
    assert find(half, JOB, rounds=8).kind is not Kind.SLOW, "half of them may compute"


def test_the_ranks_of_one_machine_at_a_place_of_their_own_do_not_wait_there() -> None:
    looks = [look((unnamed(f"wait {at}"), ()), (unnamed("kernel"), range(16, 24))) for at in range(5)]
    answer = find(looks, JOB)
    assert answer.kind is Kind.SLOW and answer.suspects[0].machines == ("node-2",)


def test_where_rules_tell_who_waits_a_place_that_none_knows_is_work() -> None:
    """Two machines at work in the user's code: they are late, though they are at one place."""
    late = [*range(16, 24), *range(40, 48)]
    waits = [RankState(Activity.COLLECTIVE, Wait.GROUP, operation="all_reduce", label=str(at)) for at in range(5)]
    answer = find([look((waits[at], ()), (unnamed("own"), late)) for at in range(5)], JOB)
    assert {"node-2", "node-5"} == set(answer.machines) and NO_RULE_KNOWS not in answer.reasons


def test_one_checkpoint_is_one_moment_however_often_it_is_seen() -> None:
    """Writers end one by one, and the slowest is last in all looks: a disk, or more to write, and no machine that is slow."""
    left = [range(40, 64), range(44, 64), range(48, 64), range(52, 64), range(57, 64), range(59, 64), [59], [59]]
    looks = [look((SAVED, ()), (SAVING, ranks)) for ranks in left]
    assert len(moments(looks, JOB)) == 1
    answer = find([*looks, look((TRAINING, ()))], JOB, rounds=10)
    assert all(one.probability <= 0.9 for one in answer.suspects)


def test_two_that_a_long_phase_waits_for_are_no_surer_together_than_one_may_be() -> None:
    looks = [look((SAVED, ()), (SAVING, [13, 58])) for _ in range(9)]
    answer = find([*looks, look((TRAINING, ()))], JOB, rounds=10)
    assert sum(answer.machines.values()) <= 0.9


def test_who_compiles_longer_than_others_is_not_slow() -> None:
    waits = [RankState(Activity.COLLECTIVE, Wait.GROUP, operation="all_reduce", label=str(at)) for at in range(5)]
    answer = find([look((waits[at], ()), (COMPILING, [37])) for at in range(5)], JOB)
    assert not answer.suspects


def test_a_capture_that_failed_frees_nobody() -> None:
    gone = RankState(Activity.MISSING, Wait.NONE)
    assert len(moments([look((SAVED, ())), look((SAVED, ()), (gone, range(8)))], JOB)) == 1


def test_waits_of_one_library_that_different_calls_lead_to_are_different_moments() -> None:
    calls = [canonicalise(frames(["<module> own.py", f"turn_{at} own.py", "hold lib.py"]), packaged()) for at in (0, 1)]
    looks = [look((replace(unnamed("hold"), signature=signature), ())) for signature in calls]
    assert len(moments(looks, JOB)) == 2
    assert len(moments([looks[0], looks[0]], JOB)) == 1
