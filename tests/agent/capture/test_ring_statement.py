"""What the ring of a trainer shows comes with a capture: of one that is stopped as well, and never of another's file."""

import json
import os
import random
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from hangdog_agent.capture import library_counters, profiler_layout, ring_process, ring_statement
from hangdog_agent.capture.capture_rounds import CaptureSeries
from hangdog_agent.capture.process_capture import Tools
from hangdog_agent.capture.settings import CaptureSettings
from hangdog_models.progress.collective_progress import Awaited, Phase
from hangdog_models.ranks import Rank
from hangdog_models.reading.collectives.library_counters import ring_progress
from hangdog_models.stack import Reason
from hangdog_proto.codec import collectives
from hangdog_proto.codec.collectives import Statement, StatementKind
from hangdog_proto.generated import hangdog_pb2 as pb
from support.fakes import nccl_played, targets
from support.fakes.dumper import own_job
from support.fakes.nccl_played import BuiltNccl, training
from support.fakes.recorder_asked import TOOLS, by_pid

pytestmark = [pytest.mark.slow, pytest.mark.parallel]


@pytest.fixture(scope="session")
def nccl(tmp_path_factory: pytest.TempPathFactory) -> BuiltNccl:
    return nccl_played.build(tmp_path_factory.mktemp("nccl"))


def shown(pid: int) -> Statement:
    stated = ring_statement.progress(by_pid(pid), TOOLS)
    assert stated is not None
    return stated


def test_what_a_trainer_is_inside_of(nccl: BuiltNccl, tmp_path: Path) -> None:
    with training(nccl, tmp_path / "rings", "counts", 100) as process:
        stated = shown(process.pid)
    assert (stated.kind, stated.missing) == (StatementKind.PROGRESS, None)
    data, _ = ring_progress(stated.data, Rank(0)).communicators
    assert (data.communicator, data.name, data.collectives, data.finished) == (0xABC, "data", 51, 50)
    (stuck,) = data.in_flight
    assert (stuck.phase, stuck.transfers[0].awaits) == (Phase.RUNNING, Awaited.NETWORK)
    assert 0 < stuck.age_s < 60


def test_a_stopped_trainer_shows_as_much_and_stays_as_it_is(nccl: BuiltNccl, tmp_path: Path) -> None:
    with training(nccl, tmp_path / "rings", "counts", 100) as process:
        running = ring_progress(shown(process.pid).data, Rank(0))
        targets.stop(process)
        stated = shown(process.pid)
        assert targets.letter(process.pid) == "T"
        stopped = ring_progress(stated.data, Rank(0))
    assert [one.collectives for one in stopped.communicators] == [one.collectives for one in running.communicators]


def test_records_that_are_written_all_the_time_are_copied_whole(nccl: BuiltNccl, tmp_path: Path) -> None:
    """Each operation of the stand-in has a count that follows from its sequence number."""
    calls = 0
    with training(nccl, tmp_path / "rings", "busy") as process:
        (ring,) = (tmp_path / "rings").iterdir()
        handle = os.open(ring, os.O_RDONLY)
        for _ in range(300):
            stated = ring_statement.read(Rank(0), ring_process.copied(handle), time.monotonic_ns())
            for one in ring_progress(stated.data, Rank(0)).communicators:
                for call in (*(each.call for each in one.in_flight), *([one.last] if one.last else [])):
                    assert call.count == call.sequence * 3 + 1
                    calls += 1
        os.close(handle)
        assert process.stdin is not None
        process.stdin.write(b"\n")
        process.stdin.flush()
        assert process.wait(10) == 0
    assert calls > 100


def test_a_trainer_without_a_ring_says_nothing_of_one(tmp_path: Path) -> None:
    for environ in ({}, {"HANGDOG_PROFILER_DIR": str(tmp_path)}, {"HANGDOG_PROFILER_DIR": str(tmp_path / "nowhere")}):
        with targets.running(targets.WAIT, environ=own_job() | {"RANK": "0", **environ}) as process:
            assert ring_statement.progress(by_pid(process.pid), TOOLS) is None


def test_a_process_of_that_number_that_began_later_is_another(nccl: BuiltNccl, tmp_path: Path) -> None:
    with training(nccl, tmp_path / "rings", "counts", 1) as process:
        found = by_pid(process.pid)
        later = replace(found, process=replace(found.process, started=found.process.started - 1))
        assert ring_statement.progress(later, TOOLS) is None


def test_it_can_be_turned_off(nccl: BuiltNccl, tmp_path: Path) -> None:
    off = replace(TOOLS, settings=CaptureSettings(profiler_ring=0))
    with training(nccl, tmp_path / "rings", "counts", 1) as process:
        assert ring_statement.progress(by_pid(process.pid), off) is None


def _fifo(ring: Path) -> None:
    ring.unlink()
    os.mkfifo(ring)


def _link(ring: Path) -> None:
    ring.unlink()
    ring.symlink_to("/etc/passwd")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda ring: os.truncate(ring, 4096), "a file of 4096 bytes"),
        (_fifo, "not a regular file of its user"),
        (_link, "not a regular file of its user"),
        (lambda ring: ring.write_bytes(bytes(profiler_layout.SIZE)), "not begun"),
    ],
)
def test_what_stands_in_the_place_of_a_ring_is_told(
    nccl: BuiltNccl, tmp_path: Path, change: Callable[[Path], object], reason: str
) -> None:
    with training(nccl, tmp_path / "rings", "counts", 1) as process:
        (ring,) = (tmp_path / "rings").iterdir()
        change(ring)
        stated = shown(process.pid)
    assert stated.missing is not None and stated.missing.reason is Reason.TOOL_FAILED
    assert reason in stated.missing.message


def test_rings_stand_behind_the_records_and_travel_as_they_do(nccl: BuiltNccl, tmp_path: Path) -> None:
    with training(nccl, tmp_path / "rings", "counts", 100) as process:
        trainer = replace(by_pid(process.pid), rank=Rank(5), world_size=8)
        told = library_counters.hear([trainer], replace(TOOLS, settings=CaptureSettings(ras=0)))
    assert [(one.kind, one.rank) for one in told] == [(StatementKind.RECORD, 5), (StatementKind.PROGRESS, 5)]
    counted = collectives.unpack_all(pb.Capture(statements=told))
    assert counted is not None and counted.unreadable == {}
    ((rank, communicators),) = [(one.rank, one.communicators) for one in counted.progress]
    assert (rank, [one.collectives for one in communicators]) == (5, [51, 50])
    assert json.loads(collectives.unpack(told[1]).data)["schema"] == "hangdog.progress/1"


@pytest.mark.parametrize("reaped", [False, True])
def test_the_ring_of_a_dead_trainer_is_reached_through_whoever_started_it(
    nccl: BuiltNccl, tmp_path: Path, reaped: bool
) -> None:
    with training(nccl, tmp_path / "rings", "counts", 100) as process:
        found = by_pid(process.pid)
        targets.end(process, reap=reaped)
        stated = ring_statement.progress(found, TOOLS)
        assert stated is not None
        assert [one.collectives for one in ring_progress(stated.data, Rank(0)).communicators] == [51, 50]
        stranger = replace(found.process, owner=replace(found.process.owner, uid=4711))
        assert ring_statement.progress(replace(found, process=stranger), TOOLS) is None
        orphan = replace(found.process, parent=2**22 + 1)
        assert ring_statement.progress(replace(found, process=orphan), TOOLS) is None
        assert found.process.owner.uid == os.getuid()


def test_a_series_of_looks_tells_of_a_trainer_that_has_ended_meanwhile(
    nccl: BuiltNccl, tmp_path: Path, tools: Tools
) -> None:
    with training(nccl, tmp_path / "rings", "counts", 100) as process:
        found = by_pid(process.pid)
        series = CaptureSeries(found.job, list, tools, [found])
        targets.end(process)
        told = series.hear()
    assert [(one.kind, one.rank) for one in told] == [(StatementKind.PROGRESS, 0)]


def test_whatever_a_ring_holds_its_statement_is_read_or_refused(nccl: BuiltNccl, tmp_path: Path) -> None:
    with training(nccl, tmp_path / "rings", "counts", 100):
        (ring,) = (tmp_path / "rings").iterdir()
        sound = ring.read_bytes()
    seed, told = random.Random(3), 0
    for _ in range(300):
        data = bytearray(sound)
        for _ in range(seed.choice([1, 20, 2000])):
            at = seed.randrange(64, len(data) - 8)
            data[at : at + 8] = seed.choice([b"\xff" * 8, bytes(8), seed.randbytes(8)])
        packed = collectives.pack(ring_statement.read(Rank(0), bytes(data), 10**15))
        counted = collectives.unpack_all(pb.Capture(statements=[packed]))
        assert counted is not None and len(counted.progress) + len(counted.unreadable) == 1
        told += len(counted.progress)
    assert 10 < told < 300
