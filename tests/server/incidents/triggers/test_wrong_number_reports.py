"""Wrong numbers that agents tell: one incident a job however many ranks and machines, kept before it is acknowledged, and no machine touched."""

import asyncio
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from hangdog_models.actions.caps import Mode
from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.findings import Finding, Impact
from hangdog_models.incident import CRASHED_WHY, NUMBERS_WHY, SUSPECTED_WHY, Incident, IncidentState
from hangdog_models.numbers.wrong_number import Quantity, WrongNumber
from hangdog_models.ranks import Rank
from hangdog_models.verdict import Act, Kind, Verdict, from_json
from hangdog_models.views.first_line import headline
from hangdog_proto.codec import findings, wrong_numbers
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_server.actions.backends.actions_config import ActionsConfig
from hangdog_server.actions.backends.exclude_file import ExcludeFile
from hangdog_server.incidents.replay import StoredRound
from hangdog_server.incidents.replay import replay as replayed
from hangdog_server.web.incident_page import incident_page
from support.servers.cast import NOON, PATIENT, Listener, Stage, stage
from support.servers.cast_acting import WIDE
from support.servers.spooled import handed_over, judged
from support.worded import names

#: One that waits for no other machine, and one that waits for longer than any test.
AT_ONCE, LATER = replace(PATIENT, crash_s=0.2), replace(PATIENT, crash_s=300.0)
NAN = WrongNumber(Rank(3), Quantity.GRAD_NORM, math.nan, 1.25, 0.0, 40, "step: 40 loss: 2.1 grad_norm: nan")
LOST = Finding("NVML", "GPU lost", Impact.CONVICTS, "the driver has lost it", device="0000:1b:00.0", age_s=1.0)


def report(
    ranks: Sequence[int], numbers: Sequence[WrongNumber], *found: Finding, age_s: float = 8.0, name: str = ""
) -> pb.Spooled:
    """What the machine with these ranks of a job of 4 tells, the first wrong number so long ago."""
    capture = pb.Capture(numbers=wrong_numbers.pack(numbers), findings=findings.pack(found))
    job, name = pb.LocalJob(job="llama", ranks=ranks, world_size=4), name or f"n{age_s:g}-{ranks[0]}"
    return pb.Spooled(
        id=name, stall=name, job=job, captured=pb.Captured(last=True, capture=capture), rounds=1, age_s=age_s,
        why=numbers[0].message if numbers else "x", numbers=True, stood_s=7.0,
    )  # fmt: skip


OF_B = report((2, 3), (NAN, replace(NAN, rank=Rank(2), step=41, at_s=1.0)))
OF_A = report((0, 1), [replace(NAN, rank=Rank(rank), step=41) for rank in (0, 1)], age_s=7.0)


async def verdict_of(on: Stage, incident: Incident) -> Verdict:
    return from_json(json.loads((await on.store.find(incident.id)).verdict))


async def test_numbers_of_two_machines_are_one_incident_that_names_the_first_rank_and_evicts_nobody(
    tmp_path: Path,
) -> None:
    async with stage(tmp_path / "s.db", diagnose, LATER) as on, on.agent("a") as a, on.agent("b") as b:
        await a.hello()
        assert (await b.hello()).numbers
        assert await handed_over(a, OF_A) == [""]
        (waiting,) = await on.store.latest("", 9)
        assert waiting.state is IncidentState.RECORDED
        assert waiting.why.startswith(NUMBERS_WHY)
        assert names(waiting.why, "gradient norm", "NaN", "step 41", "1.25")
        assert await handed_over(b, OF_B) == [""]
        (incident,) = await judged(on)
        verdict = await verdict_of(on, incident)
        assert verdict.kind is Kind.UNDETERMINED and not incident.evict
        assert [step.do for step in verdict.next] == [Act.TEST, Act.ASK_PEOPLE] and verdict.next[0].machines == ("b",)
        assert verdict.numbers is not None and (verdict.numbers.rank, verdict.numbers.step) == (3, 40)
        assert names(headline(verdict), "first at rank 3", "on b")
        assert incident.began == NOON - 7.0, "of the first report"
        asked, captures = await on.store.recall(incident.id)
        again = replayed("llama", asked, (StoredRound(one.machine, one.round, one.packed) for one in captures))
        assert {(one.rank, one.step) for one in again.snapshot.numbers} == {(0, 41), (1, 41), (2, 41), (3, 40)}
        page = incident_page(verdict, None)
    heading = page[page.index("<h1") : page.index("</div>", page.index("<h1"))]
    assert names(heading, "gradient norm", "NaN", "step 40", "first at rank 3", "on b", "test b")
    assert "the job up" not in page


async def test_the_same_report_is_kept_once_and_a_later_one_of_another_machine_has_it_judged_anew(
    tmp_path: Path,
) -> None:
    async with stage(tmp_path / "s.db", diagnose, AT_ONCE) as on, on.agent("a") as a, on.agent("b") as b:
        await a.hello()
        await b.hello()
        assert await handed_over(a, OF_A, OF_A) == ["", ""]
        (first,) = await judged(on)
        assert (await verdict_of(on, first)).numbers == replace(
            (await verdict_of(on, first)).numbers or pytest.fail("no numbers"), rank=None
        )
        assert await handed_over(b, OF_B) == [""]
        async with asyncio.timeout(30):
            while (numbers := (await verdict_of(on, first)).numbers) is None or numbers.rank != 3:
                await asyncio.sleep(0.05)
        assert len(await on.store.latest("", 9)) == 1


async def test_what_a_machine_says_of_others_or_of_no_number_is_not_believed(tmp_path: Path) -> None:
    listener = Listener()
    async with stage(tmp_path / "s.db", listener, AT_ONCE) as on, on.agent("b") as b:
        await b.hello()
        odd = replace(NAN, rank=Rank(0), sound=(Rank(1), Rank(2)))
        lies = report((2, 3), (NAN, odd))
        lies.captured.capture.numbers.extend(
            [
                pb.WrongNumber(rank=3, quantity="loss", median=math.nan),
                pb.WrongNumber(rank=3, quantity="loss", after_s=1e9),
                pb.WrongNumber(rank=3, quantity="horoscope"),
            ]
        )
        lies.captured.capture.numbers[0].at_s = 5.0
        empty, crash = report((2, 3), (), name="empty"), report((2, 3), (NAN,), name="crash")
        crash.crash = True
        refused = await handed_over(b, empty, crash)
        assert names(refused[0], "wrong numbers", "none") and refused[1]
        assert await handed_over(b, lies) == [""]
        await judged(on)
        assert listener.snapshot is not None and listener.snapshot.job.stalled_s is None
        assert [(one.rank, one.at_s, one.sound) for one in listener.snapshot.numbers] == [
            (3, NOON - 8.0, ()),
            (None, NOON - 8.0, (2,)),
        ]


async def test_what_was_kept_when_the_server_ended_is_judged_by_the_next_one_and_told_once(tmp_path: Path) -> None:
    async with stage(tmp_path / "s.db", diagnose, LATER) as on, on.agent("b") as b:
        await b.hello()
        assert await handed_over(b, OF_B) == [""]
        assert [one.state for one in await on.store.latest("", 9)] == [IncidentState.RECORDED]
    async with stage(tmp_path / "s.db", diagnose, AT_ONCE) as on, on.agent("b") as b:
        await b.hello()
        (incident,) = await judged(on)
        assert await handed_over(b, OF_B) == [""]  # its receipt was lost
        await asyncio.sleep(0.5)
        assert [one.id for one in await judged(on)] == [incident.id]


@pytest.mark.parametrize(("mode", "state"), [(Mode.AUTO, "waiting"), (Mode.DRY_RUN, "dry-run"), (Mode.OBSERVE, "")])
async def test_where_a_finding_convicts_a_machine_a_person_decides_for_the_job_may_run_on(
    tmp_path: Path, mode: Mode, state: str
) -> None:
    does = ActionsConfig(mode, WIDE, (ExcludeFile(tmp_path / "excluded"),), tmp_path / "stop")
    async with stage(tmp_path / "s.db", diagnose, AT_ONCE, does=does) as on, on.agent("a") as a, on.agent("b") as b:
        await a.hello(llama=[2, 3])
        await b.hello()  # it can stand in
        told = report((2, 3), (NAN,), LOST)
        told.boot = "start of a"
        assert await handed_over(a, told) == [""]
        (incident,) = await judged(on)
        assert incident.evict == ("a",) and incident.kind == Kind.MACHINE
        await asyncio.sleep(1.5)

        def asked() -> list[str]:
            with on.client() as client:
                return [one.state for one in client.actions(incident.id).lines]

        assert await asyncio.to_thread(asked) == ([state] if state else [])
        assert not (tmp_path / "excluded").exists() or "a" not in (tmp_path / "excluded").read_text()


async def test_numbers_without_a_finding_touch_no_machine_even_in_mode_auto(tmp_path: Path) -> None:
    does = ActionsConfig(Mode.AUTO, WIDE, (ExcludeFile(tmp_path / "excluded"),), tmp_path / "stop")
    async with stage(tmp_path / "s.db", diagnose, AT_ONCE, does=does) as on, on.agent("a") as a, on.agent("b") as b:
        await a.hello(llama=[2, 3])
        await b.hello()
        assert await handed_over(a, report((2, 3), (replace(NAN, sound=(Rank(2),)),))) == [""]
        await judged(on)
        await asyncio.sleep(1.0)
        with on.client() as client:
            assert not await asyncio.to_thread(lambda: client.actions("").lines)


async def test_a_crash_after_it_is_another_incident_that_names_it_and_a_hang_is_not_taken_for_it(
    tmp_path: Path,
) -> None:
    async with stage(tmp_path / "s.db", diagnose, AT_ONCE) as on, on.agent("b") as b:
        await b.hello()
        assert await handed_over(b, OF_B) == [""]
        (numbers,) = await judged(on)
        exits = [pb.Exit(rank=rank, status=1, ran_s=600.0) for rank in (2, 3)]
        captured = pb.Captured(last=True, capture=pb.Capture(exits=exits))
        job = pb.LocalJob(job="llama", ranks=[2, 3], world_size=4)
        crash = pb.Spooled(
            id="c", stall="c", job=job, captured=captured, rounds=1, age_s=1.0, why="rank 2 ended", crash=True
        )
        assert await handed_over(b, crash) == [""]
        found = await judged(on, 2)
        (fell,) = [one for one in found if one.id != numbers.id]
        assert fell.why.startswith(f"{CRASHED_WHY} rank 2 ended")
        assert names(fell.why, "numbers were wrong", numbers.id)
        assert not [one for one in found if one.why.startswith(SUSPECTED_WHY)]
        hang = pb.Spooled(
            id="h", stall="h", job=job, captured=pb.Captured(last=True), rounds=1, age_s=2.0, why="it stands still"
        )
        assert await handed_over(b, hang) == [""]
        assert len(await on.store.latest("", 9)) == 3
