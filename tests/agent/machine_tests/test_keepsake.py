"""Settings of GPUs before and after tests, with the fake NVML: what changed is set back, and what cannot be is told."""

from pathlib import Path

import pytest

from hangdog_agent.machine_tests.gpu_settings_backup import GpuSettingsBackup
from support.fakes.fake_gpus import FakeGpus, built


@pytest.fixture
def gpus(tmp_path: Path) -> FakeGpus:
    library = built(tmp_path)
    if library is None:
        pytest.skip("no C compiler to build the fake NVML with: apt-get install gcc")
    made = FakeGpus(tmp_path / "answers", library)
    for name, value in {
        "persistence": "1",
        "compute_mode": "0",
        "clock_memory": "2619",
        "clock_graphics": "1980",
    }.items():
        made.say(f"0/{name}", value)
    return made


def test_what_a_test_changed_is_set_back_and_told(gpus: FakeGpus) -> None:
    kept = GpuSettingsBackup(gpus.environ)
    kept.record()
    assert set(kept.before) == {"GPU-0", "GPU-1"} and kept.settle() == ()
    gpus.say("0/clock_graphics", "1410")
    gpus.say("1/power_limit", "500000")
    clocks, power = kept.settle()
    assert "clocks in MHz of GPU 0" in clocks and "power limit in mW of GPU 1" in power
    assert clocks.endswith("; restored") and power.endswith("; restored")
    assert (gpus.folder / "0/clock_graphics").read_text() == "1980\n"
    assert (gpus.folder / "1/power_limit").read_text() == "700000\n"
    assert kept.settle() == ()


def test_what_may_not_be_set_is_told(gpus: FakeGpus) -> None:
    kept = GpuSettingsBackup(gpus.environ)
    kept.record()
    gpus.say("0/persistence", "0")
    gpus.say("0/set", "!4")
    changed, why = kept.settle()
    assert "persistence mode of GPU 0;" in changed and changed.endswith("NOT restored")
    assert why.startswith("persistence mode of GPU 0: ")


def test_a_gpu_that_was_lost_meanwhile_is_told(gpus: FakeGpus) -> None:
    kept = GpuSettingsBackup(gpus.environ)
    kept.record()
    gpus.say("1/all", "!15")
    assert "GPU 1," in kept.settle()[0] and kept.settle()[0].endswith("NOT restored")


def test_without_a_driver_there_is_nothing_to_keep() -> None:
    kept = GpuSettingsBackup()
    kept.record()
    assert (dict(kept.before), kept.settle()) == ({}, ())
