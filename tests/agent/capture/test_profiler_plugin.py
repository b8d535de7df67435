"""The NCCL profiler plug-in, loaded and called as NCCL does by a stand-in, and the reader of its ring in another process."""

import contextlib
import fcntl
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hangdog_agent.capture import collective_progress, profiler_layout, profiler_ring
from hangdog_models.errors import UnreadableEvidence
from hangdog_models.progress.collective_progress import Awaited, CollectiveProgress, Phase
from support.cases.left_rings import KEPT, left_rings
from support.refused import refused

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The plug-in and the stand-in for NCCL."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler: apt-get install gcc")
    folder = tmp_path_factory.mktemp("profiler")
    plugin, program = folder / "plugin.so", folder / "nccl_stand_in"
    strict = ["-O2", "-Wall", "-Wextra", "-Werror"]
    shared = ["-fPIC", "-shared", "-fvisibility=hidden"]
    subprocess.run(
        [compiler, *strict, *shared, "-o", plugin, ROOT / "agent/profiler/profiler.c", "-lpthread"], check=True
    )
    subprocess.run(
        [compiler, *strict, "-o", program, ROOT / "bench/gpu/trainers/nccl_stand_in.c", "-ldl", "-lpthread"], check=True
    )
    return plugin, program


class Played:
    """A scenario of the stand-in that runs: `said` is its next line, `go_on` lets it past where it waits for a reader."""

    def __init__(self, process: "subprocess.Popen[bytes]", folder: Path) -> None:
        self.process, self.folder = process, folder

    def said(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().decode().strip()

    def go_on(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()

    def read(self, pid: int = 0) -> tuple[CollectiveProgress, ...]:
        return collective_progress.read(pid or self.process.pid, time.monotonic_ns(), str(self.folder))

    def files(self) -> list[Path]:
        return sorted(self.folder.iterdir()) if self.folder.exists() else []


@contextlib.contextmanager
def playing(
    built: tuple[Path, Path], folder: Path, *words: object, version: int = 5, **environ: str
) -> Iterator[Played]:
    plugin, program = built
    rings = folder / "rings"
    with subprocess.Popen(
        [program, plugin, str(version), *map(str, words)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=folder,
        env=os.environ | {"HANGDOG_PROFILER_DIR": str(rings)} | environ,
    ) as process:
        try:
            yield Played(process, rings)
        finally:
            process.kill()


@pytest.mark.parametrize("version", [4, 5, 6])
def test_what_a_job_did_and_what_it_is_inside_of(built: tuple[Path, Path], tmp_path: Path, version: int) -> None:
    with playing(built, tmp_path, "counts", 10_000, version=version) as played:
        assert played.said() == "ready"
        data, tensor = played.read()
        assert (data.communicator, data.name, data.rank, data.ranks, data.nodes) == (0xABC, "data", 0, 2, 2)
        assert (data.collectives, data.started, data.finished) == (5001, 5001, 5000)
        assert (tensor.communicator, tensor.name) == (0xDEF, "")
        assert (tensor.collectives, tensor.launched, tensor.finished, tensor.in_flight) == (5000, 5000, 5000, ())
        assert (data.left_out, tensor.left_out) == (0, 0)
        for moved in (tensor.sent, tensor.received):  # two channels, four steps, a hundred bytes each
            assert (moved.operations, moved.posted, moved.done, moved.bytes) == (10_000, 40_000, 40_000, 4_000_000)
        (stuck,) = data.in_flight
        call = stuck.call
        assert (call.function, call.datatype, call.count, call.sequence) == ("AllReduce", "Float32", 7, 10_000)
        assert (call.algorithm, call.protocol, call.channels, call.peer) == ("RING", "SIMPLE", 2, 1)
        assert (stuck.phase, stuck.order, stuck.kernels_running) == (Phase.RUNNING, 5000, 1)
        sends, receives = stuck.transfers
        assert (sends.posted, sends.ready, sends.transmitted, sends.done, sends.steps) == (3, 2, 1, 0, 4)
        assert (sends.peer, sends.awaits, sends.bytes) == (1, Awaited.NETWORK, 100)
        assert (receives.posted, receives.ready, receives.awaits) == (1, 0, Awaited.DATA)
        assert 0 <= stuck.idle_s <= stuck.age_s < 60
        assert [path.stat().st_size for path in played.files()] == [profiler_layout.SIZE]
        assert [path.stat().st_mode & 0o777 for path in played.files()] == [0o600]


def test_a_step_that_waits_is_idle_however_often_nccl_says_so(built: tuple[Path, Path], tmp_path: Path) -> None:
    with playing(built, tmp_path, "polls") as played:
        assert played.said() == "ready"
        ((stuck,),) = (found.in_flight for found in played.read())
        (sends,) = stuck.transfers
        assert (sends.ready, sends.transmitted, sends.awaits) == (1, 0, Awaited.CREDIT)
        assert stuck.idle_s >= 0.4


def test_channels_that_never_start_end_with_the_next_kernel(built: tuple[Path, Path], tmp_path: Path) -> None:
    with playing(built, tmp_path, "channels") as played:
        played.said()
        (found,) = played.read()
        assert [(each.phase, each.call.function) for each in found.in_flight] == [(Phase.ENDED, "Send")]
        played.go_on()
        played.said()
        (found,) = played.read()
        assert (found.in_flight, found.started, found.finished) == ((), 2, 2)


def test_handles_of_another_process_move_nothing(built: tuple[Path, Path], tmp_path: Path) -> None:
    with playing(built, tmp_path, "foreign") as played:
        assert played.said() == "ready"
        (found,) = played.read()
        assert (found.sent.operations, found.sent.posted, found.ended) == (0, 0, False)
        assert [each.phase for each in found.in_flight] == [Phase.LAUNCHED]


def test_a_child_writes_into_a_ring_of_its_own(built: tuple[Path, Path], tmp_path: Path) -> None:
    with playing(built, tmp_path, "fork") as played:
        child = int(played.said().removeprefix("child "))
        assert played.said() == "ready"
        (parents,), (own,) = played.read(), played.read(child)
        assert (parents.communicator, parents.collectives, parents.finished) == (1, 1, 1)
        assert (own.communicator, own.name, own.collectives) == (2, "child", 1)
        assert len(played.files()) == 2


def test_more_communicators_than_it_has_places_for(built: tuple[Path, Path], tmp_path: Path) -> None:
    with playing(built, tmp_path, "many") as played:
        played.said()
        found = played.read()
        assert [each.communicator for each in found] == list(range(1, 65))
        assert all(each.finished == 1 for each in found)
        header = played.files()[0].read_bytes()[:64]
        assert int.from_bytes(header[48:56], "little") == 6
        played.go_on()
        played.said()
        found = played.read()
        assert [each.communicator for each in found if not each.ended] == [100]
        assert [(each.collectives, len(each.in_flight)) for each in found if not each.ended] == [(1, 1)]


def test_more_operations_in_flight_than_it_has_places_for(built: tuple[Path, Path], tmp_path: Path) -> None:
    with playing(built, tmp_path, "deep") as played:
        played.said()
        (found,) = played.read()
        assert (found.collectives, found.launched, found.left_out) == (2000, 768, 2000 - 768)
        assert [each.order for each in found.in_flight] == list(range(768))  # the oldest: one of them runs
        played.go_on()
        played.said()
        (found,) = played.read()
        assert (found.collectives, found.finished, found.in_flight) == (2001, 769, ())


def test_it_stays_readable_after_an_abort(built: tuple[Path, Path], tmp_path: Path) -> None:
    with playing(built, tmp_path, "abort") as played:
        played.said()
        pid = played.process.pid
        # a zombie still: the process is dead, and nobody has asked how it ended
        while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
            time.sleep(0.01)
        assert played.process.wait() == -signal.SIGABRT
        (ring,) = played.files()
        data = ring.read_bytes()
        (found,) = profiler_ring.parse(lambda at, size: data[at : at + size], time.monotonic_ns())
        assert [each.phase for each in found.in_flight] == [Phase.RUNNING]


def test_nccl_may_unload_it_and_load_it_again(built: tuple[Path, Path], tmp_path: Path) -> None:
    with playing(built, tmp_path, "unload") as played:
        assert played.said() == "ready"
        (found,) = played.read()
        assert (found.communicator, found.finished) == (3, 1)
        assert len(played.files()) == 1


def test_turned_off_it_keeps_nothing(built: tuple[Path, Path], tmp_path: Path) -> None:
    with playing(built, tmp_path, "counts", 10, HANGDOG_PROFILER="0") as played:
        assert played.said() == "ready"
        assert played.files() == []
        with refused("profiler-data-unreadable"):
            played.read()


def test_a_folder_that_others_may_write_to_is_not_used(built: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "rings").mkdir(mode=0o700)
    (tmp_path / "rings").chmod(0o777)
    with playing(built, tmp_path, "counts", 10) as played:
        assert played.said() == "ready", "the job goes on without it"
        assert played.files() == []


def test_it_follows_no_link(built: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "rings").symlink_to(tmp_path / "elsewhere")
    with playing(built, tmp_path, "counts", 10) as played:
        assert played.said() == "ready"
        assert list((tmp_path / "elsewhere").iterdir()) == []
        (tmp_path / "rings").unlink()
        (tmp_path / "rings").mkdir()
        started = Path(f"/proc/{played.process.pid}/stat").read_text().rpartition(")")[2].split()[19]
        (tmp_path / "rings" / f"{played.process.pid}-{started}").symlink_to("/etc/passwd")
        with refused("profiler-data-unreadable"):
            played.read()


def test_of_the_rings_of_ended_processes_the_latest_stay(built: tuple[Path, Path], tmp_path: Path) -> None:
    with left_rings(tmp_path / "rings", KEPT + 5) as stay, playing(built, tmp_path, "counts", 10) as played:
        assert played.said() == "ready"
        assert played.read()
        found = {file.name for file in played.files()}
        (own,) = found - stay
        assert own.startswith(f"{played.process.pid}-") and stay < found


def test_a_living_process_holds_its_ring_and_a_dead_one_does_not(built: tuple[Path, Path], tmp_path: Path) -> None:
    with playing(built, tmp_path, "counts", 10) as played:
        assert played.said() == "ready"
        (ring,) = played.files()
        with ring.open() as other, pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        played.process.kill()
        played.process.wait()
        with ring.open() as other:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.mark.slow
@pytest.mark.parallel
def test_no_record_is_read_torn(built: tuple[Path, Path], tmp_path: Path) -> None:
    """Each operation of the stand-in has a count that follows from its sequence number."""
    calls = 0
    with playing(built, tmp_path, "busy") as played:
        assert played.said() == "ready"
        until = time.monotonic() + 30
        while calls < 2000 and time.monotonic() < until:
            for found in played.read():
                for call in (*(each.call for each in found.in_flight), *([found.last] if found.last else [])):
                    assert (call.function, call.algorithm, call.channels) == ("AllReduce", "RING", 2)
                    assert call.count == call.sequence * 3 + 1
                    calls += 1
                for each in found.in_flight:
                    assert {(one.steps, one.peer) for one in each.transfers} <= {(4, 1)}
                assert found.finished <= found.collectives
        played.go_on()
        assert played.process.wait(10) == 0
    assert calls > 100


def test_what_an_event_costs(built: tuple[Path, Path], tmp_path: Path) -> None:
    with playing(built, tmp_path, "cost", 5000) as played:
        cost = played.said()
        print(cost)
        assert float(cost.split()[0]) < 20_000, "a machine may be busy, but not so"


@pytest.fixture(scope="session")
def ring(built: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> bytes:
    with playing(built, tmp_path_factory.mktemp("ring"), "counts", 100) as played:
        played.said()
        return played.files()[0].read_bytes()


def parsed(data: bytes) -> tuple[CollectiveProgress, ...]:
    return profiler_ring.parse(lambda at, size: data[at : at + size], 10**15)


@pytest.mark.parametrize(("changes", "count"), [(0, 7), (3, 7), (1000, None)])
def test_a_record_that_changes_while_it_is_read_is_read_again_or_left_out(
    ring: bytes, changes: int, count: int | None
) -> None:
    data = bytearray(ring)
    operations = range(4096 + 64 * 512, 4096 + 64 * 512 + 768 * 192, 192)
    (at,) = (place for place in operations if data[place + 8] == 2)
    left = changes

    def fetch(start: int, size: int) -> bytes:
        nonlocal left
        found = bytes(data[start : start + size])
        if start == at and size > 8 and left:  # written after its number was read, and before its count was
            left -= 1
            data[at : at + 8] = (int.from_bytes(data[at : at + 8], "little") + 2).to_bytes(8, "little")
            return found[:40] + b"\xff" * 8 + found[48:]
        return found

    stuck, _ = profiler_ring.parse(fetch, 10**15)
    assert [each.call.count for each in stuck.in_flight] == ([count] if count else [])


def test_a_record_that_is_half_written_is_left_out(ring: bytes) -> None:
    data = bytearray(ring)
    for place in range(4096 + 64 * 512, 4096 + 64 * 512 + 768 * 192, 192):
        data[place] |= 1
    assert [each.in_flight for each in parsed(bytes(data))] == [(), ()]


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        (lambda data: b"", "0 bytes"),
        (lambda data: bytes(len(data)), "not begun"),
        (lambda data: data[:8] + b"\x09" + data[9:], "version 9"),
        (lambda data: data[:12] + b"\xff" * 4 + data[16:], "4294967295 bytes"),
        (lambda data: data[:24] + b"\xff" * 4 + data[28:], "249856 bytes"),
    ],
)
def test_what_is_no_ring_says_so(ring: bytes, changed: object, reason: str) -> None:
    assert callable(changed)
    with pytest.raises(UnreadableEvidence, match=reason) as caught:
        parsed(changed(ring))
    assert caught.value.code == "profiler-data-unreadable"


def test_a_ring_that_was_cut_off_is_read_as_far_as_it_goes(ring: bytes) -> None:
    assert [each.communicator for each in parsed(ring[:40_000])] == [0xABC, 0xDEF]


def test_garbage_in_a_ring_is_bounded(ring: bytes) -> None:
    seed = random.Random(7)
    for _ in range(400):
        data = bytearray(ring)
        for _ in range(seed.choice([1, 20, 2000])):
            at = seed.randrange(64, len(data) - 8)
            data[at : at + 8] = seed.choice([b"\xff" * 8, bytes(8), seed.randbytes(8), b"\x02\0\0\0\0\0\0\0"])
        for found in parsed(bytes(data)):
            shown = "\n".join(collective_progress.lines(found))
            assert shown.isascii() and all(line.isprintable() for line in shown.splitlines())
            assert len(found.in_flight) <= 768 and len(shown) < 40_000


def test_a_ring_of_nothing_but_live_records_is_bounded(ring: bytes) -> None:
    data = bytearray(ring[:64].ljust(len(ring), b"\x02\0\0\0\0\0\0\0"[:1]))
    seed = random.Random(1)
    for at, size, places in ((4096, 512, 64), (4096 + 64 * 512, 192, 768), (4096 + 64 * 512 + 768 * 192, 128, 512)):
        for place in range(places):
            record = bytearray(seed.randbytes(size))
            record[0] &= 0xFE
            record[8:12] = (2).to_bytes(4, "little")
            record[12:16] = (0).to_bytes(4, "little")
            record[16:20] = (2).to_bytes(4, "little")
            data[at + place * size : at + (place + 1) * size] = record
    found = parsed(bytes(data))
    assert len(found) == 64
    assert sum(len(each.in_flight) for each in found) <= 768


def test_a_file_of_another_size_is_refused(built: tuple[Path, Path], tmp_path: Path) -> None:
    with playing(built, tmp_path, "counts", 1) as played:
        played.said()
        os.truncate(played.files()[0], 4096)
        with pytest.raises(UnreadableEvidence, match="4096 bytes") as caught:
            played.read()
        assert caught.value.code == "profiler-data-unreadable"


def test_a_process_that_is_gone() -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    with refused("process-ended"):
        collective_progress.read(process.pid, 0)
