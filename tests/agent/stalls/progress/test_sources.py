"""Witnesses of real processes: their logs and heartbeats, the collectives of a played RAS, and which speaks for whom."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hangdog_agent.capture.process_capture import Tools, look
from hangdog_agent.capture.settings import CaptureSettings
from hangdog_agent.discovery.discover import Key, RankProcesses, find
from hangdog_agent.discovery.discover import ProcessRole as Sort
from hangdog_agent.discovery.process_table import ProcessTable
from hangdog_agent.numbers.log_numbers import LogNumbers
from hangdog_agent.stalls.monitor import StallMonitor
from hangdog_agent.stalls.progress import heartbeat_files
from hangdog_agent.stalls.progress.collective_counts import Collectives, count
from hangdog_agent.stalls.progress.logs import Logs
from hangdog_agent.stalls.progress.progress_signal import LEAST, ProgressSignal, SignalKind
from hangdog_agent.stalls.progress.sources import ProgressSources
from hangdog_agent.stalls.settings import StallSettings
from hangdog_models.numbers.work_rate import WorkUnit
from hangdog_models.ranks import Rank
from hangdog_models.rules.ruleset import packaged
from hangdog_models.stack import Missing, Reason
from support.fakes import targets
from support.fakes.played_ras import Played, Say, served

SETTINGS = StallSettings(traffic_every_s=0.0)
TOOLS = Tools(targets.proc, Missing(Reason.TOOL_MISSING, "none needed"), CaptureSettings())


@contextmanager
def trainer(stdout: int | Path, rank: int = 0, **environ: str) -> Iterator[RankProcesses]:
    """A process whose stdout is a file (or a file descriptor), and which does nothing else."""
    wait = (sys.executable, "-I", "-S", "-c", "import sys; sys.stdin.read()")
    opened = os.open(stdout, os.O_WRONLY | os.O_APPEND | os.O_CREAT) if isinstance(stdout, Path) else stdout
    with subprocess.Popen(
        wait, stdin=subprocess.PIPE, stdout=opened, stderr=subprocess.DEVNULL, cwd=os.fspath(Path.cwd())
    ) as process:
        if isinstance(stdout, Path):
            os.close(opened)
        try:
            row = replace(targets.row(process), environ=environ)
            yield RankProcesses("job", Rank(rank), Sort.TRAINER, row)
        finally:
            process.kill()


@pytest.fixture(autouse=True)
def readers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Waits for each round, however long it takes; ends the processes that look at files, whoever started them."""
    monkeypatch.setattr(heartbeat_files, "_GRACE_S", 30.0)
    made: list[Logs] = []
    begin = Logs.__init__

    def noted(self: Logs, *given: Any) -> None:
        begin(self, *given)
        made.append(self)

    monkeypatch.setattr(Logs, "__init__", noted)
    yield
    for logs in made:
        logs.close()


class Hearing:
    """Logs that are listened to second by second, as fast as they answer."""

    def __init__(self, *members: RankProcesses, settings: StallSettings = SETTINGS) -> None:
        self.logs = Logs("/proc", settings)
        self.members = {member.process.key: member for member in members}
        self.now = time.monotonic()

    def hear(self) -> dict[Key, list[ProgressSignal]]:
        self.now += 1.0
        return self.logs.read(self.members, self.now)

    def of(self, member: RankProcesses, kind: SignalKind, authoritative: bool = True) -> ProgressSignal:
        """The one signal of that kind, once it was looked at: an authoritative one, if there is one."""
        found_signals = self.hear()[member.process.key]
        (found,) = [each for each in found_signals if each.kind is kind and each.authoritative == authoritative]
        return found


def grow(work: Callable[[int], object], hearing: Hearing, times: int = 4 + LEAST) -> None:
    """Does something and has it seen, several times."""
    hearing.hear()
    for number in range(times):
        work(number)
        hearing.hear()


def append(path: Path, text: str) -> None:
    with path.open("a") as log:
        log.write(text)


def test_the_stdout_of_a_trainer_is_followed_where_it_is_a_file(tmp_path: Path) -> None:
    with trainer(tmp_path / "out") as member:
        hearing = Hearing(member)
        grow(lambda i: append(tmp_path / "out", f"step {i}\n"), hearing)
        assert hearing.of(member, SignalKind.LINES).contradicts(0.0)


def test_a_capture_tells_how_often_the_job_was_seen_to_get_on(tmp_path: Path) -> None:
    tools = Tools(targets.proc, Missing(Reason.TOOL_MISSING, "none needed"), CaptureSettings())
    monitor = StallMonitor(tools, packaged(), StallSettings(traffic_every_s=0.0, log_every_s=1e-6))

    def counted() -> int | None:
        monitor.tick([member])
        state = look(member.process, tools, time.monotonic() + 5.0).state
        assert state is not None
        return state.steps

    with trainer(tmp_path / "out") as member:
        assert counted() is None, "nothing tells yet"
        for number in range(8):
            append(tmp_path / "out", f"step {number}\n")
            counted()
        targets.until(lambda: counted() == counted())  # what was written last has been read
        before = counted()
        assert before and counted() == before, "it stands still"
        append(tmp_path / "out", "step 8\n")
        targets.until(lambda: counted() == before + 1)
        monitor.tick([])
        assert not tools.steps
    monitor.close()


def test_a_pipe_is_let_alone(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    try:
        with trainer(writer) as member:
            hearing = Hearing(member)
            os.write(writer, b"step 1\n")
            assert not any(hearing.hear()[member.process.key] for _ in range(3))
            assert os.read(reader, 100) == b"step 1\n"
    finally:
        os.close(reader)
        os.close(writer)


def test_ranks_that_share_a_log_share_its_witness_and_it_is_read_once(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with trainer(path) as one, trainer(path, 1) as two:
        hearing = Hearing(one, two)
        grow(lambda i: append(path, f"step {i}\n"), hearing)
        assert hearing.of(one, SignalKind.LINES) is hearing.of(two, SignalKind.LINES)
        wishes = hearing.logs._wishes(hearing.members, hearing.now + 1.0)
        assert sorted(wish.most > 0 for (_, name), wish in wishes.items() if name == "1") == [False, True]
        assert hearing.of(one, SignalKind.LINES).contradicts(0.0)


def test_a_log_that_the_environment_names_and_its_pattern(tmp_path: Path) -> None:
    log = os.path.relpath(tmp_path / "log")
    with trainer(tmp_path / "out", HANGDOG_LOG=log, HANGDOG_STEP_PATTERN="another one") as member:
        hearing = Hearing(member)
        grow(lambda _: append(tmp_path / "log", "another one is done\n"), hearing, 20)  # the file appears late
        assert sum(each.known_s > 0 for each in hearing.hear()[member.process.key] if each.authoritative) == 1


def test_a_pattern_that_cannot_be_used_is_told_once_and_lines_are_learned(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with trainer(tmp_path / "out", HANGDOG_STEP_PATTERN="(a") as one, trainer(tmp_path / "other", 1) as two:
        two = replace(two, process=replace(two.process, environ=one.process.environ))
        hearing = Hearing(one, two)
        grow(lambda i: append(tmp_path / "out", f"step {i}\n"), hearing)
        assert hearing.of(one, SignalKind.LINES).contradicts(0.0)
    (told,) = [record.message for record in caplog.records if "HANGDOG_STEP_PATTERN" in record.message]
    assert told.startswith("HANGDOG_STEP_PATTERN of job job ") and "missing )" in told


def test_a_heartbeat_file_by_its_time_or_written_anew(tmp_path: Path) -> None:
    beat, anew = tmp_path / "beat", tmp_path / "anew"
    beat.touch()
    anew.touch()

    def work(number: int) -> None:
        os.utime(beat, (number, number))
        (tmp_path / "next").touch()
        (tmp_path / "next").replace(anew)

    with (
        trainer(tmp_path / "out", HANGDOG_HEARTBEAT=str(beat)) as one,
        trainer(tmp_path / "out", 1, HANGDOG_HEARTBEAT=str(anew)) as two,
    ):
        hearing = Hearing(one, two)
        grow(work, hearing)
        assert hearing.of(one, SignalKind.HEARTBEAT).contradicts(0.0)
        assert hearing.of(two, SignalKind.HEARTBEAT).contradicts(0.0)
        one_beat = hearing.of(one, SignalKind.HEARTBEAT)
        assert not one_beat.advancing


def test_every_source_can_be_turned_off(tmp_path: Path) -> None:
    settings = StallSettings(log_every_s=0, touch_every_s=0, ras_every_s=0, traffic_every_s=0, spin_share=0)
    (tmp_path / "beat").touch()
    with trainer(tmp_path / "out", HANGDOG_HEARTBEAT=str(tmp_path / "beat")) as member:
        sources = ProgressSources(TOOLS, settings, lambda: {"0000:1b:00": (0.9, 1.0)})
        for _ in range(3):
            assert sources.read({"job": {member.process.key: member}}) == {member.process.key: []}


def test_who_ended_is_forgotten(tmp_path: Path) -> None:
    with trainer(tmp_path / "out") as member:
        hearing = Hearing(member)
        grow(lambda i: append(tmp_path / "out", f"step {i}\n"), hearing)
        hearing.members = {}
        assert hearing.hear() == {}
        hearing.now += 11.0  # so long its last words may be asked for
        assert hearing.hear() == {}
        assert not hearing.logs._logs and not hearing.logs._names


def test_discovery_keeps_what_the_witnesses_need() -> None:
    job = f"kept-{os.getpid()}"  # other tests run beside this one, and other people's
    wanted = {"HANGDOG_LOG": "/a", "HANGDOG_STEP_PATTERN": "b", "HANGDOG_HEARTBEAT": "/c"}
    with targets.running(targets.WAIT, environ={"RANK": "0", "WORLD_SIZE": "1", "HANGDOG_JOB": job, **wanted}):
        (found,) = [member for member in find(ProcessTable(targets.proc).take()) if member.job == job]
    assert wanted.items() <= (found.process.environ or {}).items()


def counting(counts: Iterator[int | None]) -> Mapping[str, object]:
    """A RAS that counts operations; None: of one member it says nothing."""

    def status(self: Played, say: Say) -> None:
        number = next(counts)
        ranks = [{"rank": rank, "collective_counts": {"AllReduce": number}} for rank in range(2 if number else 1)]
        one = {"hash": "0xab", "size": 2, "ranks": ranks, "missing_ranks": []}
        say(json.dumps({"nccl_version": "2.29.0", "communicators": [one]}).encode())

    return {"status": status}


def asked(counts: list[int | None], every_s: float = 0.01) -> tuple[list[ProgressSignal], int]:
    """What is known after each answer; and how often it was asked in all."""
    with served(**counting(iter(counts))) as (port, requests):
        row = replace(targets.row(os.getpid()), environ={"NCCL_RAS_ADDR": f"localhost:{port}"})
        jobs = {"job": [RankProcesses("job", Rank(0), Sort.TRAINER, row)]}
        collectives = Collectives(TOOLS, StallSettings(ras_every_s=every_s))
        found: list[ProgressSignal] = []

        def hear() -> bool:
            found[:] = collectives.read(jobs, time.monotonic()).values()
            one = collectives._jobs["job"]
            return one.work is None and requests.count("VERBOSE STATUS") == len(counts)

        targets.until(hear)
        return found, requests.count("VERBOSE STATUS")


def test_collectives_that_stop() -> None:
    (signal,), _ = asked([10, 20, 30, 40, 50])
    assert signal.advancing and signal.stalled_since is None and signal.proof_at > 0
    (signal,), _ = asked([10, 20, 30, 40, 50, *[50] * 8])
    assert not signal.advancing and signal.stalled_since is not None


def test_counts_of_a_part_are_none() -> None:
    assert asked([None]) == ([], 1)


def test_a_report_too_large_to_be_read_here_is_not_read() -> None:
    def status(self: Played, say: Say) -> None:
        say(b" " * (3 << 20) + b'{"communicators": []}')

    with served(status=status) as (port, _):
        row = replace(targets.row(os.getpid()), environ={"NCCL_RAS_ADDR": f"localhost:{port}"})
        counted = count(RankProcesses("job", Rank(0), Sort.TRAINER, row), TOOLS)
    assert counted.large and counted.launched is None


def test_a_job_without_ras_is_not_asked_again_soon() -> None:
    row = replace(targets.row(os.getpid()), environ={"NCCL_RAS_ADDR": "localhost:1"})
    jobs = {"job": [RankProcesses("job", Rank(0), Sort.TRAINER, row)]}
    collectives = Collectives(TOOLS, StallSettings(ras_every_s=0.01))
    collectives.read(jobs, 0.0)
    targets.until(lambda: not collectives.read(jobs, 1.0) and collectives._jobs["job"].work is None)
    collectives.read(jobs, 100.0)
    assert collectives._jobs["job"].work is None
    collectives.read(jobs, 122.0)
    assert collectives._jobs["job"].work is not None


def test_what_speaks_for_a_machine_stands_beside_each_of_its_trainers(tmp_path: Path) -> None:
    with trainer(tmp_path / "out") as one, trainer(tmp_path / "err", 1) as two:
        settings = StallSettings(traffic_every_s=0.01)
        sources = ProgressSources(TOOLS, settings, lambda: {"0000:1b:00": (0.9, 1.0)})
        trainers = {"job": {member.process.key: member for member in (one, two)}}
        kinds = {SignalKind.LINES, SignalKind.BYTES, SignalKind.POWER}
        targets.until(lambda: all({e.kind for e in each} == kinds for each in sources.read(trainers).values()))
        first, second = sources.read(trainers).values()
        shared = {each.kind for each in first if any(each is other for other in second)}
        assert shared == {SignalKind.BYTES, SignalKind.POWER}


def followed(hearing: Hearing) -> tuple[set[Key], LogNumbers]:
    """Who writes the one log, and its numbers, once it is known: a process that begins belongs to nobody for a moment."""
    while not hearing.logs.numbers():
        hearing.hear()
    ((writers, numbers),) = hearing.logs.numbers()
    return set(writers), numbers


def test_numbers_of_a_log_are_followed_with_who_writes_it(tmp_path: Path) -> None:
    log = tmp_path / "out"
    with trainer(log, rank=3) as member:
        hearing = Hearing(member)
        append(log, "loss: 9.0\n")
        writers, numbers = followed(hearing)
        for number in range(1, 8):
            append(log, "".join(f"step: {5 * number + one} loss: {'nan' if number > 5 else 2.0}\n" for one in range(5)))
            hearing.hear()
        assert writers == {member.process.key} and [alarm.step for alarm in numbers.taken()] == [30]


def test_the_throughput_of_a_log_stands_beside_its_signals(tmp_path: Path) -> None:
    log = tmp_path / "out"
    with trainer(log) as member:
        hearing = Hearing(member)
        followed(hearing)
        begun = None
        for number in range(1, 5):
            append(log, f"step: {number}  tps: 1,000\n")
            (work,) = [each.work for each in hearing.hear()[member.process.key] if each.work is not None]
            begun = work.at if begun is None else begun
        assert begun is not None and work.at > begun and work.unit is WorkUnit.TOKENS
        assert work.done == pytest.approx(1_000.0 * (work.at - begun))


def test_a_job_that_is_started_again_into_the_same_log_has_numbers_of_its_own(tmp_path: Path) -> None:
    """From scratch its loss is six times what it was: nothing is wrong with that."""
    log = tmp_path / "out"
    with trainer(log) as member:
        hearing = Hearing(member)
        followed(hearing)
        append(log, "loss: 2.0\n" * 40)
        hearing.hear()
    with trainer(log) as again:
        hearing.members = {again.process.key: again}
        hearing.hear()
        writers, _ = followed(hearing)
        assert writers == {again.process.key}
        append(log, "loss: 12.0\n" * 9)
        hearing.hear()
        _, numbers = followed(hearing)
        assert not numbers.taken()
        append(log, "loss: nan\n" * 9)
        hearing.hear()
        assert len(numbers.taken()) == 1
