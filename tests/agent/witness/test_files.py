"""Looking at files of others: appended, cut off, replaced, deleted, no files at all, and ones that hang."""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import targets
from hangdog_agent.witness import files
from hangdog_agent.witness.files import Files, Found, Wish, look


def read(path: Path, before: Found | None = None, most: int = 100) -> Found:
    found = look(Wish(str(path), most, before.identity if before else None, before.offset if before else 0))
    assert found is not None
    return found


def test_only_what_was_appended_is_read(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * 1000 + b"end")
    first = read(path)
    assert (first.data[-4:], len(first.data), first.offset, first.joins) == (b"xend", 100, 1003, False)
    assert read(path, first).data == b""
    with path.open("ab") as log:
        log.write(b"more")
        log.flush()
        second = read(path, first)
        assert (second.data, second.joins) == (b"more", True)
        log.write(b"y" * 500 + b"last")
    third = read(path, second)
    assert (third.data[-5:], len(third.data), third.joins) == (b"ylast", 100, False)


def test_a_log_that_was_cut_off_or_replaced_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * 1000)
    first = read(path)
    os.truncate(path, 0)
    with path.open("ab") as log:
        log.write(b"new")
    second = read(path, first)
    assert (second.data, second.identity) == (b"new", first.identity)
    path.rename(tmp_path / "log.1")
    path.write_bytes(b"other")
    third = read(path, second)
    assert third.data == b"other" and third.identity != first.identity and not third.joins


def test_a_deleted_log_is_followed_where_its_writer_holds_it(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with path.open("wb", buffering=0) as log:
        log.write(b"one")
        held = Path(f"/proc/{os.getpid()}/fd/{log.fileno()}")
        first = read(held)
        path.unlink()
        log.write(b"two")
        assert read(held, first).data == b"two"


def test_what_is_no_regular_file_is_never_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to(tmp_path / "fifo")
    for path in (tmp_path / "fifo", tmp_path / "link", tmp_path, tmp_path / "none", Path("/dev/zero"), Path("a\0b")):
        assert look(Wish(str(path), 100)) is None
    with pytest.raises(OSError, match="No such device"):  # nobody reads it, nor has it open
        os.open(tmp_path / "fifo", os.O_WRONLY | os.O_NONBLOCK)


@contextmanager
def hanging(monkeypatch: pytest.MonkeyPatch, *names: str) -> Iterator[None]:
    """Paths of these names do not answer. A fake: a file system that hangs cannot be had in a test."""
    answer = threading.Event()

    def hang(wish: Wish) -> Found | None:
        if Path(wish.path).name in names:
            answer.wait()
        return look(wish)

    monkeypatch.setattr(files, "look", hang)
    monkeypatch.setattr(files, "_HANGS_S", 0.05)
    try:
        yield
    finally:
        answer.set()


def test_a_file_that_hangs_costs_no_other_file_and_nobody_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abc":
        (tmp_path / name).touch()
    wishes = {name: Wish(str(tmp_path / name), 100) for name in "abc"}
    rounds: Files[str] = Files()
    with hanging(monkeypatch, "b"):
        found: dict[str, Found | None] = {}
        began = time.monotonic()
        tries = 0
        while not found:
            tries += 1
            answer = rounds.look(wishes)
            found = answer[1] if answer else {}
        assert found.keys() == {"a", "c"}
        assert time.monotonic() - began < 0.2 * tries
    targets.until(lambda: "b" in (rounds.look(wishes) or (0, {}))[1])


def test_with_one_file_all_of_its_file_system_is_set_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "abc":
        (tmp_path / name).touch()
    wishes = {name: Wish(str(tmp_path / name), 100) for name in "abc"} | {"else": Wish("/proc/self/status")}
    rounds: Files[str] = Files()
    assert rounds.look(wishes) is not None
    with hanging(monkeypatch, "a", "b", "c"):
        targets.until(lambda: (rounds.look(wishes) or (0, {}))[1].keys() == {"else"})
        assert sum(thread.name == "hangdog-files" for thread in threading.enumerate()) == 1


def test_only_a_few_threads_are_ever_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wishes = {name: Wish(str(tmp_path / name), 100) for name in "abcdefgh"}  # none is known: each may lie elsewhere
    rounds: Files[str] = Files()

    def hang() -> int:
        assert rounds.look(wishes) is None
        return sum(thread.name == "hangdog-files" for thread in threading.enumerate())

    with hanging(monkeypatch, *wishes):
        targets.until(lambda: hang() == 4)
        for _ in range(5):
            assert hang() == 4
    targets.until(lambda: rounds.look(wishes) is not None)
