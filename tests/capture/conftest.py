"""What the tests of captures share: ranks of a job of their own, and a folder to write into."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from uuid import uuid4

import pytest

from hangdog_agent.capture import pyspy
from hangdog_agent.doctor.doctor import Health, examine
from hangdog_models.stack import Missing
from support.fakes import targets

Ranks = Callable[..., AbstractContextManager[tuple[str, list["subprocess.Popen[bytes]"]]]]


@pytest.fixture(scope="session")
def readable() -> None:
    """Skips the test where processes cannot be captured, with the line to change."""
    tool = pyspy.load()
    assert not isinstance(tool, Missing), tool
    refused = next((f for f in examine(tool=tool) if f.name == "another's process" and f.health is Health.FAIL), None)
    if refused:
        pytest.skip(f"{refused.what}: {refused.fix}")


@pytest.fixture
def ranks(readable: None) -> Ranks:
    """Processes that say they are the ranks of a job which no other test has, and its name."""

    @contextlib.contextmanager
    def start(count: int = 2, *arguments: str, **environ: str) -> Iterator[tuple[str, list["subprocess.Popen[bytes]"]]]:
        job = f"capture-{uuid4().hex[:12]}"
        own = {"TORCHELASTIC_RUN_ID": job, "WORLD_SIZE": str(count), **environ}
        with contextlib.ExitStack() as stack:
            yield (
                job,
                [
                    stack.enter_context(
                        targets.running(
                            targets.WAIT, *arguments, environ=own | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
                        )
                    )
                    for rank in range(count)
                ],
            )

    return start


@pytest.fixture
def hangdog(tmp_path: Path) -> Callable[..., "subprocess.CompletedProcess[bytes]"]:
    """Runs the command in a folder of its own, and gives what it printed as bytes."""

    def run(*arguments: str | Path, **environ: str) -> "subprocess.CompletedProcess[bytes]":
        command = [sys.executable, "-m", "hangdog", *(str(one) for one in arguments)]
        return subprocess.run(
            command, cwd=tmp_path, env={**os.environ, **environ}, capture_output=True, check=False, timeout=100
        )

    return run
