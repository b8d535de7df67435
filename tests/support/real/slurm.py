"""A Slurm of the tests' own: munged, slurmctld and several slurmd on this host, without systemd, cgroups or a database."""

import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

#: Where distributions put daemons that are not on every PATH.
DAEMONS = "/usr/sbin:/sbin"
TOOLS = "munged", "slurmctld", "slurmd", "scontrol", "sinfo", "squeue", "sbatch", "scancel"
MISSING = "Slurm is not installed: apt-get install --no-install-recommends slurmctld slurmd slurm-client munge"
#: What is waited for here takes some seconds; a loaded machine gets many times that.
PATIENCE_S = 60.0


def path() -> str:
    """The search path with the daemons on it."""
    return f"{os.environ.get('PATH', '')}:{DAEMONS}"


def installed() -> bool:
    return all(shutil.which(tool, path=path()) for tool in TOOLS)


def ports(count: int) -> int:
    """The first of so many free ports in a row."""
    for first in range(20000 + secrets.randbelow(8000), 40000, count):
        with suppress(OSError):
            for port in range(first, first + count):
                with socket.socket() as taken:
                    taken.bind(("127.0.0.1", port))
            return first
    raise AssertionError("no free ports")


class Slurm:
    """A cluster of `machines` called node1, node2, ...; its daemons are children of ours and end by their own ids."""

    def __init__(self, folder: Path, machines: int) -> None:
        self.folder = folder
        self.machines = tuple(f"node{number}" for number in range(1, machines + 1))
        self.conf = folder / "slurm.conf"
        self.environ = {**os.environ, "PATH": path(), "SLURM_CONF": str(self.conf), "LC_ALL": "C.UTF-8"}
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        for name in ("state", "log", *(f"spool/{machine}" for machine in self.machines)):
            (folder / name).mkdir(parents=True)
        (folder / "state").chmod(0o700)
        (folder / "munge.key").write_bytes(secrets.token_bytes(1024))
        (folder / "munge.key").chmod(0o600)
        first = ports(machines + 1)
        self.conf.write_text(self._configuration(first))

    def _configuration(self, port: int) -> str:
        host, user, top = socket.gethostname().partition(".")[0], pwd.getpwuid(os.geteuid()).pw_name, self.folder
        last, ports = len(self.machines), f"[{port + 1}-{port + len(self.machines)}]"
        return "\n".join(
            (
                f"ClusterName=hangdog\nSlurmctldHost={host}(127.0.0.1)\nSlurmctldPort={port}",
                f"SlurmUser={user}\nSlurmdUser={user}\nAuthType=auth/munge\nCredType=cred/munge",
                f"AuthInfo=socket={top}/munge.sock,cred_expire=5",
                f"SlurmctldPidFile={top}/slurmctld.pid\nSlurmdPidFile={top}/slurmd.%n.pid\nSlurmdSpoolDir={top}/spool/%n",
                f"StateSaveLocation={top}/state\nSlurmctldLogFile={top}/log/slurmctld\nSlurmdLogFile={top}/log/%n",
                "ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nSwitchType=switch/none\nMpiDefault=none",
                "SelectType=select/cons_tres\nSelectTypeParameters=CR_Core\nAccountingStorageType=accounting_storage/none",
                "JobAcctGatherType=jobacct_gather/none\nReturnToService=0\nKillWait=2\nJobRequeue=1\nMessageTimeout=5",
                f"NodeName=node[1-{last}] NodeAddr=127.0.0.1 NodeHostname={host} Port={ports} CPUs=1 RealMemory=500",
                f"PartitionName=train Nodes=node[1-{last}] Default=YES MaxTime=INFINITE State=UP\n",
            )
        )

    def start(self) -> None:
        top = self.folder
        files = (
            "key-file=munge.key",
            "socket=munge.sock",
            "pid-file=munged.pid",
            "log-file=log/munged",
            "seed-file=seed",
        )
        options = [f"--{file.partition('=')[0]}={top / file.partition('=')[2]}" for file in files]
        self._begin("munged", "munged", "--foreground", "--force", *options)
        wait(lambda: (top / "munge.sock").exists(), "munged")
        self.start_controller()
        for machine in self.machines:
            self._begin(machine, "slurmd", "-D", "-N", machine)
        wait(
            lambda: self._say("sinfo", "-hNo", "%t").split() == ["idle"] * len(self.machines), f"slurmd, see {top}/log"
        )

    def start_controller(self) -> None:
        self._begin("slurmctld", "slurmctld", "-D")

    def stop_controller(self) -> None:
        """Ends slurmctld in order: killed, it would have forgotten the jobs of its last seconds."""
        self._end("slurmctld", signal.SIGTERM)

    def stop(self) -> None:
        with suppress(subprocess.SubprocessError, AssertionError):
            self.cancel()
            wait(lambda: not self._say("squeue", "-h"), "the jobs to end", 20.0)
        for name in (*self.machines, "slurmctld"):
            self._end(name, signal.SIGTERM)
        self._end_steps()
        self._end("munged", signal.SIGTERM)

    def say(self, *command: str) -> str:
        """What a command of Slurm's prints; it must succeed."""
        done = subprocess.run(command, env=self.environ, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout.strip()

    def cancel(self) -> None:
        """Ends all jobs."""
        for job in self._say("squeue", "-ho", "%A").split():
            self._say("scancel", job)

    def restore(self) -> None:
        """Ends all jobs and takes all drains away; a controller that has just begun refuses that for a moment."""
        self.cancel()
        for machine in self.machines:
            wait(partial(self._undrained, machine), f"{machine} to come back")

    def _undrained(self, machine: str) -> bool:
        return not self._run("scontrol", "update", f"nodename={machine}", "state=undrain").returncode

    def submit(self, *options: str) -> str:
        """A job that sleeps; its id."""
        script = "#!/bin/sh\nexec sleep 600\n"
        command = ["sbatch", "--parsable", "--output=/dev/null", "--chdir=/", *options]
        done = subprocess.run(
            command, env=self.environ, input=script, capture_output=True, text=True, timeout=60, check=True
        )
        return done.stdout.strip().partition(";")[0]

    def job(self, job: str, key: str) -> str:
        """A field of `scontrol show job`."""
        for word in self.say("scontrol", "-o", "show", "job", job).split():
            if word.startswith(f"{key}="):
                return word.partition("=")[2]
        return ""

    def runs(self, job: str) -> str:
        """The machines it runs on, once it runs."""
        wait(lambda: self.job(job, "JobState") == "RUNNING", f"job {job} to run", 2 * PATIENCE_S)
        return self.job(job, "NodeList")

    def state(self, machine: str) -> tuple[str, str]:
        """Its state and reason, as sinfo tells them."""
        state, _, reason = self.say("sinfo", "-hNn", machine, "-o", "%T|%E").partition("|")
        return state, reason

    def _say(self, *command: str) -> str:
        return self._run(*command).stdout.strip()

    def _run(self, *command: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(command, env=self.environ, capture_output=True, text=True, timeout=20, check=False)

    def _begin(self, name: str, *command: str) -> None:
        with (self.folder / "log" / f"{name}.out").open("ab") as out:
            self._running[name] = subprocess.Popen(command, env=self.environ, stdout=out, stderr=out, cwd="/")

    def _end(self, name: str, how: signal.Signals) -> None:
        process = self._running.pop(name, None)
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _end_steps(self) -> None:
        """The daemons of job steps outlive slurmd: ours are known by the configuration they were started with."""
        ours = f"SLURM_CONF={self.conf}".encode()
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if (folder / "comm").read_text() == "slurmstepd\n" and ours in (folder / "environ").read_bytes().split(
                    b"\0"
                ):
                    os.kill(int(folder.name), signal.SIGKILL)


def wait(true: Callable[[], bool], what: str, within_s: float = PATIENCE_S) -> None:
    """Returns once it is true; fails when it does not become so."""
    until = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < until, f"waited {within_s:.0f} s for {what}"
        time.sleep(0.1)


@contextmanager
def started(machines: int = 3) -> Iterator[Slurm | None]:
    """A cluster for as long as the block lasts; None where Slurm is not installed."""
    if not installed():
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="hangdog-slurm-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        cluster = Slurm(Path(folder), machines)
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.stop()
