"""Who is killed leaves no last word: where all others lost a connection, the one that says nothing ended first."""

from dataclasses import replace
from pathlib import Path

import pytest

from hangdog.evidence.open_bundle import open_bundle
from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.findings import Finding, Impact
from hangdog_models.ranks import Rank
from hangdog_models.snapshot import Account
from hangdog_models.topology import build
from hangdog_models.verdict import Act, Kind, Verdict
from support.cases.stories import job, look, snapshot

FOUR = job(dp=4, per_machine=1)
LOST = [
    Finding("log", "connection lost", Impact.VICTIM, "the other end went away", rank=Rank(rank)) for rank in range(4)
]


def judged(*found: Finding, stacks: bool = False, quiet: tuple[Rank, ...] = (Rank(2), Rank(3))) -> Verdict:
    story = snapshot(look({"0-3": "gather"})) if stacks else snapshot()
    return diagnose(replace(story, findings=found, account=Account(quiet=quiet)), FOUR)


def test_the_one_that_says_nothing_ended_first_and_nobody_is_evicted() -> None:
    """Recorded with Ignite and mmengine: one rank was killed, and the logs of the three others end in gloo's words."""
    verdict = judged(LOST[0], LOST[1], LOST[3])
    assert verdict.culprit is not None and verdict.culprit.ranks == (2,)
    assert (verdict.kind, verdict.evict.machines) == (Kind.UNDETERMINED, ())
    assert verdict.crash is not None and verdict.crash.rank == 2
    assert verdict.next[0].do is Act.COLLECT


def test_a_log_that_is_not_there_tells_nothing() -> None:
    assert judged(LOST[0], LOST[1], LOST[3], quiet=()).crash is None


@pytest.mark.parametrize("name", ["rank2.log", "", "other/rank2.log"])
def test_whether_its_log_is_there_is_read_off_the_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / "job.toml").write_text("[job]\nworld_size = 4\n")
    for rank in (0, 1, 3):
        words = f"[rank{rank}]: RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.7]:2937"
        (tmp_path / f"rank{rank}.log").write_text(f"Traceback (most recent call last):\n{words}\n")
    if name:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("step 7 of 9\n")
    story, layout = open_bundle(tmp_path)
    verdict = diagnose(story, build(layout, story.highest_rank())[0])
    assert (verdict.culprit is not None and verdict.culprit.ranks == (2,)) == bool(name)


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
