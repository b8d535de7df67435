"""The commands of docs/recovery.md for a reservation hold spares back from others, on a real Slurm, and a job moves to one of them."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from support.real import slurm

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "recovery.md").read_text("utf-8")
#: What a machine does in the job: node2 fails.
JOB = 'echo "runs on $SLURMD_NODENAME"; test $SLURMD_NODENAME != node2'

pytestmark = [pytest.mark.slow, pytest.mark.parallel, pytest.mark.timeout(400)]


def command(first: str) -> list[str]:
    """The words of a command of the page that begins so."""
    found = re.search(rf"^{re.escape(first)}.*(?:\\\n.*)*", PAGE, re.MULTILINE)
    assert found is not None, first
    return shlex.split(found[0].replace("\\\n", " "))


def test_a_job_in_a_reservation_goes_on_with_the_spare_that_was_held_back_for_it(tmp_path: Path) -> None:
    with slurm.started(3) as cluster:
        if cluster is None:
            pytest.skip(slurm.MISSING)
        create = [
            {"users=trainer": "users=root", "nodes=gpu-a[17-19]": "nodes=node[1-3]"}.get(word, word)
            for word in command("scontrol create reservation")
        ]
        assert cluster.say(*create) == "Reservation created: train"
        other = cluster.submit("--nodelist=node3")
        srun = command("    srun --reservation=train")[:-1]
        named = ("--machine", "node1", "--machine", "node2", "--spare", "node3", "--on-diagnose", "echo node2")
        watched = ("--once", "--attach", "--server", "127.0.0.1:1", "--state", str(tmp_path / "state"), "--grace", "1s")
        ran = subprocess.run(
            (sys.executable, "-m", "hangdog", "run", *watched, *named, "--", *srun, "sh", "-c", JOB),
            env=cluster.environ,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert "attempt 2 starts on node1, node3" in ran.stderr
        assert sorted(ran.stdout.splitlines()[-2:]) == ["runs on node1", "runs on node3"]
        assert cluster.job(other, "JobState") == "PENDING", "a spare is held back from others"
        cluster.cancel()
        assert cluster.say(*command("scontrol delete reservationname")) == ""
