"""The spool: what it keeps and for how long, and that no file, disk or clock can break it."""

import logging
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hangdog_agent.checks.check_state import Notes
from hangdog_agent.connection.settings import SpoolSettings
from hangdog_agent.connection.spool import Clocks, Spool
from hangdog_proto.generated import hangdog_pb2 as pb
from support.real.small_disk import small_disk

SETTINGS = SpoolSettings()
NOON = 1_800_000_000.0


def clocks(unix: float = NOON, since_boot: float = 500.0, boot: str = "boot-1") -> Clocks:
    return Clocks(lambda: unix, lambda: since_boot, boot)


def look(number: int, size: int = 10) -> pb.Spooled:
    capture = pb.Capture(frames=[pb.Frame(function="f" * size)])
    return pb.Spooled(stall="s", captured=pb.Captured(round=number, capture=capture))


def rounds(spool: Spool) -> list[int]:
    return [message.captured.round for name in spool.waiting() if (message := spool.read(name)) is not None]


@pytest.mark.parametrize("kept", [True, False], ids=["in a folder", "in memory"])
def test_what_is_put_is_read_again_oldest_first_until_it_is_dropped(tmp_path: Path, kept: bool) -> None:
    spool = Spool(tmp_path / "spool" if kept else None, SETTINGS, clocks())
    assert all(spool.put(look(number), 7.0) for number in range(3))
    assert rounds(spool) == [0, 1, 2]
    first = spool.read(spool.waiting()[0])
    assert first is not None and (first.began_s, first.age_s, first.id) == (NOON - 7.0, 7.0, spool.waiting()[0])
    assert first.stood_s == 7.0
    spool.drop(first.id)
    spool.drop(first.id)
    assert rounds(spool) == [1, 2]
    assert len(list(tmp_path.rglob("*.look"))) == (2 if kept else 0)


def test_it_outlives_the_agent_and_goes_on_counting(tmp_path: Path) -> None:
    Spool(tmp_path, SETTINGS, clocks()).put(look(0), 7.0)
    spool = Spool(tmp_path, SETTINGS, clocks())
    assert spool.put(look(1), 7.0)
    assert rounds(spool) == rounds(Spool(tmp_path, SETTINGS, clocks())) == [0, 1]
    assert [path.stat().st_mode & 0o777 for path in tmp_path.glob("*.look")] == [0o600, 0o600]


def test_a_passing_error_costs_no_look(tmp_path: Path) -> None:
    Spool(tmp_path, SETTINGS, clocks()).put(look(0), 7.0)
    spool = Spool(tmp_path, SETTINGS, clocks())
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))  # no further file may be opened
    try:
        assert spool.read(spool.waiting()[0]) is None
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert rounds(spool) == [0]


@pytest.mark.parametrize(
    ("later", "age"),
    [
        (clocks(NOON + 60.0, 560.0), 67.0),
        (
            clocks(NOON - 9e8, 560.0),
            67.0,
        ),  # somebody set the clock: the machine has not been restarted, so it does not matter
        (clocks(NOON + 60.0, 20.0, "boot-2"), 67.0),
        (clocks(NOON - 60.0, 20.0, "boot-2"), 0.0),
        (clocks(NOON + 1e12, 20.0, "boot-2"), 366 * 86400.0),
        (clocks(float("nan"), 20.0, "boot-2"), 0.0),
        (clocks(NOON + 60.0, 20.0, "unknown"), 67.0),
    ],
    ids=[
        "same start",
        "clock set",
        "restarted",
        "restarted, clock back",
        "restarted, clock ahead",
        "no clock",
        "no boot id",
    ],
)
def test_ages_are_right_whatever_happens_to_the_clock(tmp_path: Path, later: Clocks, age: float) -> None:
    Spool(tmp_path, SETTINGS, clocks()).put(look(0), 7.0)
    spool = Spool(tmp_path, SETTINGS, later)
    message = spool.read(spool.waiting()[0])
    assert message is not None and message.age_s == pytest.approx(age)


def test_when_it_is_full_the_oldest_stay_and_the_others_are_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for settings in (SpoolSettings(spool_looks=2), SpoolSettings(spool_bytes=2500)):
        folder = tmp_path / str(settings.spool_looks)
        spool = Spool(folder, settings, clocks())
        assert [spool.put(look(number, 1000), 0.0) for number in range(5)] == [True, True, False, False, False]
        assert rounds(spool) == [0, 1]
        assert sum(path.stat().st_size for path in folder.iterdir()) <= settings.spool_bytes
        oldest = spool.read(spool.waiting()[0])
        assert oldest is not None and oldest.refused == spool.refused == 3
    assert sum("full" in record.message for record in caplog.records) == 2, "said once each"


def test_what_is_torn_or_foreign_is_passed_over_and_never_believed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spool = Spool(tmp_path, SETTINGS, clocks())
    for number in range(9):
        spool.put(look(number), 0.0)
    files = sorted(tmp_path.glob("*.look"))
    files[0].write_bytes(files[0].read_bytes()[:-3])
    files[1].write_bytes(b"")
    files[2].write_bytes(os.urandom(4096))
    files[3].write_bytes(files[3].read_bytes().replace(b"ffff", b"gggg"))
    files[4].write_bytes(files[5].read_bytes())  # another look under this name
    files[6].unlink()
    files[6].symlink_to("/etc/passwd")
    files[7].unlink()
    os.mkfifo(files[7])
    (tmp_path / "99999998-0123456789abcdef.look").mkdir()
    (tmp_path / "notes.txt").write_text("somebody's")
    (tmp_path / "00000042-0123456789abcdef.look.new").write_text("torn")
    with files[8].open("ab") as large:
        large.truncate(SETTINGS.spool_bytes + 10)
    spool = Spool(tmp_path, SETTINGS, clocks())
    assert rounds(spool) == [5]
    assert spool.waiting() == (files[5].stem,)
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix != ".look") == ["notes.txt"]
    assert Path("/etc/passwd").exists()
    assert spool.put(look(10), 0.0)
    assert any("none of the agent's" in record.message for record in caplog.records)


def test_a_folder_that_cannot_be_written_is_said_once_and_memory_does(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "spool").write_text("a file where the folder should be")
    spool = Spool(tmp_path / "spool", SETTINGS, clocks())
    assert all(spool.put(look(number), 0.0) for number in range(3))
    assert rounds(spool) == [0, 1, 2]
    assert sum("cannot be" in record.message for record in caplog.records) == 1
    assert all(record.levelno == logging.WARNING for record in caplog.records)


#: Puts looks into the folder named first, of the size named second, saying after each how it went.
PUTS = """
import logging, resource, sys, time
from pathlib import Path
from hangdog_agent.checks.check_state import Notes
from hangdog_agent.settings import SpoolSettings
from hangdog_agent.connection.spool import Clocks, Spool
from hangdog_proto.generated import hangdog_pb2 as pb
logging.basicConfig(level=logging.WARNING)
limit, count = int(sys.argv[3]), int(sys.argv[4])
if limit:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
spool = Spool(Path(sys.argv[1]), SpoolSettings(spool_looks=100_000, spool_bytes=1 << 40), Clocks(lambda: 1e9, lambda: 1.0, "b"))
for number in range(count):
    capture = pb.Capture(frames=[pb.Frame(function="f" * int(sys.argv[2]))])
    kept = spool.put(pb.Spooled(captured=pb.Captured(round=number, capture=capture)), 0.0)
    print(kept, len(spool.waiting()), spool.read(spool.waiting()[-1]) is not None, flush=True)
"""


def putting(folder: Path, size: int, limit: int = 0, count: int = 1_000_000) -> list[str]:
    return [sys.executable, "-c", PUTS, str(folder), str(size), str(limit), str(count)]


@pytest.mark.parametrize("wait_ms", [0, 3, 11])
def test_an_agent_that_is_killed_while_it_writes_leaves_whole_files_only(tmp_path: Path, wait_ms: int) -> None:
    with subprocess.Popen(putting(tmp_path, 300_000), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        said = [process.stdout.readline() for _ in range(3)]
        time.sleep(wait_ms / 1000)
        process.send_signal(signal.SIGKILL)
        said += process.stdout.readlines()
    spool = Spool(tmp_path, SpoolSettings(spool_bytes=1 << 40), clocks())
    found = rounds(spool)
    assert found == list(range(len(found))), "all of them, in order, and none torn"
    assert len(found) >= len(said), "what was said to be kept is there"
    assert not list(tmp_path.glob("*.new"))


def test_a_full_disk_is_borne(tmp_path: Path) -> None:
    ended = subprocess.run(putting(tmp_path, 9000, 4096, 4), capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines() == [f"True {count} True" for count in (1, 2, 3, 4)], "kept in memory"
    assert ended.stderr.count("cannot be written") == 1
    assert list(tmp_path.iterdir()) == [], "no part of a file is left"


def test_a_full_file_system_is_borne(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", 64) as small:
        ended = subprocess.run(putting(small, 20_000, 0, 6), capture_output=True, text=True, check=True)
        kept = Spool(small, SETTINGS, clocks())
        assert ended.stdout.splitlines() == [f"True {count} True" for count in range(1, 7)]
        assert "No space left" in ended.stderr and ended.stderr.count("cannot be written") == 1
        assert rounds(kept) == [0, 1, 2], "the oldest are on the disk, and whole"


def test_folders_and_files_are_the_agents_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        spool = Spool(tmp_path / "state" / "spool", SETTINGS, clocks())
        assert spool.put(look(1), 0.0)
        Notes(tmp_path / "notes" / "state", "boot-1").note("x", {"a": 1})
        for path in (*tmp_path.rglob("*"),):
            assert not path.stat().st_mode & 0o077, path
        (tmp_path / "state" / "spool").chmod(0o777)
        assert Spool(tmp_path / "state" / "spool", SETTINGS, clocks()).waiting()
        assert (tmp_path / "state" / "spool").stat().st_mode & 0o7777 == 0o700
    finally:
        os.umask(before)
