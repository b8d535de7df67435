"""A real gloo job on two machines, from its rings to the server's answer: its communicator moves, and then waits for one rank."""

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from support.servers.browsed import Browsed, browsed

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(700),
    pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed: make torch"),
]
#: The trainer's rank that never comes is the third.
RANKS, GUILTY = 4, 2
MARK = "HANGDOG_TEST_COMMUNICATORS"
TRAINER = Path(__file__).resolve().parents[1] / "support" / "real" / "traced_trainer.py"
#: Much longer than anything here takes on a busy machine. Seconds.
PATIENCE_S = 300.0
QUICK = {"scan_s": 0.5, "communicators_every_s": 2}


@contextlib.contextmanager
def programs(folder: Path, server: str) -> Iterator[str]:
    """Two agents and the ranks of a job, two on each machine; the job's name."""
    job = f"traced-{uuid4().hex[:12]}"
    with ExitStack() as stack:

        def start(*command: str, **environ: str) -> None:
            process = stack.enter_context(
                subprocess.Popen([sys.executable, *command], env=os.environ | environ, stderr=subprocess.DEVNULL)
            )
            stack.callback(process.kill)

        for rank in range(RANKS):
            own = {"HANGDOG_JOB": job, "HANGDOG_PROFILER_DIR": str(folder / "rings"), "GLOO_SOCKET_IFNAME": "lo"}
            own |= {"RANK": str(rank), "LOCAL_RANK": str(rank % 2), "WORLD_SIZE": str(RANKS)}
            start(
                str(TRAINER), str(folder), str(rank), str(RANKS), "traced", **own, **{MARK: f"{job}-{'ab'[rank // 2]}"}
            )
        for machine in "ab":
            told = [word for name, value in QUICK.items() for word in ("--set", f"{name}={value}")]
            which = "--match-env", f"{MARK}={job}-{machine}", "--state", str(folder / machine)
            start("-m", "hangdog_agent.main", "--server", server, "--machine", machine, *which, *told)
        yield job


async def answered(site: Browsed, job: str, wanted: Callable[[Any], bool]) -> Any:
    """The job's one communicator, once it is as wanted."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with contextlib.suppress(
                httpx.TransportError
            ):  # on a busy machine the server ends a request that comes slowly
                found = await site.http.get(f"/api/jobs/{job}/communicators")
                listed = found.json()["communicators"] if found.status_code == 200 else ()
                if listed and wanted(listed[0]):
                    assert len(listed) == 1, listed
                    return listed[0]
            await asyncio.sleep(0.5)


async def test_a_communicator_is_seen_to_move_and_then_to_wait_for_one_rank(tmp_path: Path) -> None:
    async with browsed(tmp_path / "s.db") as site:
        with programs(tmp_path, site.on.address) as job:
            moves = await answered(site, job, lambda one: one["seen"] == RANKS and one["rate"] > 1)
            assert (moves["state"], moves["machines"], moves["size"], moves["behind"]) == ("moves", 2, RANKS, [])
            (tmp_path / "hang").touch()
            waits = await answered(site, job, lambda one: one["state"] == "waits" and one["behind"])
            assert waits["behind"] == [{"machine": "b", "ranks": str(GUILTY)}], waits
            assert waits["highest"] == waits["lowest"] + 1 and waits["age_s"] >= 10
            page = (await site.http.get(f"/jobs/{job}/communicators")).text
            assert f'rank {GUILTY} on <a href="/machines/b">' in page and "waits inside of" in page
