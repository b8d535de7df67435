"""A crash as people read it, in a terminal and on its page: who failed first, how, where, and what to do."""

import html
import json
from dataclasses import replace
from pathlib import Path

import pytest

from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.findings import Finding, Impact
from hangdog_models.ranks import Rank
from hangdog_models.verdict import from_json
from hangdog_proto.codec import findings
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_server.web.incident_page import incident_page
from support.cases.goldens import Desk
from support.servers.cast import NOON, PATIENT, stage
from support.servers.spooled import handed_over, judged

GOLDEN = Path(__file__).parent / "golden" / "crashed"
ERROR = Finding(
    "log", "ValueError", Impact.PROGRAM, "the program ended with ValueError: labels run from 1", rank=Rank(3)
)
BROKEN = Finding("log", "CUDA uncorrectable ECC", Impact.CONVICTS, "an uncorrectable memory error", rank=Rank(3))


def crash(first: int, *said: Finding) -> pb.Spooled:
    """Rank 3 of 4 ended with that status, and what it said; 0.4 s later the others of its machine did."""
    exits = [pb.Exit(rank=3, status=first, ran_s=60.0)]
    exits += [pb.Exit(rank=rank, status=1, after_s=0.4, ran_s=60.0) for rank in (0, 1, 2)]
    captured = pb.Captured(last=True, capture=pb.Capture(exits=exits, findings=findings.pack(said)))
    job = pb.LocalJob(job="llama", ranks=[0, 1, 2, 3], world_size=4)
    why = "rank 3: it ended; 3 other ranks ended as well"
    return pb.Spooled(id="c", stall="c", job=job, captured=captured, rounds=1, age_s=8.0, why=why, crash=True)


@pytest.mark.usefixtures("eighty_columns_of_utc")
@pytest.mark.parametrize(
    ("name", "report", "status", "answer", "order"),
    [
        (
            "exception",
            crash(1, ERROR),
            1,
            "rank 3 on b failed first with ValueError",
            "Evict nobody: look at the code.",
        ),
        ("device", crash(1, BROKEN), 1, "rank 3 on b failed first with CUDA uncorrectable ECC", "Evict b."),
        ("signal", crash(-11), 1, "rank 3 on b failed first by SIGSEGV", "Evict nobody: look at the code."),
        ("killed", crash(-9), 2, "rank 3 on b failed first by SIGKILL", "Don't remove anything yet: ask the job"),
    ],
)
async def test_a_crash_reads_like_one(
    tmp_path: Path, name: str, report: pb.Spooled, status: int, answer: str, order: str
) -> None:
    settings = replace(PATIENT, crash_s=0.2)
    async with stage(tmp_path / "s.db", diagnose, settings, clock=lambda: NOON) as on, on.agent("b") as b:
        await b.hello()
        assert await handed_over(b, report) == [""]
        (incident,) = await judged(on)
        desk = Desk(on, GOLDEN, {"INCIDENT": "3fa9c2d4e5f6"}, made={"INCIDENT": incident.id})
        await desk.proposed(incident)
        wrong = [await desk.differs(f"{name}: show INCIDENT", status), await desk.differs(f"{name}-listed: incidents")]
        assert not any(wrong), "\n".join(wrong)
        page = incident_page(from_json(json.loads((await on.store.find(incident.id)).verdict)), None)
    heading = page[page.index("<h1") : page.index("</div>", page.index("<h1"))]
    assert answer in heading and order in html.unescape(heading) and "holds the job up" not in page
