"""Faults of the demo, struck at a moment that does not suit them."""

import os
from pathlib import Path

from hangdog.demo.faults import spoil_next_checkpoint


def test_a_checkpoint_that_is_being_written_is_not_the_one_that_is_spoilt(tmp_path: Path) -> None:
    unfinished, finished = tmp_path / "model.part", tmp_path / "model.pt"
    unfinished.write_text("half a model")
    tries = 0

    def put(path: Path) -> None:
        nonlocal tries
        tries += 1
        if tries == 3:  # the trainer is done with it
            unfinished.replace(finished)
        os.mkfifo(path)

    spoil_next_checkpoint(tmp_path, put)
    assert finished.read_text() == "half a model"
    assert unfinished.is_fifo()
