"""A real agent whose NVML loses a GPU, and a real server that is killed and started again: one incident, and the right machine."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from hangdog_models.incident import CHECKED_WHY
from hangdog_models.views.first_line import headline
from live.lanes import further
from support.fakes.fake_gpus import FakeGpus, built
from support.real import checked_agent
from support.real.killable_server import KillableServer, clean_environ

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
OURS = "HANGDOG_LIVE_CHECKED"
AGENT = Path(checked_agent.__file__)
PATIENCE_S = 45.0
#: Longer than the same finding is told again: with every sign of life, and whenever the agent comes back. Seconds.
QUIET_S = 12.0
TRAINER = "import time\nwhile True:\n    time.sleep(0.05)\n"


@pytest.fixture
def gpus(tmp_path: Path) -> FakeGpus:
    library = built(tmp_path)
    if library is None:
        pytest.skip("no C compiler to build the fake NVML with: apt-get install gcc")
    return FakeGpus(tmp_path / "answers", library)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[KillableServer]:
    with ExitStack() as stack:
        yield KillableServer(tmp_path, stack, PATIENCE_S)


@pytest.mark.parametrize("job", ["checked", further("")])
def test_a_lost_gpu_is_one_incident_though_the_server_is_killed(
    server: KillableServer, gpus: FakeGpus, tmp_path: Path, job: str
) -> None:
    clean = clean_environ(gpus.environ)
    if job:
        (tmp_path / "train.py").write_text(TRAINER)
        ranked = {OURS: "m0", "HANGDOG_JOB": job, "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}
        server.start(str(tmp_path / "train.py"), env={**clean, **ranked})
    server.start(str(AGENT), server.address, "m0", OURS, "m0", env=clean)
    server.knows(1 if job else 0)
    time.sleep(5.0)  # its GPUs are seen in order
    gpus.say("1/all", "!15")
    lost = time.monotonic()
    time.sleep(2.0)
    server.kill_and_serve_again()
    until = server.deadline()
    while not (judged := [line for line in server.incidents(CHECKED_WHY) if line.kind]):
        server.wait(until)
    incident = judged[0]
    print(f"lost, server killed after 2 s, judged after {time.monotonic() - lost:.1f} s: {incident.why}")
    assert (incident.job, incident.evict) == (job, ("m0",)) and "GPU lost" in incident.why
    verdict = server.verdict(incident.id)
    assert verdict is not None
    assert headline(verdict) == "machine: m0 is at fault: GPU lost (97% sure). Evict m0."
    server.kill_and_serve_again()
    time.sleep(QUIET_S)
    assert [line.id for line in server.incidents(CHECKED_WHY)] == [incident.id]
