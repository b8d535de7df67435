"""A file of excluded machines on a disk that is full, or does not answer."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from hangdog_server.actions.backends.backend import BackendFailed, IsolationCase, Mark
from hangdog_server.actions.backends.exclude_file import ExcludeFile
from support.real.small_disk import small_disk

CASE = IsolationCase("0a1b", "gpu-a17", "llama", "rank 3 is in gc_collect")


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A disk of 64 KiB."""
    with small_disk(tmp_path / "small", 64) as folder:
        yield folder


async def test_on_a_full_disk_what_stood_there_stays_and_it_is_tried_again(small: Path) -> None:
    file, filling = small / "excluded", small / "filling"
    kept = "# kept by hand\n" + "".join(f"other-{number}\n" for number in range(1000))
    file.write_text(kept)
    actor = ExcludeFile(file)
    await actor.look(CASE)
    with pytest.raises(OSError, match="No space left"), filling.open("wb", buffering=0) as opened:
        while True:
            opened.write(b"x" * 4096)
    with pytest.raises(BackendFailed, match="No space left") as caught:
        await actor.mark(CASE)
    assert caught.value.code == "unwritable-file"
    assert caught.value.again and file.read_text() == kept
    assert not (small / ".excluded.new").exists(), "half a file would take what room there is"
    filling.unlink()
    await actor.mark(CASE)
    assert file.read_text() == f"{kept}gpu-a17  # {CASE.reason}\n"


async def test_a_disk_that_does_not_answer_is_asked_by_one_thread_alone_and_again_once_it_is_back(
    tmp_path: Path,
) -> None:
    os.mkfifo(lock := tmp_path / ".excluded.lock")  # whoever opens it to write waits for a reader, as for a dead disk
    actor, before = ExcludeFile(tmp_path / "excluded", within_s=0.2), set(threading.enumerate())
    for _ in range(3):
        with pytest.raises(BackendFailed, match=str(tmp_path)) as caught:
            await actor.mark(CASE)
        (hung,) = (one for one in set(threading.enumerate()) - before if one.name == "shared disk")
        assert caught.value.again and caught.value.code == "backend-unreachable"
    lock.rename(tmp_path / "came")
    with (tmp_path / "came").open("rb"):
        hung.join(60)
    patient = ExcludeFile(tmp_path / "excluded")
    await patient.mark(CASE)
    assert (await patient.look(CASE)).mark is Mark.OURS
    assert (tmp_path / "excluded").read_text() == f"gpu-a17  # {CASE.reason}\n", "once, though it was asked twice"
