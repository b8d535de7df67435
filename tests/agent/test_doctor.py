"""What `hangdog doctor` finds here, and what it says where capture does not work."""

import json
import os
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

import targets
from hangdog.commands.doctor import command
from hangdog_agent import doctor
from hangdog_agent.capture import pyspy
from hangdog_agent.doctor import Finding, Health, examine, works
from hangdog_agent.procfs import Proc
from hangdog_models.stack import Missing, Reason
from targets import SLEEP_IN_KERNEL, WAIT, running

ENVIRON = {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "8", "HANGDOG_JOB": f"doctor-{os.getpid()}"}


def found(findings: tuple[Finding, ...], name: str) -> Finding:
    return next(finding for finding in findings if finding.name == name)


def test_capture_works_here_and_a_training_process_is_captured(spy: pyspy.PySpy) -> None:
    with running(WAIT, environ=ENVIRON):
        findings = examine(tool=spy)
    for name in ("py-spy", "own child", "another's process", f"job {ENVIRON['HANGDOG_JOB']}"):
        assert found(findings, name).health is Health.OK, found(findings, name)
    assert works(tuple(finding for finding in findings if finding.name in ("py-spy", "own child", "another's process")))


def test_no_py_spy_is_a_failure_with_the_command_that_brings_it() -> None:
    tool = pyspy.load("no-such-distribution")
    findings = examine(tool=tool)
    assert not works(findings)
    assert found(findings, "py-spy").health is Health.FAIL
    assert "pip install" in found(findings, "py-spy").fix
    assert found(findings, "another's process").health is Health.FAIL


def test_no_permission_is_a_failure_with_the_line_to_change(spy: pyspy.PySpy) -> None:
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("needs root and setpriv, to run py-spy as another user")
    assert spy.executable is not None
    refused = pyspy.PySpy(("setpriv", "--reuid=65534", "--clear-groups", spy.executable), None, spy.fds, spy.version)
    with running(WAIT, environ=ENVIRON):
        findings = examine(tool=refused)
    assert not works(findings)
    for name in ("own child", "another's process", f"job {ENVIRON['HANGDOG_JOB']}"):
        finding = found(findings, name)
        assert finding.health is Health.FAIL
        assert "not permitted" in finding.what
        assert finding.fix


def test_a_trainer_that_cannot_be_read_for_its_own_reasons_is_no_fault_of_the_set_up(
    spy: pyspy.PySpy, hold: Path
) -> None:
    with running(WAIT, environ=ENVIRON) as target:
        targets.end(target, reap=False)
        findings = examine(tool=spy)
    assert found(findings, "another's process").health is Health.OK
    with running(SLEEP_IN_KERNEL, str(hold), "main", environ=ENVIRON):
        findings = examine(tool=spy)
    assert found(findings, f"job {ENVIRON['HANGDOG_JOB']}").health is not Health.FAIL


@pytest.mark.parametrize(("scope", "fix"), [("0", ""), ("1", "sysctl"), ("2", "sysctl"), ("3", "reboot")])
def test_yama_is_named_where_it_forbids(tmp_path: Path, scope: str, fix: str) -> None:
    (tmp_path / "sys" / "kernel" / "yama").mkdir(parents=True)
    (tmp_path / "sys" / "kernel" / "yama" / "ptrace_scope").write_text(f"{scope}\n")
    refused = Finding("another's process", Health.FAIL, "not permitted")
    finding = doctor._yama(Proc(tmp_path), refused)
    assert finding.health is (Health.WARN if fix else Health.OK)
    assert fix in finding.fix
    assert doctor._yama(Proc(tmp_path), Finding("another's process", Health.OK, "captured")).fix == ""


def test_no_kernel_to_ask_is_survived(tmp_path: Path, spy: pyspy.PySpy) -> None:
    assert not works(examine(Proc(tmp_path), spy))


def test_the_command_prints_one_screen_and_ends_with_0_or_1(monkeypatch: pytest.MonkeyPatch, spy: pyspy.PySpy) -> None:
    shown = CliRunner().invoke(command)
    assert len(shown.output.splitlines()) < 40
    assert shown.exit_code == (0 if "capture works here" in shown.output else 1)  # other users' jobs may run here
    document = json.loads(CliRunner().invoke(command, ["--format", "json"]).output)
    assert document["works"] is all(finding["health"] != "fail" for finding in document["findings"])
    assert {"name": "py-spy", "health": "ok", "what": "0.4.3", "fix": ""} in document["findings"]
    monkeypatch.setattr(pyspy, "load", lambda: Missing(Reason.TOOL_MISSING, "no py-spy"))
    shown = CliRunner().invoke(command)
    assert shown.exit_code == 1
    assert "-> pip install" in shown.output
