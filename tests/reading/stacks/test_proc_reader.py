"""Process states from `*.proc.json` and from `/proc/<pid>/status`."""

import os
from pathlib import Path

import pytest

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.progress.device_readings import DeviceReadings
from hangdog_models.reading.stacks import proc_status
from hangdog_models.stack import ProcessState
from support.refused import refused


def test_a_state_with_everything_unknown() -> None:
    nothing = dict.fromkeys(("wchan", "syscall", "cpu_s", "comm", "cmdline"))
    assert proc_status.read({"pid": 6472, "state": "Z", **nothing}) == ProcessState(6472, "Z")


def test_a_full_state() -> None:
    document = {
        "pid": 5,
        "state": "D",
        "wchan": "rpc_wait",
        "syscall": "0 0x5",
        "cpu_s": 6,
        "comm": "py",
        "cmdline": "py x",
        "ran_s": 2.5,
        "wakes": 70,
        "steps": 3,
        "device": {"waiting": 8, "behind": 2, "sending": 1, "communicator": 1 << 63, "number": 3, "peer": 0},
    }
    device = DeviceReadings(8, 2, 1, 1 << 63, 3, 0)
    assert proc_status.read(document) == ProcessState(
        5, "D", "rpc_wait", "0 0x5", 6.0, "py", "py x", 2.5, 70, 3, device
    )


@pytest.mark.parametrize("device", [[], "x", {}, {"waiting": 1, "behind": 1, "sending": -1, "communicator": 7}])
def test_readings_that_are_none_are_unknown(device: object) -> None:
    assert proc_status.read({"pid": 5, "state": "S", "device": device}).device is None


def test_readings_of_a_rank_that_none_can_have_are_unknown() -> None:
    counts = {"waiting": 1, "behind": 1, "sending": 1, "communicator": 7}
    assert proc_status.read({"pid": 5, "state": "S", "device": counts}).device == DeviceReadings(1, 1, 1, 7)
    assert proc_status.read({"pid": 5, "state": "S", "device": {**counts, "peer": 1 << 40}}).device is None


@pytest.mark.parametrize("cpu", [True, "6", -1, 1e999, 10**400])
def test_cpu_time_that_is_none_is_unknown(cpu: object) -> None:
    assert proc_status.read({"pid": 5, "state": "S", "cpu_s": cpu}).cpu_s in (None, 1.0)


@pytest.mark.parametrize("name", ["wakes", "steps"])
@pytest.mark.parametrize("times", [True, -1, 1.5, 10**400])
def test_times_that_are_no_count_are_unknown(name: str, times: object) -> None:
    assert getattr(proc_status.read({"pid": 5, "state": "S", name: times}), name) in (None, 1)


@pytest.mark.parametrize(
    "document",
    [{}, [], {"pid": 0, "state": "S"}, {"pid": 5, "state": ""}, {"pid": 5, "state": "Q"}, {"pid": "x", "state": "S"}],
)
def test_nonsense_is_refused(document: object) -> None:
    with refused("damaged-process-state", UnreadableEvidence):
        proc_status.read(document)


def test_the_kernels_own_text() -> None:
    text = Path("/proc/self/status").read_text()
    assert proc_status.recognises_status(text)
    state = proc_status.read_status(text)
    assert (state.pid, state.state) == (os.getpid(), "R")


def test_a_status_without_a_pid_is_refused() -> None:
    with refused("damaged-process-state", UnreadableEvidence, "Pid"):
        proc_status.read_status("Name:\tpython\nState:\tS (sleeping)\n")
