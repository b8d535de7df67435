"""What on-call engineers read of jobs that hung for real and were recorded: on a server, and from a folder without one."""

import asyncio
import itertools
from dataclasses import replace
from pathlib import Path

import pytest

from hangdog_models.actions.caps import Mode
from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.diagnosis.verdict.conclude import conclude
from hangdog_models.verdict import Kind
from hangdog_server.actions.backends.actions_config import ActionsConfig
from hangdog_server.actions.backends.exclude_file import ExcludeFile
from hangdog_server.incidents import session_writer
from support.cases.goldens import Desk, differing, entry, typed_here
from support.servers.cast import NOON, PATIENT, stage
from support.servers.cast_acting import WIDE
from support.servers.recorded import CORPUS, NO_CORPUS, RECORDED, Played, Recorded, played

GOLDEN = Path(__file__).parent / "golden" / "recorded"
pytestmark = [
    pytest.mark.skipif(not CORPUS.is_dir(), reason=NO_CORPUS),
    pytest.mark.usefixtures("eighty_columns_of_utc"),
]
#: What is typed of each job, once a verdict is there, with the exit status; each is a golden file of its first word, or `NAME:`.
TYPED = (
    ("show INCIDENT", 1),
    ("why GUILTY", 1),
    ("ranks INCIDENT", 0),
    ("rank: ranks INCIDENT --rank RANK", 0),
    ("stacks INCIDENT RANK", 0),
    ("diff INCIDENT RANK OTHER", 0),
    ("tree INCIDENT", 0),
)
#: What is typed of one job beside that: what the commands tell that list, and follow.
LISTS = (
    ("jobs", 0),
    ("incidents", 0),
    ("watch INCIDENT", 1),
    ("why-another: why ANOTHER", 0),
    ("machines", 0),
    ("machine: machines GUILTY", 0),
    ("ledger", 0),
    ("ledger-of-one: ledger GUILTY", 0),
    ("actions INCIDENT", 0),
    ("bundle INCIDENT -o OUT", 0),
    ("report", 0),
    ("approve INCIDENT", 0),
)
#: The job of which everything is typed: one whose machine is to be isolated. Its guilty rank left no stack to compare.
WHOLE = "stopped"
JOBS = {**RECORDED, WHOLE: Recorded("sigstop", 2)}
#: Of the same width as the names made at random.
SHOWN = {"INCIDENT": "3fa9c2d4e5f6", "OUT": "hang-of-noon", "TOPOLOGY": "job.toml"}
ONE_LINE = ("bundle", "watch")


async def judged(desk: Desk, job: Played) -> str:
    """What the golden file of the snapshot that was asked for does not hold; its verdict waits for somebody then."""
    looks = f"--rounds {len(job.snapshot.rounds)}"
    line = f"snapshot --job JOB --topology TOPOLOGY {looks} --why 'no step for 10 minutes'"
    wrong, _ = await asyncio.gather(desk.differs(line, 1), job.answer())
    (latest,) = await desk.on.store.latest(job.snapshot.job.id, 1)
    desk.made["INCIDENT"] = latest.id
    if conclude(job.recorded.case()).evict.machines:
        await desk.until(latest.id, "waiting")
    return wrong


def names(job: Played, folder: Path) -> dict[str, str]:
    """What words of the command lines stand for."""
    guilty = job.recorded.guilty
    machine = {int(rank): name for name, ranks in job.shape.machines.items() for rank in ranks}
    other = min(machine.keys() - {guilty})
    said = {"JOB": job.snapshot.job.id, "RANK": str(guilty), "OTHER": str(other)}
    said |= {"GUILTY": machine[guilty], "ANOTHER": machine[other]}
    return said | {"OUT": str(folder / "out"), "TOPOLOGY": str(job.recorded.path / "job.toml")}


@pytest.mark.parametrize("name", JOBS)
async def test_each_command_tells_a_recorded_job_as_its_golden_file_does(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # else the report depends on whether a second has passed until it is asked for, which is when the job is first written
    monkeypatch.setattr(session_writer, "TICK_S", 3600.0)
    ticks = itertools.count()
    does = ActionsConfig(Mode.APPROVE, WIDE, (ExcludeFile(tmp_path / "excluded"),), tmp_path / "stop")
    async with (
        stage(
            tmp_path / "s.db",
            diagnose,
            replace(PATIENT, returned_s=0.0),
            clock=lambda: NOON + next(ticks) / 1e6,
            does=does,
        ) as on,
        played(on, JOBS[name]) as job,
        on.agent("spare-0") as spare,
    ):
        await spare.hello()  # else nothing could take the place of whoever is isolated, and a bound forbids it
        made = names(job, tmp_path)
        desk = Desk(on, GOLDEN / name, {**made, **SHOWN}, ONE_LINE, made)
        wrong = [await judged(desk, job)]
        suspected = conclude(job.recorded.case()).kind is Kind.MACHINE
        typed = (*(line for line in TYPED if not line[0].startswith("diff")), *LISTS) if name == WHOLE else TYPED
        for asked, status in typed:
            status = 0 if asked == "why GUILTY" and not suspected else status  # nothing speaks against it now
            wrong.append(await desk.differs(asked, status))
        assert not any(wrong), "\n".join(wrong)


@pytest.mark.parametrize("name", JOBS)
def test_a_folder_of_a_recorded_job_is_told_as_its_golden_file_has_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    JOBS[name].copied(tmp_path / "hang-of-noon")
    wrong = []
    for file, line in {"triage": "triage ./hang-of-noon", "explain": "triage ./hang-of-noon --explain"}.items():
        wrong.append(differing(GOLDEN / name / f"{file}.txt", entry(line, typed_here(line, 1))))
    assert not any(wrong), "\n".join(wrong)
