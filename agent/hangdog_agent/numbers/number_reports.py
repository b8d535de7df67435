"""Puts the wrong numbers of a job's ranks on this machine together, for one report of each episode.

`now` is of `time.monotonic`; nothing here waits or reads.
"""

import logging
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from hangdog_agent.discovery.discover import Key, ProcessRole, RankProcesses
from hangdog_agent.discovery.watch import LocalJob
from hangdog_agent.job_report import JobReport
from hangdog_agent.numbers.log_numbers import LogNumbers
from hangdog_models.counts import counted
from hangdog_models.findings import Finding
from hangdog_models.numbers.number_watch import NumberAlarm
from hangdog_models.numbers.wrong_number import WrongNumber
from hangdog_models.ranks import Rank
from hangdog_proto.codec import findings as found
from hangdog_proto.codec import wrong_numbers as codec
from hangdog_proto.generated import hangdog_pb2 as pb

#: A job of which it was told is told of again so late at the earliest: who falls back into it so soon has the same trouble. Seconds.
AGAIN_S = 1800.0

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Episode:
    """What is wrong of one job, as it is known since `at`: each number with whose it is."""

    job: LocalJob
    at: float
    wrong: list[tuple[NumberAlarm, Rank | None]] = field(default_factory=list)


class NumberReports:
    """The wrong numbers of this machine's jobs. An episode is reported `settle_s` after its first alarm."""

    def __init__(self, settle_s: float, findings: Callable[[], Sequence[Finding]]) -> None:
        """`findings` says what the checks of this machine have found."""
        self._settle_s, self._findings = settle_s, findings
        self._episodes: dict[str, _Episode] = {}
        self._reported: dict[str, float] = {}

    def look(
        self,
        logs: Sequence[tuple[frozenset[Key], LogNumbers]],
        members: Sequence[RankProcesses],
        here: Iterable[LocalJob],
        now: float,
    ) -> list[JobReport]:
        """Takes in what is wrong in the logs, by their writers; the reports that are complete."""
        trainers = {one.process.key: one for one in members if one.kind is ProcessRole.TRAINER}
        jobs = {job.key: job for job in here}
        self._reported = {job: at for job, at in self._reported.items() if now - at < AGAIN_S}
        for writers, numbers in logs:
            for alarm in numbers.taken():
                self._note(alarm, [trainers[key] for key in writers if key in trainers], jobs, now)
        complete = [name for name, one in self._episodes.items() if now - one.at >= self._settle_s]
        return [self._report(name, self._episodes.pop(name), logs, trainers, now) for name in complete]

    def _note(
        self, alarm: NumberAlarm, writers: Sequence[RankProcesses], jobs: Mapping[str, LocalJob], now: float
    ) -> None:
        names = {one.key for one in writers}
        job = jobs.get(next(iter(names))) if len(names) == 1 else None
        if job is None:  # it ended meanwhile, or two jobs write to one file
            return
        what = f"job {job.key}: {_wrong(alarm, None, ()).message}"
        if alarm.passed:
            log.info("%s; over after %s", what, counted(alarm.passed, "value"))
            return
        log.warning("%s", what)
        if job.key not in self._reported:
            self._episodes.setdefault(job.key, _Episode(job, now)).wrong.append((alarm, _whose(alarm, writers, job)))

    def _report(
        self,
        name: str,
        episode: _Episode,
        logs: Sequence[tuple[frozenset[Key], LogNumbers]],
        trainers: Mapping[Key, RankProcesses],
        now: float,
    ) -> JobReport:
        self._reported[name] = now
        mine = [
            ({one.rank for key in writers if (one := trainers.get(key)) is not None and one.key == name}, numbers)
            for writers, numbers in logs
        ]
        wrong = [_wrong(alarm, rank, _sound(alarm, mine)) for alarm, rank in episode.wrong]
        wrong.sort(key=lambda one: (one.step is None, one.step or 0, one.at_s))
        stall = secrets.token_hex(8)
        capture = pb.Capture(numbers=codec.pack(wrong), findings=found.pack(self._findings()))
        message = pb.Spooled(
            stall=stall,
            captured=pb.Captured(order=stall, round=0, capture=capture, last=True),
            rounds=1,
            why=_why(wrong),
            numbers=True,
        )
        return JobReport(episode.job, message, min(one.at_s for one in wrong))


def _whose(alarm: NumberAlarm, writers: Sequence[RankProcesses], job: LocalJob) -> Rank | None:
    """The rank whose number it is: the log's only writer, else the one that the line names."""
    ranks = {one.rank for one in writers}
    if len(ranks) == 1:
        return next(iter(ranks))
    return alarm.rank if alarm.rank in job.ranks else None


def _sound(alarm: NumberAlarm, logs: Sequence[tuple[set[Rank], LogNumbers]]) -> tuple[Rank, ...]:
    """Ranks here whose own numbers of this kind were sound at that step."""
    if alarm.step is None:
        return ()
    sound: set[Rank] = set()
    for writers, numbers in logs:
        ranks = numbers.watch.sound_at(alarm.step, alarm.number.quantity)
        if len(writers) == 1:
            sound |= writers if ranks else set()
        else:
            sound |= {rank for rank in ranks if rank in writers}
    return tuple(sorted(sound))


def _wrong(alarm: NumberAlarm, rank: Rank | None, sound: tuple[Rank, ...]) -> WrongNumber:
    return WrongNumber(
        rank, alarm.number.quantity, alarm.number.value, alarm.median, alarm.at, alarm.step, alarm.text, sound
    )


def _why(wrong: Sequence[WrongNumber]) -> str:
    first = wrong[0]
    rest = len({one.rank for one in wrong} - {first.rank, None})
    whose = f"rank {first.rank}: " if first.rank is not None else ""
    return f"{whose}{first.message}" + (f"; so of {counted(rest, 'other rank')} here" if rest else "")
