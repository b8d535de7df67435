"""The child that asks NVML: where there is nothing to ask, when it hangs, dies or is killed, and what outlives the agent."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hangdog_agent.checks.check_result import CheckVerdict, Moment
from hangdog_agent.checks.check_state import Notes
from hangdog_agent.checks.gpus.gpu import Gpus
from hangdog_agent.checks.gpus.nvml_client import Sweeper
from hangdog_models.findings import Impact
from support.fakes import targets
from support.fakes.fake_gpus import FakeGpus
from support.fakes.watched_gpus import SETTINGS, Watch, said


@pytest.mark.parametrize(
    ("answers", "why"),
    [({"init": "!9"}, "driver is not loaded"), ({"init": "!12"}, "no NVIDIA driver"), ({"count": "0"}, "finds no GPU")],
)
def test_a_machine_without_gpus_says_why(answers: dict[str, str], why: str, gpus: FakeGpus, watch: Watch) -> None:
    for name, value in answers.items():
        gpus.say(name, value)
    assert why in watch(gpus, well=False).check.supported()


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("raise SystemExit(3)", "ended with status 3"),
        ("input(); print('nonsense')", "answers no document"),
        ("input(); print('[' * 100000)", "answers no document"),
        ("import sys; sys.stdout.write('x' * (4 << 20))", "its child"),
    ],
)
def test_a_child_that_cannot_ask_is_no_evidence(program: str, why: str, clock: Iterator[Moment]) -> None:
    sweeper = Sweeper(SETTINGS, command=(sys.executable, "-c", program))
    check = Gpus(SETTINGS, Notes(None, "boot-1"), sweeper)
    assert why in check.supported()
    check.close()
    missing = Gpus(SETTINGS, Notes(None, "boot-1"), Sweeper(SETTINGS, command=("/no/such/program",)))
    assert "cannot be started" in missing.supported()


def test_a_machine_without_the_library_says_why(gpus: FakeGpus, watch: Watch) -> None:
    gpus.environ["LD_LIBRARY_PATH"] = str(gpus.folder)
    why = watch(gpus, well=False).check.supported()
    if not why:
        pytest.skip("this machine has an NVML of its own")
    assert why


@pytest.mark.parametrize(
    ("init", "code", "kind"),
    [
        ("!9", "no driver", CheckVerdict.CONVICT),
        ("!18", "driver mismatch", CheckVerdict.SUSPECT),
        ("!999", "no driver", CheckVerdict.SUSPECT),
    ],
)
def test_a_driver_that_is_gone_is_evidence_where_it_was_there(
    init: str, code: str, kind: CheckVerdict, gpus: FakeGpus, watch: Watch
) -> None:
    watched = watch(gpus)
    gpus.say("init", init)
    watched.sweeper.let_go()  # NVML is started once for each child
    result = watched.one()
    assert (result.code, result.kind) == (code, kind)


def test_a_blocked_call_is_evidence_and_convicts_when_it_repeats(gpus: FakeGpus, watch: Watch) -> None:
    watched = watch(gpus, replace(SETTINGS, nvml_start_s=1.0))
    gpus.say("1/power", "@")
    began = time.monotonic()
    first = watched.one()
    assert time.monotonic() - began < 5.0
    assert said(first) == ("NVML hangs", CheckVerdict.SUSPECT, Impact.SUSPECTS)
    assert "0.5 s" in first.words
    assert re.search(r"\bchild .*\bstate [A-Z]\b", first.evidence[0])
    second = watched.one()
    assert said(second) == ("NVML hangs", CheckVerdict.CONVICT, Impact.CONVICTS)
    assert first.identity != second.identity
    gpus.say("1/power", "600000")
    watched.sweeper._settings = SETTINGS
    assert watched.look() == ()  # it answers again


def test_children_that_do_not_die_are_left_behind_up_to_a_number(
    gpus: FakeGpus, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child inside a wedged driver does not die of a kill; here it is only stopped, and killed at the end."""

    def stop(pid: int, _signal: int) -> None:
        os.kill(pid, signal.SIGSTOP)
        targets.until(lambda: (stat := targets.proc.stat(pid)) is not None and stat.state == "T")

    watched = watch(gpus, replace(SETTINGS, nvml_start_s=0.5, nvml_answer_s=0.2, nvml_abandoned=2))
    gpus.say("0/power", "@")
    gpus.say("init", "@")
    with monkeypatch.context() as patched:
        patched.setattr("hangdog_agent.checks.gpus.nvml_client.os.killpg", stop)
        for _ in range(2):
            watched.look()
        held = watched.sweeper.abandoned
        assert len(held) == 2
        refused = watched.one()
        assert "no further" in refused.words
        assert refused.kind is CheckVerdict.CONVICT
        assert watched.sweeper.abandoned == held
    for pid in held:
        os.kill(pid, signal.SIGKILL)
    targets.until(lambda: watched.sweeper.abandoned == ())


def test_while_a_gpu_is_lost_nobody_holds_the_device(gpus: FakeGpus, watch: Watch) -> None:
    others = targets.children().keys()  # multiprocessing keeps a child of its own, once a test has used it
    watched = watch(gpus)
    assert len(targets.children().keys() - others) == 1
    gpus.say("1/all", "!15")
    assert watched.one().code == "GPU lost"
    assert targets.children().keys() <= others  # it may be reset now
    gpus.withdraw("1/all")
    assert watched.look() == ()  # it came back
    assert len(targets.children().keys() - others) == 1


def test_a_killed_child_is_started_again(gpus: FakeGpus, watch: Watch) -> None:
    others = targets.children().keys()
    watched = watch(gpus)
    (child,) = targets.children().keys() - others
    os.kill(child, signal.SIGKILL)
    targets.until(lambda: targets.letter(child) in ("Z", ""))
    assert watched.one().code == "NVML not asked"
    assert watched.look() == ()


def test_who_was_there_is_known_after_a_restart_of_the_agent_but_not_of_the_machine(
    gpus: FakeGpus, watch: Watch, tmp_path: Path
) -> None:
    watch(gpus, notes=Notes(tmp_path / "notes", "boot-1")).check.close()
    gpus.say("count", "1")
    again = watch(gpus, notes=Notes(tmp_path / "notes", "boot-1"), well=False)
    assert again.check.supported() == ""
    assert (again.one().code, again.one().component.serial) == ("GPU lost", "serial-1")
    watch(gpus, notes=Notes(tmp_path / "notes", "boot-2"))


def test_the_child_ends_with_the_agent_even_if_that_is_killed_while_nvml_is_silent(gpus: FakeGpus) -> None:
    program = """
from hangdog_agent.checks.settings import CheckSettings
from hangdog_agent.checks.gpus.nvml_client import Sweeper
import os, sys
sweeper = Sweeper(CheckSettings())
assert sweeper.ask(full=True).document["count"] == 2
os.write(1, b"%d\\n" % sweeper._process.pid)
os.read(0, 1)
sweeper.ask(full=True)
"""
    with subprocess.Popen(
        [sys.executable, "-I", "-c", program], env=gpus.environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as agent:
        assert agent.stdout is not None
        assert agent.stdin is not None
        child = int(agent.stdout.readline())
        gpus.say("0/power", "@")
        before = _wakes(child)
        agent.stdin.write(b"x")
        agent.stdin.flush()
        targets.until(lambda: _wakes(child) > before + 20)  # the fake sleeps and looks again, as long as it blocks
        agent.kill()
    targets.until(lambda: targets.letter(child) in ("", "Z"))


def _wakes(pid: int) -> int:
    status = targets.proc.status(pid)
    return status.switches if status else 0


class Dead(Sweeper):
    """Its child has ended before it is asked, as it may on a busy machine."""

    def _start(self) -> "subprocess.Popen[bytes]":
        process = super()._start()
        process.wait()
        return process


def test_a_child_that_ended_before_it_was_asked_says_why() -> None:
    sweeper = Dead(SETTINGS, command=(sys.executable, "-c", "raise SystemExit(3)"))
    assert "ended with status 3" in sweeper.ask(full=True).why
