"""Faults of the demo, struck at a moment that does not suit them."""

import os
from pathlib import Path

from hangdog.demo.faults import replace_shards, spoil_next_checkpoint


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


def test_at_no_moment_a_shard_is_missing(tmp_path: Path) -> None:
    shards = tmp_path / "shards"
    shards.mkdir()
    names = ["00000.tokens", "00001.tokens"]
    for name in names:
        (shards / name).write_text("tokens")

    def make(path: Path, _name: str) -> None:
        assert sorted(shard.name for shard in shards.iterdir()) == names
        os.mkfifo(path)

    replace_shards(shards, make)
    assert sorted(shard.name for shard in shards.iterdir()) == names
    assert all(shard.is_fifo() for shard in shards.iterdir())
    assert sorted(tmp_path.iterdir()) == [shards]
