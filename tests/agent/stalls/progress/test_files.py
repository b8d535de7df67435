"""Looking at files of trainers: appended, cut off, replaced, deleted, no files at all, and ones that hang."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from hangdog_agent.confinement import confined_children
from hangdog_agent.stalls.progress import heartbeat_files
from hangdog_agent.stalls.progress.file_reader import FileQuery, Found
from hangdog_agent.stalls.progress.heartbeat_files import Files
from support.fakes import targets


@pytest.fixture
def rounds() -> Iterator[Files[str]]:
    made: Files[str] = Files()
    yield made
    made.close()


def me() -> tuple[int, int]:
    """This process, which plays the trainer."""
    return targets.row(os.getpid()).key


def at(path: Path, most: int = 0, before: Found | None = None) -> FileQuery:
    known, offset = (before.identity, before.offset) if before else (None, 0)
    return FileQuery(me(), path=str(path), most=most, known=known, offset=offset)


def looked(rounds: Files[str], wishes: dict[str, FileQuery]) -> dict[str, Found | None]:
    """The next answer, however long it takes."""
    found: list[dict[str, Found | None]] = []

    def look() -> bool:
        found.extend(each for _, each in rounds.look(wishes))
        return bool(found)

    targets.until(look)
    return found[0]


def one(rounds: Files[str], wish: FileQuery) -> Found | None:
    return looked(rounds, {"one": wish})["one"]


def read(rounds: Files[str], path: Path, before: Found | None = None, most: int = 100) -> Found:
    found = one(rounds, at(path, most, before))
    assert found is not None
    return found


def test_how_long_ago_it_was_touched(tmp_path: Path, rounds: Files[str]) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"step 1\n")
    found = read(rounds, path)
    assert 0 <= found.age_s < 60
    touched_ns = found.touched_ns - 3600 * 10**9
    os.utime(path, ns=(touched_ns, touched_ns))
    for most in (0, 100):  # as a heartbeat and as a log
        assert 3600 <= read(rounds, path, most=most).age_s < 3660


def test_only_what_was_appended_is_read(tmp_path: Path, rounds: Files[str]) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * 1000 + b"end")
    first = read(rounds, path)
    assert (first.data[-4:], len(first.data), first.offset, first.joins) == (b"xend", 100, 1003, False)
    assert read(rounds, path, first).data == b""
    with path.open("ab") as log:
        log.write(b"more")
        log.flush()
        second = read(rounds, path, first)
        assert (second.data, second.joins) == (b"more", True)
        log.write(b"y" * 500 + b"last")
    third = read(rounds, path, second)
    assert (third.data[-5:], len(third.data), third.joins) == (b"ylast", 100, False)


def test_a_log_that_was_cut_off_or_replaced_begins_anew(tmp_path: Path, rounds: Files[str]) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * 1000)
    first = read(rounds, path)
    os.truncate(path, 0)
    with path.open("ab") as log:
        log.write(b"new")
    second = read(rounds, path, first)
    assert (second.data, second.identity) == (b"new", first.identity)
    path.rename(tmp_path / "log.1")
    path.write_bytes(b"other")
    third = read(rounds, path, second)
    assert third.data == b"other" and third.identity != first.identity and not third.joins


def test_a_deleted_log_is_followed_where_its_writer_holds_it(tmp_path: Path, rounds: Files[str]) -> None:
    path = tmp_path / "log"
    with path.open("wb", buffering=0) as log:
        log.write(b"one")
        first = one(rounds, FileQuery(me(), log.fileno(), most=100))
        assert first is not None
        path.unlink()
        log.write(b"two")
        second = one(rounds, FileQuery(me(), log.fileno(), "", 100, first.identity, first.offset))
        assert second is not None and second.data == b"two"


def test_a_path_begins_at_the_trainer_s_own_folder(tmp_path: Path, rounds: Files[str]) -> None:
    (tmp_path / "log").write_bytes(b"one")
    with subprocess.Popen((sys.executable, "-c", "input()"), stdin=subprocess.PIPE, cwd=tmp_path) as process:
        wish = FileQuery(targets.row(process).key, path="log", most=100)
        found = one(rounds, wish)
        process.kill()
    assert found is not None and found.data == b"one"
    assert one(rounds, wish) is None  # it has ended


def test_what_is_no_regular_file_is_never_opened(tmp_path: Path, rounds: Files[str]) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to(tmp_path / "fifo")
    for path in (tmp_path / "fifo", tmp_path / "link", tmp_path, tmp_path / "none", Path("/dev/zero"), Path("a\0b")):
        assert one(rounds, at(path, 100)) is None
    with pytest.raises(OSError, match="No such device"):  # nobody reads it, nor has it open
        os.open(tmp_path / "fifo", os.O_WRONLY | os.O_NONBLOCK)


def test_paths_longer_than_any_are_left_out(tmp_path: Path, rounds: Files[str]) -> None:
    (tmp_path / "a").touch()
    found = looked(rounds, {"long": at(Path("/" + "x" * 5000)), "a": at(tmp_path / "a")})
    assert found.keys() == {"a"}


def test_more_wishes_than_a_line_holds_are_left_for_later(tmp_path: Path, rounds: Files[str]) -> None:
    folder = tmp_path / ("f" * 200)
    folder.mkdir()
    wishes = {str(number): at(folder / ("../" + folder.name + "/") / str(number)) for number in range(250)}
    found = looked(rounds, wishes)
    assert 50 < len(found) < 250


#: Looks at files as ever, but sleeps at those of some names. A fake: a file system that hangs cannot be had in a test.
HANGING = """
import sys, time
sys.path.insert(0, {packages!r})
from hangdog_agent.stalls.progress import file_reader_process
look = file_reader_process._look
def hang(start, wish):
    if wish["path"].rpartition("/")[2] in {names!r}:
        time.sleep(600)
    return look(start, wish)
file_reader_process._look = hang
file_reader_process.main()
"""


@contextmanager
def hanging(monkeypatch: pytest.MonkeyPatch, *names: str) -> Iterator[None]:
    """Paths of these names do not answer, for processes that are started meanwhile."""
    program = HANGING.format(packages=confined_children._PACKAGES, names=names)
    with monkeypatch.context() as patch:
        patch.setattr(
            confined_children, "reader", lambda _, *given: (sys.executable, "-I", "-S", "-c", program, *given)
        )
        patch.setattr(heartbeat_files, "_HANGS_S", 1.5)
        yield


def test_a_file_that_hangs_costs_no_other_file_and_nobody_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rounds: Files[str]
) -> None:
    for name in "abc":
        (tmp_path / name).touch()
    wishes = {name: at(tmp_path / name, 100) for name in "abc"}
    found: dict[str, Found | None] = {}
    with hanging(monkeypatch, "b"):
        began = time.monotonic()
        tries = 0
        while not found:
            tries += 1
            for _, each in rounds.look(wishes):
                found |= each
        assert found.keys() == {"a"}
        assert time.monotonic() - began < 0.2 * tries
    assert looked(rounds, wishes).keys() == {"a", "c"}  # b is set aside for a while
    monkeypatch.setattr(rounds, "_aside", {})
    assert looked(rounds, wishes).keys() == {"a", "b", "c"}


def test_with_one_file_all_of_its_file_system_is_set_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rounds: Files[str]
) -> None:
    for name in "abc":
        (tmp_path / name).touch()
    wishes = {name: at(tmp_path / name, 100) for name in "abc"} | {"else": at(Path("/proc/uptime"))}
    assert looked(rounds, wishes).keys() == wishes.keys()
    rounds.close()
    with hanging(monkeypatch, "a", "b", "c"):
        looked(rounds, wishes)
        targets.until(lambda: any(found.keys() == {"else"} for _, found in rounds.look(wishes)))


def test_a_user_whose_process_ends_is_left_alone_for_a_while(
    tmp_path: Path, rounds: Files[str], caplog: pytest.LogCaptureFixture
) -> None:
    """As where its user kills it, who may: the other users' files are followed on."""
    (tmp_path / "a").touch()
    wishes = {"a": at(tmp_path / "a")}
    looked(rounds, wishes)
    (reader,) = rounds._readers.values()
    os.kill(reader.pid, 9)
    targets.until(lambda: not rounds.look(wishes) and not rounds._readers)
    assert len([record for record in caplog.records if "not followed for 60 s" in record.message]) == 1


@pytest.fixture
def way_for_all() -> Iterator[Path]:
    """A folder that every user enters: pytest shuts its own ones whenever it starts anywhere on this machine."""
    with tempfile.TemporaryDirectory(prefix="hangdog-files-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def test_files_are_looked_at_as_their_trainer_s_user(way_for_all: Path, rounds: Files[str]) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to start a process of another user")
    open_to_all, closed = way_for_all / "open", way_for_all / "closed"
    for path in (open_to_all, closed):
        path.write_bytes(b"step 1")
        path.chmod(0o644 if path is open_to_all else 0o600)
    call = ("setpriv", "--reuid=40001", "--regid=40001", "--clear-groups", "/bin/sleep", "600")
    with subprocess.Popen(call) as process:
        targets.until(lambda: Path(f"/proc/{process.pid}/comm").read_text().strip() == "sleep")
        trainer = targets.row(process, python=False).key
        wishes = {path.name: FileQuery(trainer, path=str(path), most=100) for path in (open_to_all, closed)}
        found = looked(rounds, wishes)
        (reader,) = rounds._readers.values()
        status = Path(f"/proc/{reader.pid}/status").read_text()
        process.kill()
    seen = found["open"]
    assert seen is not None and seen.data == b"step 1"
    assert found["closed"] is None
    lines = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert lines["Uid"].split() == ["40001"] * 4
    assert (int(lines["CapEff"], 16), lines["NoNewPrivs"], lines["Seccomp"]) == (0, "1", "2")


def test_the_end_of_a_log_is_read_once_more_when_its_trainer_has_ended(tmp_path: Path, rounds: Files[str]) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"step 1\n")
    writes = "import sys; sys.stdin.read(); print('last words', flush=True)"
    with (
        path.open("ab") as log,
        subprocess.Popen((sys.executable, "-c", writes), stdin=subprocess.PIPE, stdout=log) as trainer,
    ):
        key = targets.row(trainer.pid).key
        held, dropped = (FileQuery(key, descriptor=1, most=100, keep=keep) for keep in (True, False))
        assert one(rounds, held) is not None
        assert one(rounds, replace(held, path="x", keep=False)) is not None
        trainer.communicate(b"")
    assert one(rounds, held) is None, "it ended"
    last = one(rounds, replace(held, ended=True))
    assert last is not None and last.data == b"step 1\nlast words\n"
    assert one(rounds, replace(dropped, path="x", ended=True)) is None, "nobody wanted it kept"
