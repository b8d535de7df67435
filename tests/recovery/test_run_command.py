"""`hangdog run` with real processes and no server: crashes, hooks, changes, spares, and an end of the supervisor at any moment."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hangdog.supervising.descendants import kill, with_environ

pytestmark = [pytest.mark.slow, pytest.mark.parallel]

#: Nobody listens there: verdicts are for the slow tests, exits are for these.
NOBODY = ("--attach", "--server", "127.0.0.1:1")
#: Much longer than anything here takes on a busy machine. Seconds.
PATIENCE_S = 100.0


class Scene:
    """A folder with a job in it, and the runs of it; `mark` tells its processes from all others."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mark = "MARK_OF_A_TEST", str(uuid.uuid4())
        self.hooks = folder / "hooks"

    def hook(self, name: str, then: str = "true") -> str:
        """A hook that writes its name, its step and what that is about, then does something."""
        line = f"{name} $HANGDOG_STEP_ID [$HANGDOG_STEP_MACHINES] [$HANGDOG_STEP_CHANGES]"
        return shlex.join(["sh", "-c", f'echo "{line}" >> {self.hooks}; {then}'])

    def start(self, *options: str, job: str) -> subprocess.Popen[str]:
        program = self.folder / "job.py"
        program.write_text(job)
        state = ("--state", str(self.folder / "state"), "--grace", "1s")
        words = (sys.executable, str(program), "{machine}", "{attempt}", str(self.folder))
        return subprocess.Popen(
            [sys.executable, "-m", "hangdog", "run", *NOBODY, *state, *options, "--", *words],
            env=os.environ | dict([self.mark]),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *options: str, job: str) -> tuple[int, str, str]:
        process = self.start(*options, job=job)
        out, err = process.communicate(timeout=PATIENCE_S)
        return process.returncode, out, err

    def called(self) -> list[str]:
        """The hooks that were called, without what differs between runs."""
        lines = self.hooks.read_text().splitlines() if self.hooks.exists() else []
        return [" ".join((words[0], *words[2:])) for words in map(str.split, lines)]

    def history(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "state" / "history.jsonl").read_text().splitlines()]

    def until(self, path: Path) -> None:
        until = time.monotonic() + PATIENCE_S
        while not path.exists():
            assert time.monotonic() < until, f"no {path.name}"
            time.sleep(0.02)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path)
    yield scene
    kill(with_environ(*scene.mark), signal.SIGKILL)


#: The job of one machine: what it is told in argv, and helpers; each test adds what it does.
JOB = """
import os, signal, sys, time
from pathlib import Path
machine, attempt, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
print("machine", machine, "attempt", attempt, flush=True)
"""


def test_a_job_that_fails_again_and_again_ends_with_a_person_who_may_go_on(scene: Scene) -> None:
    job = JOB + "sys.exit(0 if (folder / 'mended').exists() else 3)"
    status, out, err = scene.run("--on-human", scene.hook("human"), job=job)
    assert (status, scene.called()) == (1, ["human [] []"]), err
    assert out.splitlines() == [f"machine {os.uname().nodename} attempt {number}" for number in (1, 2)]
    here = re.escape(os.uname().nodename)
    assert re.search(rf"step 1: reattempt, .*\bended on {here} .*\bnobody can diagnose; .*transient", err)
    assert "step 2: human, because" in err
    assert "unproductive time: " in err
    (scene.folder / "mended").touch()
    status, out, err = scene.run("--on-human", scene.hook("human"), job=job)
    assert (status, len(scene.called())) == (0, 1), err
    assert "attempt 3 starts" in err


def test_an_error_of_the_code_is_rolled_back_and_evicts_nobody(scene: Scene) -> None:
    job = JOB + "if not (folder / 'back').exists(): raise TypeError('new code')"
    hook = scene.hook("rollback", f"touch {scene.folder}/back")
    names = ("--machine", "a", "--machine", "b", "--spare", "c")
    status, out, err = scene.run(*names, "--on-rollback", hook, job=job)
    assert (status, scene.called()) == (0, ["rollback [] []"]), err
    assert "TypeError: new code" in err
    started = {line for line in out.splitlines() if line.startswith("machine")}
    assert started == {f"machine {name} attempt {number}" for name in "ab" for number in (1, 2)}
    assert "evict" not in err


def test_what_tests_convict_is_left_out_and_a_spare_takes_its_place(scene: Scene) -> None:
    job = JOB + "sys.exit(machine == 'b')"
    hook = scene.hook("diagnose", "echo looking at b and c; echo b")
    options = (
        "--machine",
        "a",
        "--machine",
        "b",
        "--spare",
        "c",
        "--on-diagnose",
        hook,
        "--on-evict",
        scene.hook("evict"),
    )
    status, out, err = scene.run(*options, job=job)
    assert (status, scene.called()) == (0, ["diagnose [] []", "evict [b] []"]), err
    assert "machine c attempt 2" in out
    assert "step 2: evict b, because" in err
    assert "attempt 2 starts on a, c" in err


def test_a_change_comes_in_with_the_next_failure_and_an_urgent_one_at_once(scene: Scene) -> None:
    pending = scene.folder / "pending"
    pending.write_text("one\n")
    job = JOB + (
        "if attempt == 1: sys.exit(1)\n"
        "if attempt == 2: (folder / 'pending').write_text('one\\n!two\\n'); time.sleep(60)\n"
    )
    options = ("--pending", str(pending), "--on-update", scene.hook("update"))
    status, _, err = scene.run(*options, job=job)
    assert (status, scene.called()) == (0, ["update [] [one]", "update [] [two]"]), err
    assert "step 1: reattempt one, " in err
    assert re.search(r"step 2: update two, .*\bchange two .*urgent", err)


def test_a_step_that_a_killed_supervisor_had_begun_is_not_done_again(scene: Scene) -> None:
    """It dies while a hook runs, and while the job runs: nothing happens twice, and nothing of the old attempt is left."""
    job = JOB + (
        "if attempt == 1: raise TypeError('new code')\n"
        "(folder / f'began-{attempt}').touch()\n"
        "if attempt == 2:\n    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n    time.sleep(600)\n"
    )
    slow = ("--on-rollback", scene.hook("rollback", f"touch {scene.folder}/hooked; exec sleep 600"))
    process = scene.start(*slow, job=job)
    scene.until(scene.folder / "hooked")
    process.kill()
    process.communicate()
    process = scene.start(*slow, job=job)
    scene.until(scene.folder / "began-2")
    process.kill()
    assert re.search(r"step 1, rollback: .*ended meanwhile", process.communicate()[1])
    status, _, err = scene.run(*slow, job=job)
    assert (status, scene.called()) == (0, ["rollback [] []"]), err
    numbers = [entry["number"] for entry in scene.history() if entry["entry"] == "stepped"]
    assert numbers == [1]
    left = [pid for pid in with_environ(*scene.mark) if b"job.py" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    assert not left


def test_a_second_supervisor_is_refused_and_a_signal_ends_the_job_with_all_that_left_its_group(scene: Scene) -> None:
    job = JOB + (
        "if os.fork() == 0:\n    os.setsid()\n    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "    (folder / 'began').touch()\n    time.sleep(600)\n"
        "time.sleep(600)"
    )
    process = scene.start(job=job)
    scene.until(scene.folder / "began")
    status, out, err = scene.run(job=job)
    assert (status, out) == (64, "")
    assert "[file-in-use]" in err
    process.terminate()
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 128 + signal.SIGTERM
    assert not with_environ(*scene.mark)


def test_a_verdict_is_acted_upon_once_and_names_of_strangers_are_not(scene: Scene) -> None:
    """Played verdicts: an open one is borne for a while, one upon machines of no such job blames nobody, one evicts `b`."""
    program = scene.folder / "job.py"
    program.write_text(JOB + "time.sleep(0 if attempt == 3 else 600)")
    verdicts = json.dumps([("machine", ["gpu-9"]), ("machine", ["b"]), None])
    command = [sys.executable, "-m", "recovery.played_watcher", str(scene.folder / "state"), verdicts]
    job = [sys.executable, str(program), "{machine}", "{attempt}", str(scene.folder)]
    environ = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])} | dict([scene.mark])
    ran = subprocess.run([*command, *job], env=environ, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert ran.returncode == 0, ran.stderr
    told = [line.partition(", because ") for line in ran.stdout.splitlines() if line.startswith(("attempt", "step"))]
    assert [line for line, _, _ in told] == [
        "attempt 1 starts on a, b",
        "step 1: reattempt",
        "attempt 2 starts on a, b",
        "step 2: evict b",
        "attempt 3 starts on a, c",
    ]
    (foreign, own) = (told[at][2].split("; ") for at in (1, 3))
    assert foreign[0] == "verdict machine, 97%: played machine" and re.match(r"gpu-9 .*\(incident 1234\)", foreign[1])
    assert own[0] == "verdict machine, 97%: played machine (incident 1234)"
    assert "transient" in foreign[-1] and "sure enough" in own[1] and "copies of the checkpoint" in own[2]


def test_of_a_job_that_is_started_once_for_all_machines_nobody_knows_where_it_failed(scene: Scene) -> None:
    job = JOB + "sys.exit(attempt == 1)"
    status, out, err = scene.run("--once", "--machine", "a", "--machine", "b", job=job)
    assert (status, out.splitlines()) == (0, ["machine a attempt 1", "machine a attempt 2"]), err
    assert re.search(r"ended on all machines together .* 1\b", err)


def test_only_steps_end_an_episode_of_a_job_that_tells_them(scene: Scene) -> None:
    """Its second attempt lasts for longer than an episode, and makes no step: it counts on, where the first began anew."""
    job = JOB + (
        "until = time.monotonic() + (80 if attempt == 1 else 1)\n"
        "for step in range(10_000):\n"
        "    print('step', step if attempt == 1 else 0, flush=True)\n"
        "    time.sleep(0.05)\n"
        "    steady = 'steady' in (folder / 'state' / 'history.jsonl').read_text()\n"
        "    if time.monotonic() > until or (attempt == 1 and steady): sys.exit(1)\n"
    )
    status, _, err = scene.run("--ladder", "steady_s=0.5", "--step-pattern", "step [1-9]", job=job)
    assert status == 1, err
    assert [entry["entry"] for entry in scene.history() if entry["entry"] in ("began", "steady", "stepped")] == [
        *("began", "steady", "stepped", "began", "stepped"),
    ]
