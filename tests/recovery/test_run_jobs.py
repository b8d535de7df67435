"""`hangdog run` end to end: real torch jobs below torchrun, real server and agents, a machine's hang and one of the user's code."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest

from hangdog.supervising.descendants import kill, with_environ

#: Each takes some 30 s on two idle cores; this bounds a busy machine. Seconds.
PATIENCE_S = 300.0
#: The job's last step, and the one after which a fault strikes: by then all ranks have a rhythm.
LAST, STRIKE = 60, 50
#: It trains for seconds only: its rhythm is to be known sooner than a real job's, and a standstill before that borne for less.
RHYTHM = ("--set", "settle_s=3", "--set", "start_s=30")
#: A version of the user's code; the second has a bug that skips a collective on one rank.
REPORT = """
import torch.distributed as dist

def report(rank, step, loss):
    if {bug}:
        return loss
    dist.all_reduce(loss)
    return loss / dist.get_world_size()
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(PATIENCE_S + 60.0),
    pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed: pip install 'hangdog[demo]'"),
]


#: Two machines of two ranks with torchrun on each, and three of one rank that are started as they are.
TORCHRUN = (
    *(sys.executable, "-m", "torch.distributed.run", "--nnodes", "{machines}", "--node-rank", "{index}"),
    *("--nproc-per-node", "2", "--master-addr", "127.0.0.1", "--master-port", "{port}"),
)
PLAIN = (
    *("env", "RANK={index}", "WORLD_SIZE={machines}", "MASTER_ADDR=127.0.0.1", "MASTER_PORT={port}"),
    sys.executable,
)


class Run:
    """One `hangdog run` of a job on `machines` machines, with one more to spare."""

    def __init__(self, folder: Path, code: str, machines: int, launcher: Sequence[str], *options: str) -> None:
        self.folder = folder
        folder.mkdir()
        for version, bug in (("v1", "False"), ("v2", f"rank == 2 and step == {STRIKE}")):
            (folder / version).mkdir()
            (folder / version / "report.py").write_text(REPORT.format(bug=bug))
        (folder / "code").symlink_to(code)
        names = [word for number in range(machines) for word in ("--machine", f"node-{number}")]
        trainer = (str(Path(__file__).with_name("trainer.py")), str(folder), str(LAST))
        self.out, self.err = folder / "out", folder / "err"
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "hangdog", "run", "--state", str(folder / "state"), "--grace", "1s"),
                    *(*names, "--spare", f"node-{machines}", *RHYTHM, *options, "--", *launcher, *trainer),
                ],
                env=os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
                stdout=out,
                stderr=err,
            )

    def strike(self, rank: int) -> None:
        """Stops a rank once it has trained for a while."""
        until = time.monotonic() + PATIENCE_S
        while f"step {STRIKE} " not in self.out.read_text():
            assert time.monotonic() < until, self.err.read_text()
            assert self.process.poll() is None, self.err.read_text()
            time.sleep(0.05)
        mine = set(with_environ("RANK", str(rank))) & set(with_environ("HANGDOG_RUN_TOKEN", self.token()))
        assert len(mine) == 1
        kill(mine, signal.SIGSTOP)

    def token(self) -> str:
        found = re.findall(r'"token": "(\w+)"', (self.folder / "state" / "history.jsonl").read_text())
        return str(found[-1])

    def wait(self) -> str:
        """What hangdog said, once the job has ended; it must have reached its last step."""
        status = self.process.wait(PATIENCE_S)
        said = self.err.read_text()
        assert status == 0, said
        assert (self.folder / "finished").read_text().split()[0] == str(LAST), said
        assert not with_environ("HANGDOG_RUN_TOKEN", self.token())
        print(said)
        return said


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Run]]:
    """Both at the same time: most of it is waiting."""
    folder = tmp_path_factory.mktemp("runs")
    back = shlex.join(["ln", "-sfn", "v1", str(folder / "bug" / "code")])
    running = {
        "machine": Run(folder / "machine", "v1", 2, TORCHRUN),
        "bug": Run(folder / "bug", "v2", 3, PLAIN, "--on-rollback", back),
    }
    try:
        running["machine"].strike(rank=3)
        yield running
    finally:
        for run in running.values():
            run.process.terminate()
            run.process.wait(PATIENCE_S)


def test_a_machine_that_hangs_is_left_out_and_training_resumes_on_the_spare(runs: Mapping[str, Run]) -> None:
    said = runs["machine"].wait()
    assert re.search(r"step 1: evict node-1, .*verdict machine, >?\d+%: rank 3 .*stopped", said), said
    assert "attempt 2 starts on node-0, node-2" in said
    resumed = re.findall(r"resumes after step (\d+)", runs["machine"].out.read_text())
    assert len(resumed) == 4
    assert {STRIKE - 5 <= int(step) <= LAST for step in resumed} == {True}
    assert re.search(r"outage 1: \d+ s \(\d+ s .*, \d+ s .*, \d+ s .*\), done: evict", said)
    assert re.search(r"unproductive time: [1-9]\d* s", said)


def test_a_hang_of_the_users_code_is_rolled_back_and_evicts_nobody(runs: Mapping[str, Run]) -> None:
    said = runs["bug"].wait()
    assert re.search(r"step 1: rollback, .*verdict software", said), said
    assert "evict" not in said
    assert "attempt 2 starts on node-0, node-1, node-2" in said
    assert (runs["bug"].folder / "code").readlink() == Path("v1")
    assert re.search(r"unproductive time: [1-9]\d* s", said)
