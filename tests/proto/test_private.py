"""What hangdog keeps is its owner's alone, whatever the umask, and what was wider is narrowed where that harms nobody else."""

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hangdog_proto.private_files import make_file, make_folder, restrict_file, restrict_folder


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


def test_folders_and_files_are_their_owners_alone(tmp_path: Path) -> None:
    made = tmp_path / "a" / "b"
    make_folder(made)
    make_folder(made)
    make_file(made / "c")
    assert [mode(path) for path in (made.parent, made, made / "c")] == [0o700, 0o700, 0o600]


def test_a_file_that_is_there_keeps_what_is_in_it(tmp_path: Path) -> None:
    (tmp_path / "c").write_text("kept")
    make_file(tmp_path / "c")
    assert (tmp_path / "c").read_text() == "kept"


def test_what_is_wider_is_narrowed_and_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "ours"
    folder.mkdir(0o777)
    (folder / "s.db").touch(0o664)
    (folder / "s.db-wal").touch(0o666)
    restrict_folder(folder, ("s.db*",))
    assert [mode(path) for path in (folder, folder / "s.db", folder / "s.db-wal")] == [0o700, 0o600, 0o600]
    assert len(caplog.records) == 3 and all(record.levelno == logging.WARNING for record in caplog.records)
    caplog.clear()
    restrict_folder(folder, ("s.db*",))
    assert not caplog.records


def test_a_folder_shared_with_others_stays_as_it_is(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """`--store /var/lib/incidents.db`, started by root, must not take /var/lib from everybody."""
    (tmp_path / "shared").mkdir(0o777)
    (tmp_path / "shared" / "s.db").touch(0o644)
    (tmp_path / "shared" / "other").touch(0o644)
    restrict_folder(tmp_path / "shared", ("s.db*",))
    assert mode(tmp_path / "shared") == 0o777
    assert (mode(tmp_path / "shared" / "s.db"), mode(tmp_path / "shared" / "other")) == (0o600, 0o644)
    assert "give hangdog one of its own" in caplog.text


def test_a_planted_link_changes_nothing_elsewhere(tmp_path: Path) -> None:
    victim = tmp_path / "passwd"
    victim.touch(0o644)
    (tmp_path / "tokens.json").symlink_to(victim)
    restrict_file(tmp_path / "tokens.json")
    assert mode(victim) == 0o644


def test_a_planted_pipe_holds_nobody_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "tokens.json", 0o666)
    restrict_file(tmp_path / "tokens.json")
    assert mode(tmp_path / "tokens.json") == 0o666


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file away")
def test_what_is_somebody_elses_stays_theirs(tmp_path: Path) -> None:
    (tmp_path / "tokens.json").touch(0o644)
    os.chown(tmp_path / "tokens.json", 12345, 12345)
    restrict_file(tmp_path / "tokens.json")
    assert mode(tmp_path / "tokens.json") == 0o644
