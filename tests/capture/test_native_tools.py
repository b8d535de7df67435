"""Where py-spy fails, another tool reads the native stacks; the process goes on afterwards, however the tool ended."""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from hangdog.capture import native_tools
from hangdog_agent.capture import process_capture, pyspy
from hangdog_agent.capture.process_capture import CapturedProcess, Tools
from hangdog_agent.capture.settings import CaptureSettings
from hangdog_models.stack import Missing, Reason
from support.fakes import targets

FAILED = Missing(Reason.TOOL_FAILED, "py-spy: no libunwind")


@pytest.fixture
def tools(readable: None) -> Tools:
    spy = pyspy.load()
    assert not isinstance(spy, Missing)
    return Tools(targets.proc, spy, CaptureSettings())


def failed(process: "subprocess.Popen[bytes]", tools: Tools, why: Missing = FAILED) -> CapturedProcess:
    seen = process_capture.look(targets.row(process), tools, time.monotonic() + 30.0)
    return CapturedProcess(seen.threads, seen.state, why)


def test_gdb_adds_native_frames_to_the_python_ones(tools: Tools) -> None:
    if shutil.which("gdb") is None:
        pytest.skip("gdb is not installed: apt-get install gdb")
    with targets.running(targets.WAIT) as process:
        found = native_tools.look(targets.row(process), failed(process, tools), tools)
        assert targets.letter(process.pid) == "S"
    assert found is not None, "gdb read nothing"
    name, threads = found
    functions = [frame.function for frame in threads[0].frames if not frame.native]
    assert name == "gdb" and functions == ["<module>", "stuck_here"]
    assert "read" in threads[0].frames[-1].function


@pytest.mark.parametrize("reason", [Reason.NOT_SAFE, Reason.NOT_PERMITTED, Reason.STOPPED])
def test_after_another_reason_no_tool_is_tried(tools: Tools, monkeypatch: pytest.MonkeyPatch, reason: Reason) -> None:
    monkeypatch.setattr(native_tools, "_program", lambda name: pytest.fail("asked for a tool"))
    with targets.running(targets.WAIT) as process:
        assert native_tools.look(targets.row(process), failed(process, tools, Missing(reason, "")), tools) is None


def test_a_stopped_process_is_not_held(tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_tools, "_read", lambda *_: pytest.fail("held"))
    monkeypatch.setattr(native_tools, "_program", lambda name: "/bin/true")
    with targets.running(targets.WAIT) as process:
        targets.stop(process)
        assert native_tools.look(targets.row(process), failed(process, tools), tools) is None
        assert targets.letter(process.pid) == "T"


def test_a_tool_that_leaves_the_process_stopped_is_made_good(
    tools: Tools, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root's tool may signal as the process's user")
    stopping = tmp_path / "gdb"
    stopping.write_text('#!/bin/sh\nfor each; do :; done\nkill -STOP "$each"\nsleep 60\n')
    stopping.chmod(0o755)
    monkeypatch.setattr(native_tools, "_program", lambda name: str(stopping) if name == "gdb" else None)
    monkeypatch.setattr(native_tools, "_DEADLINE_S", 1.0)
    with targets.running(targets.WAIT) as process:
        assert native_tools.look(targets.row(process), failed(process, tools), tools) is None
        targets.until(lambda: targets.letter(process.pid) == "S")
        process.send_signal(signal.SIGCONT)
