"""Wrong numbers as people read them, in a terminal: which number, since when, whose was first, and that nobody is evicted for it."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.numbers.wrong_number import Quantity, WrongNumber
from hangdog_models.ranks import Rank
from hangdog_proto.codec import wrong_numbers
from hangdog_proto.generated import hangdog_pb2 as pb
from support.cases.goldens import Desk
from support.servers.cast import NOON, PATIENT, stage
from support.servers.spooled import handed_over, judged

GOLDEN = Path(__file__).parent / "golden" / "numbers"
NAN = WrongNumber(Rank(3), Quantity.GRAD_NORM, math.nan, 1.25, 0.0, 40, "step 40, loss 2.1, grad norm nan")
LATER = tuple(replace(NAN, rank=Rank(rank), step=41, line="step 41, loss nan, grad norm nan") for rank in range(3))
SPIKE = WrongNumber(None, Quantity.LOSS, 31.5, 2.25, 0.0, 700, "step 700, lm loss 31.5")


def report(*numbers: WrongNumber) -> pb.Spooled:
    """What the machine of all four ranks tells."""
    captured = pb.Captured(last=True, capture=pb.Capture(numbers=wrong_numbers.pack(numbers)))
    job = pb.LocalJob(job="llama", ranks=[0, 1, 2, 3], world_size=4)
    why = f"rank 3: {NAN.message}" if numbers[0] is NAN else numbers[0].message
    return pb.Spooled(id="n", stall="n", job=job, captured=captured, rounds=1, age_s=8.0, why=why, numbers=True)


@pytest.mark.usefixtures("eighty_columns_of_utc")
@pytest.mark.parametrize(("name", "message"), [("first", report(NAN, *LATER)), ("spike", report(SPIKE))])
async def test_wrong_numbers_read_like_such(tmp_path: Path, name: str, message: pb.Spooled) -> None:
    settings = replace(PATIENT, crash_s=0.2)
    async with stage(tmp_path / "s.db", diagnose, settings, clock=lambda: NOON) as on, on.agent("b") as b:
        await b.hello()
        assert await handed_over(b, message) == [""]
        (incident,) = await judged(on)
        desk = Desk(on, GOLDEN, {"INCIDENT": "3fa9c2d4e5f6"}, made={"INCIDENT": incident.id})
        wrong = [await desk.differs(f"{name}: show INCIDENT", 2), await desk.differs(f"{name}-listed: incidents")]
        assert not any(wrong), "\n".join(wrong)
