"""Real jobs of torchrun that never come to train, at the first start or at a later one: suspected, and the rank that lacks is named."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from frameworks.guard import ClusterGuard
from hangdog.demo.conductor import free_port
from hangdog_agent.discovery.process_table import ProcessTable
from hangdog_agent.discovery.watch import Watch
from hangdog_agent.procfs import Proc
from hangdog_agent.settings import AgentSettings
from hangdog_models.verdict import Verdict, from_json

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed: pip install 'hangdog[demo]'"),
]
#: The ranks are given so long to join instead of minutes. Seconds.
JOIN_S = 20.0
PATIENCE_S = 180.0
OURS = "HANGDOG_LIVE_ELASTIC"

TRAINER = """
import os, time
import torch, torch.distributed as dist
rank, start = int(os.environ["RANK"]), int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 1))
def read_settings():
    time.sleep(600)
if start == 0:  # nobody joins before: what Gloo leaves in torchrun's store from a start before ends the next one
    os._exit(1) if rank == 1 else time.sleep(600)
if start == 1 and rank == 2:
    read_settings()
dist.init_process_group("gloo")
for _ in range(100_000):
    dist.all_reduce(torch.ones(1))
    time.sleep(0.05)
"""


@contextmanager
def started(folder: Path, launches: Sequence[tuple[Sequence[str], Mapping[str, str]]]) -> Iterator[None]:
    """Runs these commands, each with its own variables, and ends all that they started."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "RANK", "WORLD_"))}
    clean |= {OURS: str(folder), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "CUDA_VISIBLE_DEVICES": ""}
    (folder / "train.py").write_text(TRAINER)
    with ExitStack() as stack:
        for command, environ in launches:
            process = subprocess.Popen(
                (sys.executable, *command), cwd=folder, env={**clean, **environ}, start_new_session=True,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            stack.callback(process.wait)
            stack.callback(
                process.send_signal, signal.SIGTERM
            )  # torchrun ends its ranks itself, which are in groups of their own
        yield


def judged(folder: Path) -> Verdict:
    """What comes of the first suspicion."""
    settings = AgentSettings()
    settings = replace(settings, stalls=replace(settings.stalls, start_s=JOIN_S))
    watch = Watch(ProcessTable(Proc(), frozenset([OURS])), (OURS, str(folder)), (), settings.link.forget_s)
    with ClusterGuard({"here": watch}, folder, settings) as guard:
        until_s = time.monotonic() + PATIENCE_S
        while (incident := guard.verdict()) is None and time.monotonic() < until_s:
            time.sleep(0.5)
        assert incident is not None and incident.why.startswith("suspected")
        return from_json(json.loads(incident.verdict))


def test_a_rank_that_does_not_join_after_an_elastic_restart(tmp_path: Path) -> None:
    run = ("-m", "torch.distributed.run", "--nproc-per-node=4", "--max-restarts=1", f"--master-port={free_port()}")
    with started(tmp_path, [((*run, "train.py"), {})]):
        verdict = judged(tmp_path)
    assert verdict.suspects[0].ranks == (2,) and any("read_settings" in word.text for word in verdict.because)


@pytest.mark.soak
def test_a_rank_that_is_not_there_at_the_first_start(tmp_path: Path) -> None:
    meets = {"WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "HANGDOG_JOB": "elastic"}
    ranks = [(("train.py",), meets | {"RANK": str(rank), "LOCAL_RANK": str(rank)}) for rank in range(3)]
    with started(tmp_path, ranks):
        verdict = judged(tmp_path)
    assert verdict.coverage.missing == (3,) and not verdict.evict.machines
