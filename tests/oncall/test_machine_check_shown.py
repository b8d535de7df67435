"""A machine check as people read it, in a terminal and on its page: which machine, what was found, and that nothing is done by itself."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from hangdog.output.times import local_time
from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.findings import Finding, Impact
from hangdog_models.verdict import from_json
from hangdog_proto.codec import findings
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_server.web.incident_page import incident_page
from support.cases.goldens import Desk
from support.servers.cast import NOON, PATIENT, stage
from support.servers.spooled import judged

GOLDEN = Path(__file__).parent / "golden" / "checked"
LOST = Finding(
    "NVML", "GPU lost", Impact.CONVICTS, "the driver has lost it (NVML code 15)", device="0000:1b:00.0", age_s=1.0
)


@pytest.mark.usefixtures("eighty_columns_of_utc")
@pytest.mark.parametrize(("name", "ranks"), [("job", [0, 1]), ("idle", [])])
async def test_a_machine_check_reads_like_one(tmp_path: Path, name: str, ranks: list[int]) -> None:
    settings = replace(PATIENT, check_settle_s=0.1)
    async with stage(tmp_path / "s.db", diagnose, settings, clock=lambda: NOON) as on, on.agent("gpu-a17") as agent:
        await (agent.hello(llama=ranks) if ranks else agent.hello())
        await agent.say(health=pb.Health(findings=findings.pack([LOST])))
        (incident,) = await judged(on)
        began = local_time(incident.began).split()[1]  # earlier than noon by as long as it was waited for
        made = {"INCIDENT": incident.id, "BEGAN": began}
        desk = Desk(on, GOLDEN, {"INCIDENT": "3fa9c2d4e5f6", "BEGAN": "08:00:00"}, made=made)
        await desk.proposed(incident)
        wrong = [await desk.differs(f"{name}: show INCIDENT", 1), await desk.differs(f"{name}-listed: incidents")]
        assert not any(wrong), "\n".join(wrong)
        page = incident_page(from_json(json.loads((await on.store.find(incident.id)).verdict)), None)
    heading = page[page.index("<h1") : page.index("</div>", page.index("<h1"))]
    assert "gpu-a17 is at fault: GPU lost" in heading and "Evict gpu-a17." in heading
    assert "holds the job up" not in page
