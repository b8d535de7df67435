"""An opened ring is read again and again without being reached, for a while."""

import os
import time
from pathlib import Path
from typing import Any

import pytest

from hangdog_agent.stalls.progress.kept_files import KeptRings


def wish(path: Path, pid: int = 7) -> dict[str, Any]:
    return {"pid": pid, "started": 3, "path": str(path), "ring": True}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_it_is_held_for_a_while_and_then_reached_anew(tmp_path: Path, clock: list[float]) -> None:
    rings, ring = KeptRings(), tmp_path / "ring"
    ring.touch()
    assert rings.opened(wish(ring)) is None
    handle = os.open(ring, os.O_RDONLY)
    rings.keep(wish(ring), handle)
    clock[0] += 19.0
    assert rings.opened(wish(ring)) == handle
    assert rings.opened(wish(ring, pid=8)) is None, "another trainer's is another one"
    clock[0] += 2.0
    assert rings.opened(wish(ring)) is None
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(handle)


def test_one_that_was_removed_is_let_go_at_once(tmp_path: Path) -> None:
    rings, ring = KeptRings(), tmp_path / "ring"
    ring.touch()
    rings.keep(wish(ring), os.open(ring, os.O_RDONLY))
    ring.unlink()
    assert rings.opened(wish(ring)) is None


def test_what_nobody_asks_for_is_closed_and_there_are_never_too_many(tmp_path: Path, clock: list[float]) -> None:
    rings, ring = KeptRings(), tmp_path / "ring"
    ring.touch()
    handles = [os.open(ring, os.O_RDONLY) for _ in range(80)]
    for pid, handle in enumerate(handles):
        rings.keep(wish(ring, pid), handle)
    assert sum(rings.opened(wish(ring, pid)) is not None for pid in range(80)) == 64
    clock[0] += 60.0
    rings.expire()
    assert not [handle for handle in handles if Path(f"/proc/self/fd/{handle}").exists()]
