"""Who holds the job up, whatever the cause: one, several at once, the one awaited of a group; nobody where most of the job is."""

from dataclasses import replace

from hangdog_models.collectives import RankCounters
from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.ranks import Rank
from hangdog_models.topology import Topology
from hangdog_models.verdict import Act, Culprit, Kind, Verdict
from support.cases.stories import job, look, snapshot, twice


def behind(*late: int, topology: Topology) -> Verdict:
    """Each pair of ranks counts for itself, and these ranks are behind in theirs."""
    found = []
    for rank in range(topology.world_size):
        pair = (Rank(rank // 2 * 2), Rank(rank // 2 * 2 + 1))
        name = f"pair {pair[0]}"
        done = 6 if rank not in late else 5
        found.append(
            RankCounters(Rank(rank), {name: done + 1 if rank not in late else 5}, {name: done}, (), {name: pair}, {})
        )
    return diagnose(replace(snapshot(), counters=tuple(found)), topology)


def who(verdict: Verdict) -> Culprit:
    assert verdict.culprit is not None
    return verdict.culprit


def test_of_two_that_are_behind_alike_none_stands_for_both() -> None:
    """Whether their machines are known or not."""
    placed = job(dp=16, per_machine=1)
    for topology in (placed, replace(placed, machines={})):
        verdict = behind(4, 9, topology=topology)
        assert who(verdict).ranks == (4, 9)
        assert who(verdict).probability >= max(suspect.probability for suspect in verdict.suspects)
    verdict = behind(4, 9, topology=placed)
    assert [step.machines for step in verdict.next if step.do is Act.TEST] == [("node-4", "node-9")]


def test_one_that_is_known_stays_alone_beside_a_mere_chance_of_two() -> None:
    verdict = diagnose(twice(look({"0-4,6-7": "metrics", "5": "loader"})), job(tp=2, dp=2, pp=2))
    assert who(verdict).ranks == (5,)


def test_what_holds_most_of_the_job_up_is_nobody() -> None:
    verdict = diagnose(twice(look({"0-7": "write"})), job(dp=8, per_machine=1))
    assert verdict.culprit is None and len(verdict.suspects) in (0, 8), "naming everybody is no answer"


def test_a_verdict_is_the_likeliest_cause_where_who_it_is_is_known_and_why_is_open() -> None:
    verdict = diagnose(twice(look({"0,2": "backward", "1,3": "user"})), job(dp=4, per_machine=1))
    assert who(verdict).probability > 0.5 > verdict.confidence
    assert verdict.kind in (Kind.SOFTWARE, Kind.DEPENDENCY)
    assert [step.do for step in verdict.next][-2:] == [Act.RESTART, Act.TEST], "which tell the causes apart"
