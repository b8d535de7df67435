"""Changes of the code that wait: what was noticed is written down once the disk takes it, however long it was full."""

import resource
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hangdog.supervising.history_file import HistoryFile
from hangdog.supervising.pending_changes import PendingChanges
from hangdog_models.recovery.recovery_history import MachinesChanged, OutageOpened, RecoveryRung, Stepped
from support.real.small_disk import small_disk

#: Much longer than anything here takes on a busy machine. Seconds.
PATIENCE_S = 100.0


def test_a_change_that_the_disk_did_not_take_is_not_forgotten(tmp_path: Path) -> None:
    """The kernel refuses the write; neither file nor clock says later that there was something to be read."""
    path = tmp_path / "pending"
    path.write_text("one\n!two\n")
    pending = PendingChanges(path)
    with HistoryFile(tmp_path / "history.jsonl") as kept:
        kept.add(OutageOpened(1.0, "run"))
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, ((tmp_path / "history.jsonl").stat().st_size + 9, before[1]))
        try:
            (first, _) = pending.new(5.0, kept.entries)
            with pytest.raises(OSError, match="too large"):
                kept.add(first)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        path.unlink()
        one, two = MachinesChanged(5.0, "one"), MachinesChanged(5.0, "two", urgent=True)
        assert pending.new(9.0, kept.entries) == (one, two), "as of the moment at which they were noticed"
        kept.add(one)
        assert pending.new(9.0, kept.entries) == (two,)
        kept.add(two)
        assert pending.new(9.0, kept.entries) == ()
        path.write_text("two\nthree\none\n")
        assert pending.new(11.0, kept.entries) == (MachinesChanged(11.0, "three"),)


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A disk of 256 KiB."""
    with small_disk(tmp_path / "small", 256) as folder:
        yield folder


@pytest.mark.slow
@pytest.mark.timeout(PATIENCE_S + 60.0)
def test_an_urgent_change_that_came_while_the_disk_was_full_comes_in_once_there_is_room(
    small: Path, tmp_path: Path
) -> None:
    pending, began, filling, said = tmp_path / "pending", tmp_path / "began", small / "filling", tmp_path / "err"
    job = f"from pathlib import Path; import time; Path({str(began)!r}).touch(); time.sleep(600 * (%s == 1))"
    command = [
        *(sys.executable, "-m", "hangdog", "run", "--attach", "--server", "127.0.0.1:1", "--grace", "1s"),
        *("--state", str(small / "state"), "--pending", str(pending)),
        *("--on-update", shlex.join(["sh", "-c", "echo $HANGDOG_STEP_CHANGES"])),
        *("--", sys.executable, "-c", job % "{attempt}"),
    ]
    with said.open("wb") as err, subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=err) as running:
        try:
            until(began.exists)
            with pytest.raises(OSError, match="No space left"), filling.open("wb", buffering=0) as opened:
                while True:
                    opened.write(bytes(4096))
            many = "".join(f"{number:0190d}\n" for number in range(40))  # more than its last page has room for
            pending.write_text(f"{many}!{'x' * 200}\n")
            until(lambda: b"not complete: [Errno 28]" in said.read_bytes())
            filling.unlink()
            assert running.wait(PATIENCE_S) == 0, said.read_text()
        finally:
            running.terminate()
    words = said.read_text()
    assert words.count("not complete: ") == 1, words
    with HistoryFile(small / "state" / "history.jsonl") as kept:
        changes = [entry.name for entry in kept.entries if isinstance(entry, MachinesChanged)]
        (step,) = (entry.step for entry in kept.entries if isinstance(entry, Stepped))
    assert changes == pending.read_text().replace("!", "").split()
    assert (step.act, list(step.changes)) == (RecoveryRung.UPDATE, changes)


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)
