"""A real agent whose NVML loses a GPU, and a real server that is killed and started again: one incident, and the right machine."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from hangdog.demo.conductor import free_port
from hangdog.demo.pipes import first_line
from hangdog_models.incident import CHECKED_WHY, Incident
from hangdog_models.views.first_line import headline
from hangdog_proto.client.channel_options import ServerAddress
from hangdog_proto.client.incidents import Client
from support.fakes.fake_gpus import FakeGpus, built
from support.real import checked_agent

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
OURS = "HANGDOG_LIVE_CHECKED"
AGENT = Path(checked_agent.__file__)
PATIENCE_S = 45.0
#: Longer than the same finding is told again: with every sign of life, and whenever the agent comes back. Seconds.
QUIET_S = 12.0
TRAINER = "import time\nwhile True:\n    time.sleep(0.05)\n"


class Cluster:
    """A server that can be killed, the agent of machine m0, and a rank of the job `checked` there, if it runs one."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        self._folder, self._stack = folder, stack
        self._server = self.serve()

    def start(self, *command: str, env: Mapping[str, str], out: int | None = None) -> subprocess.Popen[bytes]:
        log = self._stack.enter_context((self._folder / "log").open("ab"))
        process = subprocess.Popen((sys.executable, *command), env=env, stdout=out or log, stderr=log)
        if process.stdout is not None:
            self._stack.callback(process.stdout.close)
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)
        return process

    def serve(self) -> subprocess.Popen[bytes]:
        command = ("-m", "hangdog", "server", "--store", str(self._folder / "s.db"), "--listen", self.address)
        clean = {name: value for name, value in os.environ.items() if not name.startswith("HANGDOG_")}
        server = self.start(*command, env=clean, out=subprocess.PIPE)
        assert first_line(server, PATIENCE_S).startswith("listening on ")
        return server

    def kill_and_serve_again(self) -> None:
        self._server.send_signal(signal.SIGKILL)
        self._server.wait()
        self._server = self.serve()

    def connected(self, ranks: int) -> None:
        """Returns once the server knows the machine, and what runs there."""
        until = time.monotonic() + PATIENCE_S
        while True:
            with Client(ServerAddress(self.address)) as client:
                lines = [line for line in client.machines() if line.connected]
            if lines and sum(len(job.ranks) for line in lines for job in line.jobs) == ranks:
                return
            assert time.monotonic() < until, (self._folder / "log").read_text()
            time.sleep(0.25)

    def incidents(self) -> list[Incident]:
        with Client(ServerAddress(self.address)) as client:
            return [line for line in client.incidents("", 9) if line.why.startswith(CHECKED_WHY)]

    def judged(self) -> Incident:
        until = time.monotonic() + PATIENCE_S
        while not (found := [line for line in self.incidents() if line.kind]):
            assert time.monotonic() < until, (self._folder / "log").read_text()
            time.sleep(0.25)
        return found[0]

    def first_line_of(self, incident: str) -> str:
        with Client(ServerAddress(self.address)) as client:
            verdict = client.incident(incident)[1]
        assert verdict is not None
        return headline(verdict)


@pytest.fixture
def gpus(tmp_path: Path) -> FakeGpus:
    library = built(tmp_path)
    if library is None:
        pytest.skip("no C compiler to build the fake NVML with: apt-get install gcc")
    return FakeGpus(tmp_path / "answers", library)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with ExitStack() as stack:
        yield Cluster(tmp_path, stack)


@pytest.mark.parametrize("job", ["checked", ""])
def test_a_lost_gpu_is_one_incident_though_the_server_is_killed(
    cluster: Cluster, gpus: FakeGpus, tmp_path: Path, job: str
) -> None:
    clean = {name: value for name, value in gpus.environ.items() if not name.startswith(("HANGDOG_", "SLURM_", "RANK"))}
    if job:
        (tmp_path / "train.py").write_text(TRAINER)
        ranked = {OURS: "m0", "HANGDOG_JOB": job, "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}
        cluster.start(str(tmp_path / "train.py"), env={**clean, **ranked})
    cluster.start(str(AGENT), cluster.address, "m0", OURS, "m0", env=clean)
    cluster.connected(1 if job else 0)
    time.sleep(5.0)  # its GPUs are seen in order
    gpus.say("1/all", "!15")
    lost = time.monotonic()
    time.sleep(2.0)
    cluster.kill_and_serve_again()
    incident = cluster.judged()
    print(f"lost, server killed after 2 s, judged after {time.monotonic() - lost:.1f} s: {incident.why}")
    assert (incident.job, incident.evict) == (job, ("m0",)) and "GPU lost" in incident.why
    assert cluster.first_line_of(incident.id) == "machine: m0 is at fault: GPU lost (97% sure). Evict m0."
    cluster.kill_and_serve_again()
    time.sleep(QUIET_S)
    assert [line.id for line in cluster.incidents()] == [incident.id]
