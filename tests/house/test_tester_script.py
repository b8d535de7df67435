"""deploy/slurm/tester.sbatch: an agent that tests takes the place of the resident one, once a machine, and gives it back."""

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from hangdog_agent import main as agent_main
from support.fakes.targets import until

SCRIPT = Path(__file__).resolve().parents[2] / "deploy/slurm/tester.sbatch"

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


def said(machine: dict[str, str]) -> list[str]:
    path = Path(machine["SAID"])
    return path.read_text("utf-8").splitlines() if path.exists() else []


@pytest.mark.parametrize("job", ["", "7"], ids=["by hand", "as a job"])
@pytest.mark.parametrize("resident", ["0", "3"], ids=["resident", "none"])
def test_it_stands_in_for_the_resident_agent_and_gives_its_place_back(
    machine: dict[str, str], job: str, resident: str
) -> None:
    environ = machine | {"RESIDENT": resident} | ({"SLURM_JOB_ID": job} if job else {})
    with subprocess.Popen(["/bin/sh", SCRIPT], env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as script:
        until(lambda: any(line.startswith("apptainer") for line in said(machine)))
        script.send_signal(signal.SIGTERM)
        script.communicate(timeout=20)
    assert script.returncode == 0
    lines = [line for line in said(machine) if not line.startswith("srun")]
    assert any(line.startswith("srun 7 ") for line in said(machine)) is bool(job)
    agent = "apptainer  exec --nv --bind /etc/hangdog,/dev/shm /opt/tester.sif hangdog-agent --server head:7411"
    stopped, started = (f"systemctl  {what} hangdog-agent.service" for what in ("stop", "start"))
    asked = "systemctl  is-active --quiet hangdog-agent.service"
    assert lines == ([asked, stopped, agent, started] if resident == "0" else [asked, agent])


def test_a_program_for_level_5_is_named_by_a_file_of_the_machine(machine: dict[str, str]) -> None:
    environ = machine | {"HANGDOG_REPLAYS": "/etc/hangdog/replays.toml", "HANGDOG_APPTAINER": "systemctl"}
    done = subprocess.run(["/bin/sh", SCRIPT], env=environ, capture_output=True, timeout=20, check=False)
    assert done.returncode == 0, done.stderr
    words = next(line for line in said(machine) if "hangdog-agent --server" in line).partition("hangdog-agent ")[2]
    options = agent_main._parser().parse_args(words.split())
    assert (options.server, options.replays) == ("head:7411", "/etc/hangdog/replays.toml")


def test_without_a_server_it_leaves_the_resident_agent_alone(machine: dict[str, str]) -> None:
    environ = {name: value for name, value in machine.items() if name != "HANGDOG_SERVER"}
    done = subprocess.run(["/bin/sh", SCRIPT], env=environ, capture_output=True, timeout=20, check=False)
    assert done.returncode != 0 and b"HANGDOG_SERVER" in done.stderr and not said(machine)


def test_a_resident_agent_that_cannot_be_stopped_keeps_its_place(machine: dict[str, str]) -> None:
    (Path(machine["PATH"]) / "systemctl").write_text('#!/bin/sh\n[ "$1" != stop ]\n', encoding="utf-8")
    done = subprocess.run(["/bin/sh", SCRIPT], env=machine, capture_output=True, timeout=20, check=False)
    assert done.returncode == 1 and not said(machine)
