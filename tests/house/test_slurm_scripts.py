"""The scripts of deploy/slurm, run as slurmd runs them: agents that come and go with jobs, and a gate that a conviction closes."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hangdog_agent import main as agent_main
from support.fakes.fake_gpus import FakeGpus, built
from support.fakes.targets import until

pytestmark = pytest.mark.parallel  # its slow tests measure no time

SLURM = Path(__file__).resolve().parents[2] / "deploy/slurm"
SCRIPTS = sorted(SLURM.glob("*.sh"))
SHELL = "/bin/sh"

#: Stands for the agent: tells that it runs and what it was told, then waits to be ended.
AGENT = """#!/bin/sh
echo "${SLURM_JOB_ID-none} $HANGDOG_SERVER" >>"$HANGDOG_RUN/began"
exec sleep 600
"""


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[dict[str, str]]:
    """What slurmd would give a prolog, on a machine without systemd."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("sh", "mkdir", "flock", "setsid", "rm", "rmdir", "cat", "sleep", "true", "timeout"):
        found = shutil.which(name)
        if found is None:
            pytest.skip(f"{name} is not installed")
        (tools / name).symlink_to(found)
    agent = tools / "agent"
    agent.write_text(AGENT, encoding="utf-8")
    agent.chmod(0o755)
    run = tmp_path / "run"
    yield {
        "PATH": os.fspath(tools),
        "HANGDOG_RUN": os.fspath(run),
        "HANGDOG_LOG": os.fspath(tmp_path / "log"),
        "HANGDOG_AGENT": os.fspath(agent),
        "HANGDOG_GATE_LOG": os.fspath(tmp_path / "gate.log"),
        "HANGDOG_COMMAND": "/no/such/hangdog",
        "HANGDOG_SERVER": "head:7411",
    }
    if pid := alive(run):
        os.kill(pid, signal.SIGKILL)


def alive(run: Path) -> int:
    """The pid of the agent that runs, 0 when none does."""
    with contextlib.suppress(OSError, ValueError):
        pid = int((run / "pid").read_text())
        return pid if Path(f"/proc/{pid}/comm").read_text() == "sleep\n" else 0
    return 0


def play(script: str, environ: dict[str, str], job: int) -> None:
    """Runs a script as slurmd does, which ends what is left of its process group."""
    path = SLURM / script
    environ = environ | {"SLURM_JOB_ID": str(job)}
    with subprocess.Popen([SHELL, path], env=environ, start_new_session=True) as process:
        assert process.wait(20) == 0
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def test_the_prolog_starts_one_agent_and_the_last_epilog_ends_it(slurm: dict[str, str]) -> None:
    """Two jobs share a machine, one after the other ends; a third comes later."""
    run = Path(slurm["HANGDOG_RUN"])
    play("prolog.sh", slurm, 7)
    until(lambda: alive(run) > 0)
    first = alive(run)
    play("prolog.sh", slurm, 8)
    play("epilog.sh", slurm, 7)
    assert alive(run) == first
    assert (run / "began").read_text() == "none head:7411\n"  # once, and without the job's number
    play("epilog.sh", slurm, 8)
    until(lambda: alive(run) == 0)
    play("prolog.sh", slurm, 9)
    until(lambda: alive(run) > 0)
    assert alive(run) != first
    play("epilog.sh", slurm, 9)
    until(lambda: alive(run) == 0)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_a_script_never_fails_and_never_waits(path: Path, slurm: dict[str, str], tmp_path: Path) -> None:
    """Not even where nothing is as it should be: a prolog that fails drains its machine."""
    assert os.access(path, os.X_OK)
    hopeless = slurm | {
        "HANGDOG_RUN": "/proc/no/such",
        "HANGDOG_AGENT": "/no/such",
        "HANGDOG_LOG": "/",
        "HANGDOG_GATE_LOG": "/",
    }
    for environ in (
        hopeless,
        hopeless | {"SLURM_JOB_ID": "7"},
        hopeless | {"SLURM_JOB_ID": "7", "HANGDOG_RUN": os.fspath(tmp_path / "run")},
        {"PATH": "/nonexistent", "SLURM_JOB_ID": "7"},
    ):
        begun = time.monotonic()
        ended = subprocess.run([SHELL, path], env=environ, capture_output=True, check=False, timeout=20)
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")
        assert time.monotonic() - begun < 5.0


def gate(environ: dict[str, str], hangdog: str) -> int:
    """Runs the gate before job 7, with a `hangdog` that is this script; answers its exit status."""
    program = Path(environ["PATH"]) / "hangdog"
    program.write_text(f'#!/bin/sh\necho "$*" >"$HANGDOG_LOG"\n{hangdog}\n', encoding="utf-8")
    program.chmod(0o755)
    return opened(environ | {"HANGDOG_COMMAND": os.fspath(program)})


def opened(environ: dict[str, str]) -> int:
    path = SLURM / "gate.sh"
    ended = subprocess.run(
        [SHELL, path], env=environ | {"SLURM_JOB_ID": "7"}, capture_output=True, check=False, timeout=120
    )
    assert (ended.stdout, ended.stderr) == (b"", b"")
    return ended.returncode


@pytest.mark.parametrize(
    ("hangdog", "status"),
    [
        ('printf \'{\\n  "verdict": "convicted",\\n\'; exit 1', 1),
        ('printf \'{\\n  "verdict": "failed",\\n\'; exit 1', 0),
        ('printf \'{\\n  "verdict": "inconclusive",\\n\'; exit 2', 0),
        ('echo "ModuleNotFoundError: a verdict: convicted" >&2; exit 1', 0),
        ("kill -SEGV $$", 0),
    ],
    ids=["convicted", "failed", "inconclusive", "broken", "dies"],
)
def test_the_gate_closes_for_a_conviction_and_for_nothing_else(
    hangdog: str, status: int, slurm: dict[str, str]
) -> None:
    assert gate(slurm, hangdog) == status
    asked = Path(slurm["HANGDOG_LOG"]).read_text().split()
    assert asked == ["test", "local", "--first", "--budget", "120s", "--format", "json"]


def test_beside_another_job_the_gate_only_reads_and_a_wrong_setting_does_not_close_it(slurm: dict[str, str]) -> None:
    play("prolog.sh", slurm, 6)
    assert gate(slurm | {"HANGDOG_GATE_S": "soon"}, "exit 0") == 0
    asked = Path(slurm["HANGDOG_LOG"]).read_text().split()
    assert asked == ["test", "local", "--first", "--level", "0", "--budget", "120s", "--format", "json"]
    play("epilog.sh", slurm, 6)


@pytest.mark.slow
def test_the_gate_closes_for_a_gpu_that_convicts_itself(slurm: dict[str, str], tmp_path: Path) -> None:
    library = built(tmp_path)
    if library is None:
        pytest.skip("no C compiler to build the fake NVML with: apt-get install gcc")
    gpus = FakeGpus(tmp_path / "answers", library)
    fake = {name: gpus.environ[name] for name in ("FAKE_NVML", "LD_LIBRARY_PATH")}
    own = {"HANGDOG_COMMAND": str(Path(sys.executable).with_name("hangdog")), "HANGDOG_GATE_PYTHON": "/usr/bin/false"}
    assert opened(slurm | own | fake) == 0
    gpus.say("1/remap", "0 0 0 1")
    assert opened(slurm | own | fake) == 1
    assert "GPU 1" in Path(slurm["HANGDOG_GATE_LOG"]).read_text(encoding="utf-8")


#: Takes the place of the resident agent for as long as its machine is tested.
TESTER = SLURM / "tester.sbatch"

#: What stands for the programs of a machine; each writes down what it is told. The agent lasts until it is ended.
FAKES = {
    "systemctl": """[ "$1" = is-active ] && exit "$RESIDENT"; exit 0""",
    "srun": """[ "$1" = --kill-on-bad-exit=0 ] && shift; exec "$@" """,
    "apptainer": "exec sleep 600",
}


@pytest.fixture
def machine(tmp_path: Path) -> dict[str, str]:
    """A machine on which the resident agent runs."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("sh", "env", "cat", "sleep"):
        (tools / name).symlink_to(str(shutil.which(name)))
    for name, does in FAKES.items():
        words = "$1" if name == "srun" else "$*"  # it is told a whole script
        fake = f'#!/bin/sh\necho "{name} ${{SLURM_JOB_ID-}} {words}" >>"$SAID"\n{does}\n'
        (tools / name).write_text(fake, encoding="utf-8")
        (tools / name).chmod(0o755)
    said = {"SAID": os.fspath(tmp_path / "said"), "PATH": os.fspath(tools), "RESIDENT": "0"}
    return said | {"HANGDOG_SERVER": "head:7411", "HANGDOG_TESTER": "/opt/tester.sif"}


def words(machine: dict[str, str]) -> list[str]:
    path = Path(machine["SAID"])
    return path.read_text("utf-8").splitlines() if path.exists() else []


@pytest.mark.parametrize("job", ["", "7"], ids=["by hand", "as a job"])
@pytest.mark.parametrize("resident", ["0", "3"], ids=["resident", "none"])
def test_it_stands_in_for_the_resident_agent_and_gives_its_place_back(
    machine: dict[str, str], job: str, resident: str
) -> None:
    environ = machine | {"RESIDENT": resident} | ({"SLURM_JOB_ID": job} if job else {})
    with subprocess.Popen([SHELL, TESTER], env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as script:
        until(lambda: any(line.startswith("apptainer") for line in words(machine)))
        script.send_signal(signal.SIGTERM)
        script.communicate(timeout=20)
    assert script.returncode == 0
    lines = [line for line in words(machine) if not line.startswith("srun")]
    assert any(line.startswith("srun 7 ") for line in words(machine)) is bool(job)
    agent = "apptainer  exec --nv --bind /etc/hangdog,/dev/shm /opt/tester.sif hangdog-agent --server head:7411"
    stopped, started = (f"systemctl  {what} hangdog-agent.service" for what in ("stop", "start"))
    asked = "systemctl  is-active --quiet hangdog-agent.service"
    assert lines == ([asked, stopped, agent, started] if resident == "0" else [asked, agent])


def test_a_signal_right_after_its_start_leaves_no_agent_behind(machine: dict[str, str], tmp_path: Path) -> None:
    """On a busy machine a shell may read its next line long after it has started a program."""
    busy = tmp_path / "busy.sbatch"
    text = TESTER.read_text("utf-8")
    assert text.count(" &\n") == 1
    busy.write_text(text.replace(" &\n", " &\nsleep 0.5\n"), "utf-8")
    with subprocess.Popen([SHELL, busy], env=machine, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as script:
        until(lambda: any(line.startswith("apptainer") for line in words(machine)))
        script.send_signal(signal.SIGTERM)
        script.communicate(timeout=20)  # whoever is left holds its output open
    assert words(machine)[-1] == "systemctl  start hangdog-agent.service"


def test_a_program_for_level_5_is_named_by_a_file_of_the_machine(machine: dict[str, str]) -> None:
    environ = machine | {"HANGDOG_REPLAYS": "/etc/hangdog/replays.toml", "HANGDOG_APPTAINER": "systemctl"}
    done = subprocess.run([SHELL, TESTER], env=environ, capture_output=True, timeout=20, check=False)
    assert done.returncode == 0, done.stderr
    called = next(line for line in words(machine) if "hangdog-agent --server" in line).partition("hangdog-agent ")[2]
    options = agent_main._parser().parse_args(called.split())
    assert (options.server, options.replays) == ("head:7411", "/etc/hangdog/replays.toml")


def test_without_a_server_it_leaves_the_resident_agent_alone(machine: dict[str, str]) -> None:
    environ = {name: value for name, value in machine.items() if name != "HANGDOG_SERVER"}
    done = subprocess.run([SHELL, TESTER], env=environ, capture_output=True, timeout=20, check=False)
    assert done.returncode != 0 and b"HANGDOG_SERVER" in done.stderr and not words(machine)


def test_a_resident_agent_that_cannot_be_stopped_keeps_its_place(machine: dict[str, str]) -> None:
    (Path(machine["PATH"]) / "systemctl").write_text('#!/bin/sh\n[ "$1" != stop ]\n', encoding="utf-8")
    done = subprocess.run([SHELL, TESTER], env=machine, capture_output=True, timeout=20, check=False)
    assert done.returncode == 1 and not words(machine)
