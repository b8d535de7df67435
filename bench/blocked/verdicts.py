"""What is made of a recording of a blocked call, and what is wrong with it."""

from dataclasses import replace
from pathlib import Path

from blocked.calls import CALLS
from hangdog.evidence.open_bundle import open_bundle
from hangdog_models import topology
from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.verdict import Verdict

RECORDINGS = Path(__file__).resolve().parents[2] / "tests" / "recordings" / "blocked"
LATE = 2
#: The calls were recorded seconds after they began, and would look the same when an agent calls the job stalled. Seconds.
STALLED_S = 300.0


def judge(call: str) -> Verdict:
    snapshot, layout = open_bundle(RECORDINGS / f"{call}.tar.gz")
    snapshot = replace(snapshot, job=replace(snapshot.job, stalled_s=STALLED_S))
    return diagnose(snapshot, topology.build(layout, snapshot.highest_rank())[0])


def wrong(call: str, verdict: Verdict) -> list[str]:
    """What is wrong with a verdict, empty if nothing is."""
    found = []
    if verdict.evict.machines:
        found.append(f"evicts {', '.join(verdict.evict.machines)}")
    named = verdict.culprit.ranks if verdict.culprit else ()
    if named != (LATE,):
        found.append(f"names ranks {named}")
    if verdict.kind not in CALLS[call].right:
        found.append(f"says {verdict.kind}")
    return found
