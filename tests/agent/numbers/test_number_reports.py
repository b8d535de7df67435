"""The wrong numbers of this machine's jobs: one report of each episode, with whose they are and who was sound."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from hangdog_agent.discovery.discover import Key, Process, ProcessRole, RankProcesses
from hangdog_agent.discovery.watch import jobs
from hangdog_agent.job_report import JobReport
from hangdog_agent.numbers.log_numbers import LogNumbers, followed
from hangdog_agent.numbers.number_reports import AGAIN_S, NumberReports
from hangdog_models.findings import Finding, Impact
from hangdog_models.numbers.number_watch import USUAL
from hangdog_models.ranks import Rank
from hangdog_proto.generated import hangdog_pb2 as pb

LOST = Finding("NVML", "GPU lost", Impact.CONVICTS, "the driver has lost it", age_s=1.0)
SETTLE_S = 4.0


def trainer(rank: int, job: str = "llama") -> RankProcesses:
    process = Process(100 + rank, 1, 7, "S", "python", python=True)
    return RankProcesses(job, Rank(rank), ProcessRole.TRAINER, process, world_size=8)


@dataclass
class Machine:
    """Ranks 0 to 3 of a job, and their logs: one each, or one of all of them."""

    shared: bool = False
    members: list[RankProcesses] = field(default_factory=lambda: [trainer(rank) for rank in range(4)])
    reports: NumberReports = field(default_factory=lambda: NumberReports(SETTLE_S, lambda: (LOST,)))
    now: float = 1000.0

    def __post_init__(self) -> None:
        keys = [one.process.key for one in self.members]
        writers = [frozenset(keys)] if self.shared else [frozenset([key]) for key in keys]
        self.logs: list[tuple[frozenset[Key], LogNumbers]] = [(one, followed(USUAL)) for one in writers]

    def step(self, number: int, values: Sequence[float], prefix: str = "") -> None:
        """What each rank logs of one step, a second after the one before."""
        self.now += 1.0
        for rank, value in enumerate(values):
            line = f"{prefix.format(rank)}step: {number}  loss: 2.0  grad_norm: {value}\n"
            self.logs[0 if self.shared else rank][1].take(line, True, self.now)

    def look(self, after_s: float = 0.0) -> list[JobReport]:
        self.now += after_s
        return self.reports.look(self.logs, self.members, jobs(tuple(self.members)), self.now)

    def fails(self, guilty: int | None = 2, first: int = 31, prefix: str = "") -> list[JobReport]:
        """Thirty sound steps, then the guilty rank's number is NaN, and a step later everybody's."""
        for number in range(1, first + 6):
            bad = [number >= first if rank == guilty else number > first for rank in range(4)]
            self.step(number, [math.nan if one else 1.0 for one in bad], prefix)
        assert not self.look(), "other ranks may log theirs"
        return self.look(SETTLE_S)


def numbers(report: JobReport) -> list[tuple[int | None, int]]:
    """Rank and step of each number, as it is sent."""
    sent = report.message.captured.capture.numbers
    return [(one.rank if one.HasField("rank") else None, one.step) for one in sent]


def test_numbers_of_all_ranks_are_one_report_the_first_one_first() -> None:
    (report,) = Machine().fails()
    assert numbers(report) == [(2, 31), (0, 32), (1, 32), (3, 32)]
    message = report.message
    assert message.numbers and not message.crash and message.captured.last and message.rounds == 1
    assert re.match(r"rank 2: .*gradient norm.* NaN .*\bstep 31\b.* 1 .*\b3 other ranks ", message.why)
    assert [one.code for one in message.captured.capture.findings] == ["GPU lost"]
    assert report.at == pytest.approx(1031.0), "when the first NaN was read"


def test_it_waits_for_the_other_ranks_and_is_told_once() -> None:
    machine = Machine()
    for number in range(1, 60):
        machine.step(number, [math.nan if number > 30 else 1.0] * 4)
        if number < 36:
            assert not machine.look()
    assert len(machine.look(SETTLE_S)) == 1
    assert not machine.look(AGAIN_S / 2)


def test_what_goes_wrong_again_soon_is_not_told_again_and_later_it_is() -> None:
    machine = Machine()
    assert len(machine.fails()) == 1
    for number in range(40, 60):
        machine.step(number, [1.0] * 4)
    assert not machine.fails(first=70)
    for number in range(100, 120):
        machine.step(number, [1.0] * 4)
    machine.now += AGAIN_S
    assert len(machine.fails(first=130)) == 1


def test_ranks_that_stay_sound_are_named_as_such() -> None:
    machine = Machine()
    for number in range(1, 40):
        machine.step(number, [math.nan if rank == 1 and number > 30 else 1.0 for rank in range(4)])
    machine.look()
    (report,) = machine.look(SETTLE_S)
    (one,) = report.message.captured.capture.numbers
    assert (one.rank, one.step, list(one.sound)) == (1, 31, [0, 2, 3])


@pytest.mark.parametrize(("prefix", "ranks"), [("[rank{}]: ", {0, 1, 2, 3}), ("", {None})])
def test_of_a_shared_log_the_line_says_whose_it_is_or_nothing_does(prefix: str, ranks: set[int | None]) -> None:
    (report,) = Machine(shared=True).fails(guilty=None, first=30, prefix=prefix)
    assert {rank for rank, _ in numbers(report)} == ranks


def test_a_rank_that_is_not_here_is_nobodys() -> None:
    machine = Machine(shared=True)
    for number in range(1, 40):
        machine.logs[0][1].take(
            f"[rank77]: step: {number} loss: {2.0 if number < 31 else math.nan}\n", True, machine.now
        )
    machine.look()
    (report,) = machine.look(SETTLE_S)
    assert numbers(report) == [(None, 31)]


def test_a_spike_that_is_over_is_logged_and_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine()
    caplog.set_level("INFO")
    for number in range(1, 60):
        machine.step(number, [30.0 if 30 < number < 33 else 1.0] * 4)
    assert not machine.look() and not machine.look(SETTLE_S)
    assert re.search(r"gradient norm.* 30 .*\bstep 31\b.* 1 .*\b2 values", caplog.text)


def test_two_jobs_are_two_reports_and_one_that_ended_is_none() -> None:
    machine = Machine(members=[trainer(0), trainer(1), trainer(2, "other"), trainer(3, "other")])
    assert sorted(one.job.key for one in machine.fails()) == ["llama", "other"]
    machine = Machine()
    machine.members = machine.members[:2]
    (report,) = machine.fails(guilty=3)
    assert {rank for rank, _ in numbers(report)} == {0, 1}


def test_lines_come_in_pieces() -> None:
    log = followed(USUAL)
    text = "".join(f"step: {number}  loss: {2.0 if number < 31 else math.nan}\n" for number in range(1, 40))
    for begin in range(0, len(text), 7):
        log.take(text[begin : begin + 7], True, float(begin))
    assert [alarm.step for alarm in log.taken()] == [31] and not log.taken()
    torn = followed(USUAL)
    torn.take("ss: nan\n" * 50, False, 0.0)  # the front of each is lost
    torn.take("ep: 1 loss: 2.0", True, 1.0)
    torn.take("x" * 100_000, True, 2.0)
    assert not torn.taken() and len(torn._rest) <= 4096


def test_the_report_fits_into_its_message() -> None:
    (report,) = Machine().fails()
    assert len(report.message.SerializeToString()) < 4096
    assert pb.Spooled.FromString(report.message.SerializeToString()).numbers
