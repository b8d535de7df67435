"""A real gloo job whose hang nothing but its rings shows: no recorder, no RAS, and all hosts poll in the same function."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from uuid import uuid4

import pytest

from hangdog_agent.capture import collective_progress
from support.fakes import targets

Run = Callable[..., "subprocess.CompletedProcess[bytes]"]
RANKS, GUILTY = 4, 2
TRAINER = Path(__file__).resolve().parents[1] / "support" / "real" / "traced_trainer.py"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed: make torch"),
]


@contextmanager
def training(folder: Path, traced: str) -> Iterator[tuple[str, list["subprocess.Popen[bytes]"]]]:
    """The job's name and its ranks, once each has made five steps."""
    job = f"traced-{uuid4().hex[:12]}"
    with ExitStack() as stack:
        ranks = []
        for rank in range(RANKS):
            own = {"HANGDOG_JOB": job, "HANGDOG_TOPOLOGY": f"dp={RANKS}", "HANGDOG_PROFILER_DIR": str(folder / "rings")}
            own |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(RANKS)}
            command = [sys.executable, str(TRAINER), str(folder), str(rank), str(RANKS), traced]
            process = stack.enter_context(subprocess.Popen(command, env=os.environ | own))
            stack.callback(process.kill)
            ranks.append(process)
        targets.until(lambda: all((folder / f"trains-{rank}").exists() for rank in range(RANKS)), 90.0)
        yield job, ranks


def judged(hangdog: Run, job: str) -> dict[str, object]:
    ran = hangdog("capture", "--job", job, "--looks", "2", "--every", "0.2", "--machine", "both", "-o", "b.tar")
    assert ran.returncode == 0, ran.stderr.decode()
    verdict: dict[str, object] = json.loads(hangdog("triage", "b.tar", "--format", "json").stdout)
    return verdict


@pytest.mark.timeout(240)
def test_the_ring_counts_and_names_the_rank_that_does_not_come(readable: None, hangdog: Run, tmp_path: Path) -> None:
    with training(tmp_path, "traced") as (job, ranks):

        def made() -> list[int]:
            now, rings = time.monotonic_ns(), []
            for one in ranks:  # what is written while it is read is left out, and read again
                while not (ring := collective_progress.read(one.pid, now, str(tmp_path / "rings"))):
                    pass
                rings.append(ring)
            assert {(ring[0].rank, ring[0].ranks) for ring in rings} == {(rank, RANKS) for rank in range(RANKS)}
            assert len({ring[0].communicator for ring in rings}) == 1
            return [ring[0].finished for ring in rings]

        before = made()
        targets.until(lambda: all(now > then + 3 for now, then in zip(made(), before, strict=True)))
        (tmp_path / "hang").touch()
        time.sleep(8.0)  # what is in flight must be older than a moment of a step
        verdict = judged(hangdog, job)
    suspects = verdict["suspects"]
    assert isinstance(suspects, list) and suspects and suspects[0]["ranks"] == str(GUILTY), verdict
    assert "GPU" not in json.dumps(verdict["because"]), "hosts carry out what gloo does"


@pytest.mark.timeout(240)
def test_without_the_ring_the_same_hang_names_nobody(readable: None, hangdog: Run, tmp_path: Path) -> None:
    with training(tmp_path, "untraced") as (job, _):
        (tmp_path / "hang").touch()
        time.sleep(8.0)
        verdict = judged(hangdog, job)
    suspects = verdict["suspects"]
    assert isinstance(suspects, list) and str(GUILTY) not in [one["ranks"] for one in suspects]
