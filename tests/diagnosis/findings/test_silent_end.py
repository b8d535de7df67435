"""Who is killed leaves no last word: where all others lost a connection, the one that says nothing ended first."""

from dataclasses import replace

import pytest

from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.findings import Finding, Impact
from hangdog_models.ranks import Rank
from hangdog_models.verdict import Act, Kind, Verdict
from support.cases.stories import job, look, snapshot

FOUR = job(dp=4, per_machine=1)
LOST = [
    Finding("log", "connection lost", Impact.VICTIM, "the other end went away", rank=Rank(rank)) for rank in range(4)
]


def judged(*found: Finding, stacks: bool = False) -> Verdict:
    story = snapshot(look({"0-3": "gather"})) if stacks else snapshot()
    return diagnose(replace(story, findings=found), FOUR)


def test_the_one_that_says_nothing_ended_first_and_nobody_is_evicted() -> None:
    """Recorded with Ignite and mmengine: one rank was killed, and the logs of the three others end in gloo's words."""
    verdict = judged(LOST[0], LOST[1], LOST[3])
    assert verdict.culprit is not None and verdict.culprit.ranks == (2,)
    assert (verdict.kind, verdict.evict.machines) == (Kind.UNDETERMINED, ())
    assert verdict.crash is not None and verdict.crash.rank == 2
    assert verdict.next[0].do is Act.COLLECT


@pytest.mark.parametrize(
    "found",
    [
        LOST,
        LOST[:2],
        [*LOST[:3], Finding("log", "ValueError", Impact.PROGRAM, "the program ended with ValueError", rank=Rank(1))],
        [*LOST[:3], Finding("kernel log", "Xid 79", Impact.CONVICTS, "the GPU fell off the bus", machine="node-0")],
    ],
    ids=["all say it", "two say nothing", "an error of its own", "a broken device"],
)
def test_with_other_words_the_silent_one_is_not_named_for_its_silence(found: list[Finding]) -> None:
    verdict = judged(*found)
    assert verdict.crash is None or verdict.crash.rank != 3


def test_with_stacks_the_job_has_not_ended() -> None:
    assert judged(*LOST[:3], stacks=True).crash is None
