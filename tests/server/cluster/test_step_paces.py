"""The time of a step, from an agent's words to the strip: of a job's own machines, the middle one, and while it makes steps."""

import asyncio
import math
from dataclasses import replace
from pathlib import Path

import pytest

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.owner import UNKNOWN, Owner, OwnerKind
from hangdog_models.planning.slowdown import StepPace
from hangdog_proto.codec import step_report
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_server.cluster import job_activity
from hangdog_server.cluster.step_paces import LEAST_S, STEPS, StepPaces
from hangdog_server.incidents import stall_watch
from support.servers.browsed import browsed
from support.servers.cast import PATIENT, cluster


def test_the_middle_machine_tells_and_those_that_are_gone_do_not() -> None:
    kept = StepPaces()
    for machine, step_s in (("a", 1.0), ("b", 1.5), ("c", 9.0)):
        kept.note(machine, {"job": StepPace(step_s, 0.0)}, 100.0)
    assert kept.step_s(100.0) == {"job": 1.5}
    kept.forget("c")
    kept.forget("b")
    assert kept.step_s(100.0) == {"job": 1.0}


def test_a_job_that_makes_no_step_any_more_has_no_pace() -> None:
    kept = StepPaces()
    kept.note("a", {"quick": StepPace(1.0, 5.0), "slow": StepPace(100.0, 5.0)}, 100.0)
    assert kept.step_s(100.0 + LEAST_S - 5) == {"quick": 1.0, "slow": 100.0}
    assert kept.step_s(101.0 + LEAST_S - 5) == {"slow": 100.0}
    assert kept.step_s(101.0 + STEPS * 100.0) == {}


def test_a_pace_is_read_back_and_what_cannot_be_is_not_believed() -> None:
    owner = Owner(OwnerKind.SLURM, "77", 1000)
    packed = step_report.pack({"k": StepPace(2.5, 1.0), "other": StepPace(3.0, 0.0)}, {"k": ("job", owner)})
    assert step_report.unpack(packed) == {("job", owner): StepPace(2.5, 1.0), ("other", UNKNOWN): StepPace(3.0, 0.0)}
    for wrong in (math.nan, math.inf, -1.0, 1e12):
        with pytest.raises(UnreadableEvidence):
            step_report.unpack(pb.StepReport(jobs=[pb.JobPace(job="job", step_s=wrong)]))
    with pytest.raises(UnreadableEvidence):
        step_report.unpack(pb.StepReport(jobs=[pb.JobPace(job=str(at)) for at in range(257)]))


async def test_a_job_s_card_shows_how_it_moves_and_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stall_watch, "TICK_S", 0.02)
    monkeypatch.setattr(job_activity.JobActivity, "due", lambda self, now: True)
    async with (
        browsed(tmp_path / "s.db", settings=replace(PATIENT)) as site,
        cluster(site.on, a=[0, 1], b=[2, 3]) as two,
    ):
        for agent, step_s in zip(two, (2.0, 2.5), strict=True):
            await agent.say(
                step_report=step_report.pack({"llama": StepPace(step_s, 0.0), "foreign": StepPace(1.0, 0.0)}, {})
            )
        async with asyncio.timeout(60):
            while "a step takes 2.5 s" not in (page := (await site.http.get("/")).text):
                await asyncio.sleep(0.05)
        assert "none of its 4 ranks" in page and page.count('class="activity"') == 1 and 'class="steps"' in page
