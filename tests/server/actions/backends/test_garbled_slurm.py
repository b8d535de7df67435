"""A Slurm whose commands answer what no Slurm answers: nothing is concluded from it."""

import os
from pathlib import Path

import pytest

from hangdog_server.actions.backends.backend import BackendFailed, IsolationCase
from hangdog_server.actions.backends.slurm_drain import Slurm

CASE = IsolationCase("0a", "node1", "7")
GARBAGE = ("", "slurm_load_node: warning", "x" * 5000, "= = =", "\x00\xff\n" * 50)


@pytest.fixture
def said(tmp_path: Path) -> Path:
    """What every command of Slurm's prints; each is written down in the file `asked`."""
    for name in ("scontrol", "squeue"):
        command = tmp_path / name
        command.write_text(f'#!/bin/sh\necho "$0 $@" >> {tmp_path}/asked\ncat {tmp_path}/said\n')
        command.chmod(0o755)
    return tmp_path / "said"


@pytest.mark.parametrize("garbage", GARBAGE)
async def test_garbage_drains_nothing_and_queues_nothing_again(said: Path, garbage: str) -> None:
    said.write_text(garbage, encoding="latin-1")
    actor = Slurm(environ={**os.environ, "PATH": f"{said.parent}:{os.environ['PATH']}"})
    for asked in (actor.look(CASE), actor.mark(CASE), actor.unmark(CASE), actor.move(CASE, "7:0", ["node1"])):
        with pytest.raises(BackendFailed) as caught:
            await asked
        assert caught.value.again and caught.value.code == "backend-answer-unreadable"
    assert await actor.run_of(CASE) == "", "none of these lines is a job"
    done = (said.parent / "asked").read_text()
    assert " show " in done and " update " not in done and "requeue" not in done


async def test_a_line_without_a_job_is_none(said: Path) -> None:
    said.write_text(" RUNNING\n7 COMPLETING\n8_1 RUNNING x\n")
    actor = Slurm(environ={**os.environ, "PATH": f"{said.parent}:{os.environ['PATH']}"})
    assert await actor.run_of(CASE) == ""
