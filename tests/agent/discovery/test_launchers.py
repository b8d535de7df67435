"""Whom discovery finds among real processes, started as each launcher starts them.

torchrun and mpirun are the real ones where they are installed. The others are fakes that lie at the real ones' paths and
start their ranks with the same command lines and variables; their sources are named beside them.
"""

import contextlib
import importlib.util
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from hangdog_agent.discovery.discover import ProcessRole, find
from hangdog_agent.discovery.process_table import ProcessTable
from support.fakes.targets import proc, until

#: Says who it is, and waits until the test hangs up; the second argument, if any, is how Ray would call the process.
TRAIN = """
import ctypes, os, socket, sys
title = [word for word in sys.argv if word.startswith("ray::")]
if title:  # as setproctitle does with SPT_NOENV, which Ray sets: over the command line, and not beyond it
    with open("/proc/self/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])
    ctypes.memmove(start, title[0].encode()[: end - start - 1].ljust(end - start, bytes(1)), end - start)
    ctypes.CDLL(None).prctl(15, title[0].encode(), 0, 0, 0)
with socket.socket(socket.AF_UNIX) as line:
    line.connect(os.environ["SAY_READY"])
    line.recv(1)
"""
#: Fake of the launchers that start ranks as children of their own, and wait for them: arguments are the ranks' numbers.
START = """
import os, subprocess, sys
script, ranks, world = sys.argv[-3:]
started = []
for local, rank in enumerate(ranks.split(",")):
    numbers = {"RANK": rank, "LOCAL_RANK": str(local), "WORLD_SIZE": world}
    started.append(subprocess.Popen([sys.executable, "-u", script, f"--local_rank={local}"], env=os.environ | numbers))
for process in started:
    process.wait()
"""
#: Fake of the `deepspeed` command (deepspeed/launcher/runner.py): it starts launch.py, which starts the ranks.
RUN = """
import subprocess, sys
subprocess.run([sys.executable, "-u", "-m", "deepspeed.launcher.launch", "--world_info=e30=", *sys.argv[1:]])
"""
PATIENCE_S = 60.0


@dataclass(frozen=True)
class Started:
    """What runs: the job's name, and the pids of those that say they train, as the kernel tells them."""

    job: str
    pids: frozenset[int]

    def found(self) -> dict[int, int]:
        """The trainers that discovery finds, rank to pid."""
        members = find(ProcessTable(proc).take(), ("HANGDOG_JOB", self.job))
        return {member.rank: member.process.pid for member in members if member.kind is ProcessRole.TRAINER}

    def of(self, pid: int) -> dict[str, str]:
        """A process's own word on who it is."""
        entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        return dict(entry.decode().split("=", 1) for entry in entries if b"=" in entry)


@contextlib.contextmanager
def started(command: Sequence[str | Path], folder: Path, count: int, **environ: str) -> Iterator[Started]:
    """Runs a command until `count` trainers below it say that they are ready; they end when the test is done."""
    (folder / "train.py").write_text(TRAIN, encoding="utf-8")
    job = f"launchers-{os.getpid()}-{folder.name}"
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "PMI", "OMPI_"))}
    door = folder / "ready"
    with socket.socket(socket.AF_UNIX) as listening, contextlib.ExitStack() as lines:
        listening.bind(os.fspath(door))
        listening.listen()
        listening.settimeout(PATIENCE_S)
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=clean | {"SAY_READY": os.fspath(door), "HANGDOG_JOB": job, "PYTHONPATH": os.fspath(folder)} | environ,
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            pids = set()
            for _ in range(count):
                line = lines.enter_context(listening.accept()[0])
                pids.add(struct.unpack("3i", line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0])
            yield Started(job, frozenset(pids))
            lines.close()
            process.wait(PATIENCE_S)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def fake(folder: Path, path: str, program: str) -> Path:
    """Puts a program where the real one would lie; folders above it become packages."""
    file = folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    for parent in file.relative_to(folder).parents:
        if parent.parts and parent.parts[0] not in ("bin", "site-packages"):
            (folder / parent / "__init__.py").touch()
    file.write_text(program, encoding="utf-8")
    return file


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a short path: the address of a unix socket has 107 characters at most."""
    made = tmp_path_factory.mktemp("l")
    assert len(os.fspath(made)) < 90, "run pytest with a shorter --basetemp"
    yield made


PYTHON = sys.executable


@pytest.mark.parametrize(
    ("environ", "rank"),
    [
        ({"RANK": "3", "WORLD_SIZE": "8"}, 3),
        ({"OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_LOCAL_RANK": "1"}, 5),
        ({"PMI_RANK": "6", "PMI_SIZE": "8", "MPI_LOCALRANKID": "0"}, 6),
        (
            {"SLURM_PROCID": "2", "SLURM_NTASKS": "4", "SLURM_LOCALID": "0", "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0"},
            2,
        ),
    ],
    ids=["plain python", "Open MPI", "MPICH", "srun"],
)
@pytest.mark.parametrize("shell", [False, True], ids=["", "in a shell"])
def test_a_rank_is_found_whoever_numbered_it(folder: Path, environ: dict[str, str], rank: int, shell: bool) -> None:
    command = ["bash", "-c", f"{PYTHON} train.py; true"] if shell else [PYTHON, "train.py"]
    with started(command, folder, 1, **environ) as here:
        assert here.found() == {rank: next(iter(here.pids))}


#: A pod's own numbers (Kubeflow's PyTorchJob): they count machines, and the launcher has them like its ranks.
POD = {"RANK": "1", "WORLD_SIZE": "2"}

#: What srun leaves in the environment of a task, and so `srun ray start` in that of everything Ray starts there.
TASK = {"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_STEP_ID": "0"}


@pytest.mark.parametrize(
    ("path", "arguments"),
    [
        # accelerate: entry points of its setup.py; the ranks are torchrun's, started in the same process
        ("bin/accelerate", ("bin/accelerate", "launch")),
        ("bin/accelerate-launch", ("bin/accelerate-launch",)),
        ("accelerate/commands/launch.py", ("-m", "accelerate.commands.launch")),
        ("accelerate/commands/accelerate_cli.py", ("-m", "accelerate.commands.accelerate_cli", "launch")),
        # deepspeed: launcher/launch.py, run by itself under Slurm
        ("deepspeed/launcher/launch.py", ("-u", "-m", "deepspeed.launcher.launch", "--node_rank=1")),
        # deepspeed: launcher/launcher_helper.py, run by MPICH once a rank
        ("deepspeed/launcher/launcher_helper.py", ("-m", "deepspeed.launcher.launcher_helper", "--launcher", "mpich")),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_one_rank_a_machine_leaves_only_the_launcher_s_program_to_tell_it(
    folder: Path, path: str, arguments: tuple[str, ...]
) -> None:
    fake(folder, path, START)
    with started([PYTHON, *arguments, "train.py", "1", "2"], folder, 1, **POD) as here:
        assert here.found() == {1: next(iter(here.pids))}


def test_a_program_that_starts_a_launcher_is_no_rank(folder: Path) -> None:
    """A pod's entry point: with one rank a machine it has the very numbers of the rank below the launcher below it."""
    fake(folder, "bin/torchrun", START)
    fake(
        folder, "entry.py", "import subprocess, sys\nsubprocess.run([sys.executable, 'bin/torchrun', *sys.argv[1:]])\n"
    )
    with started([PYTHON, "entry.py", "train.py", "1", "2"], folder, 1, **POD) as here:
        assert here.found() == {1: next(iter(here.pids))}


def test_what_multiprocessing_starts_for_a_launcher_is_no_rank(folder: Path) -> None:
    """Its tracker outlives the launcher's fork, and has the pod's numbers, which count machines."""
    track = "from multiprocessing.resource_tracker import ensure_running\nensure_running()\n"
    fake(folder, "bin/torchrun", track + START)
    with started([PYTHON, "bin/torchrun", "train.py", "4,5", "8"], folder, 2, **POD) as here:
        assert set(here.found()) == {4, 5}


def test_deepspeed_s_runner_and_launcher_are_no_ranks(folder: Path) -> None:
    fake(folder, "deepspeed/launcher/launch.py", START)
    script = fake(folder, "bin/deepspeed", RUN)
    with started([PYTHON, script, "train.py", "2,3", "4"], folder, 2, RANK="1", WORLD_SIZE="2") as here:
        found = here.found()
        assert {rank: here.of(pid)["RANK"] for rank, pid in found.items()} == {2: "2", 3: "3"}
        assert set(found.values()) == here.pids


def test_a_launcher_of_one_s_own_is_told_by_its_ranks(folder: Path) -> None:
    """Under srun, one a machine; what it starts has better numbers than it has itself."""
    fake(folder, "start.py", START)
    with started([PYTHON, "start.py", "train.py", "8,9", "16"], folder, 2, **TASK) as here:
        assert set(here.found()) == {8, 9}
        assert set(here.found().values()) == here.pids


def raylet(folder: Path) -> Path:
    """A fake of Ray's daemon: a program of that name that is no Python, and starts what it is told to."""
    copy = folder / "raylet"
    shutil.copy(Path("/bin/sh").resolve(), copy)
    return copy


def test_workers_of_a_ray_cluster_do_not_have_the_rank_of_the_task_that_started_it(folder: Path) -> None:
    """Ray Train's set RANK while they run, which nobody sees from outside: without Ray's log they are nobody (test_ray_train.py)."""
    workers = "".join(f"{PYTHON} train.py ray::{name} & " for name in ("IDLE", "RayTrainWorker.execute"))
    with started([raylet(folder), "-c", f"{workers} wait"], folder, 2, **TASK) as here:
        until(lambda: all(Path(f"/proc/{pid}/comm").read_text().startswith("ray::") for pid in here.pids))
        titles = {proc.arguments(pid)[0] for pid in here.pids}
        assert titles == {"ray::IDLE", "ray::RayTrainWorker.execute"}
        assert here.found() == {}


def test_ray_actors_that_were_given_a_rank_are_found(folder: Path) -> None:
    """As verl does: `runtime_env={"env_vars": {"RANK": ...}}` is there when the worker's program starts."""
    workers = "".join(f"RANK={rank} WORLD_SIZE=4 {PYTHON} train.py ray::WorkerDict.train & " for rank in (2, 3))
    command: list[str | Path] = [raylet(folder), "-c", f"{workers} {PYTHON} train.py ray::IDLE & wait"]
    for lent in (TASK, POD):
        with started(command, folder, 3, **lent) as here:
            found = here.found()
            assert {rank: here.of(pid)["RANK"] for rank, pid in found.items()} == {2: "2", 3: "3"}
        (folder / "ready").unlink()


@pytest.mark.parametrize(
    ("path", "arguments"),
    [
        ("bin/ray", ("bin/ray", "start", "--block")),
        ("site-packages/ray/_private/log_monitor.py", ("-u", "site-packages/ray/_private/log_monitor.py")),
        ("site-packages/ray/dashboard/agent.py", ("-u", "site-packages/ray/dashboard/agent.py")),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_ray_s_own_helpers_are_no_ranks(folder: Path, path: str, arguments: tuple[str, ...]) -> None:
    fake(folder, path, TRAIN)
    with started([PYTHON, *arguments], folder, 1, **TASK) as here:
        assert here.found() == {}


def test_a_program_that_has_ray_train_for_it_is_no_rank_but_a_rank_may_use_ray(folder: Path) -> None:
    raylet(folder)
    calls = (
        'import subprocess; below = subprocess.Popen(["./raylet", "-c", "read wait; true"], stdin=subprocess.PIPE)\n'
    )
    fake(folder, "driver.py", calls + TRAIN + "below.communicate()\n")
    for numbers, found in ((TASK, set()), ({"RANK": "1", "LOCAL_RANK": "0", "WORLD_SIZE": "2"}, {1})):
        with started([PYTHON, "driver.py"], folder, 1, **numbers) as here:
            assert set(here.found()) == found
        (folder / "ready").unlink()


@pytest.mark.slow  # it imports torch, which takes seconds
@pytest.mark.parallel
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed: make torch")
@pytest.mark.parametrize("pod", [{}, POD], ids=["", "in a pod that counts machines"])
@pytest.mark.parametrize(
    "command", [("-m", "torch.distributed.run"), (os.fspath(Path(sys.executable).parent / "torchrun"),)]
)
def test_the_ranks_of_the_real_torchrun(folder: Path, command: tuple[str, ...], pod: dict[str, str]) -> None:
    call = [PYTHON, *command, "--standalone", "--nproc-per-node=2", "train.py"]
    with started(call, folder, 2, **pod) as here:
        found = here.found()
        assert {rank: here.of(pid)["RANK"] for rank, pid in found.items()} == {0: "0", 1: "1"}
        assert set(found.values()) == here.pids


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="mpirun is not installed: apt-get install openmpi-bin")
def test_the_ranks_of_the_real_mpirun(folder: Path) -> None:
    options = ("--allow-run-as-root", "--oversubscribe", "-n", "2")
    # each run has a folder of its own for its sockets, whose path must be short too
    with started(["mpirun", *options, PYTHON, "train.py"], folder, 2, TMPDIR=os.fspath(folder)) as here:
        found = here.found()
        assert {rank: here.of(pid)["OMPI_COMM_WORLD_RANK"] for rank, pid in found.items()} == {0: "0", 1: "1"}
        assert set(found.values()) == here.pids
