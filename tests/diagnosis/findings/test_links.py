"""Links that went down while the job stands: one that stays down is suspected, one that came back less so, and none is evicted for it."""

from dataclasses import replace

import pytest

from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.findings import Finding, Impact
from hangdog_models.verdict import Kind, Verdict
from support.cases.stories import job, look, snapshot

DOWN = Finding("kernel log", "link down", Impact.SUSPECTS, "a network link of the machine is down", machine="node-3")
BACK = Finding("kernel log", "link flap", Impact.PATH, "a network link was down and came back", machine="node-3")


def judged(*findings: Finding, stack: str = "item") -> Verdict:
    calls = look({"0-31": stack})
    found = replace(snapshot(calls), findings=findings)
    return diagnose(replace(found, job=replace(found.job, stalled_s=1500.0)), job(per_machine=8, dp=32))


def named(verdict: Verdict) -> float:
    return sum(one.probability for one in verdict.suspects if one.machines == ("node-3",))


@pytest.mark.parametrize("finding", [DOWN, BACK], ids=["down", "came back"])
def test_nobody_is_evicted_for_a_link(finding: Finding) -> None:
    verdict = judged(finding)
    assert verdict.evict.machines == () and named(verdict) > 0.1


def test_a_link_that_is_down_outweighs_one_that_came_back() -> None:
    down, back = judged(DOWN), judged(BACK)
    assert down.kind is Kind.GROUP and named(down) > 0.3
    assert named(down) > 1.5 * named(back)
