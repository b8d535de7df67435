"""What a capture brings of the machine itself: the kernel's own lines, and nvidia-smi where a driver is loaded."""

from pathlib import Path

import pytest

from hangdog.capture import machine_files
from hangdog_models.reading.hardware import kernel_log, nvidia_smi

XID = "NVRM: Xid (PCI:0000:01:00): 79, pid=1, GPU has fallen off the bus."


def test_the_kernels_own_lines_are_kept_as_its_reader_takes_them(tmp_path: Path) -> None:
    log = tmp_path / "kmsg"
    log.write_text(f"3,10,5000000,-;{XID}\n14,11,6000000,-;a program's own words\n6,12,7000000,-;eth0: link up\n")
    file = machine_files.kernel_log(log)
    assert "own words" not in file.text and not file.problem
    (finding,) = kernel_log.read(file.text)
    assert (finding.code, finding.uptime_s) == ("Xid 79", 5.0)


def test_the_newest_lines_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_files, "_RECORDS", 2)
    log = tmp_path / "kmsg"
    log.write_text("".join(f"6,{number},{number},-;line {number}\n" for number in range(9)))
    assert machine_files.kernel_log(log).text == "6,7,7,-;line 7\n6,8,8,-;line 8\n"


def test_a_log_that_is_not_there_is_a_reason(tmp_path: Path) -> None:
    file = machine_files.kernel_log(tmp_path / "absent")
    assert not file.text and "there is no" in file.problem


def smi(folder: Path, script: str) -> machine_files.MachineFile:
    tool, driver = folder / "nvidia-smi", folder / "nvidiactl"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    driver.touch()
    return machine_files.gpu_query(str(folder), driver)


def test_what_nvidia_smi_prints_is_kept_whatever_its_status(tmp_path: Path) -> None:
    lost = (
        "Unable to determine the device handle for GPU0000:01:00.0: GPU is lost.  Reboot the system to recover this GPU"
    )
    file = smi(tmp_path, f"echo '{lost}'; exit 15")
    assert [finding.code for finding in nvidia_smi.read(file.text)] == ["GPU lost"] and not file.problem


def test_without_a_driver_it_is_not_asked(tmp_path: Path) -> None:
    smi(tmp_path, "echo asked")
    file = machine_files.gpu_query(str(tmp_path), tmp_path / "no-driver")
    assert (file.text, file.problem) == ("", "")


def test_a_driver_that_hangs_and_other_words_are_reasons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "known" in smi(tmp_path, "echo hello; exit 1").problem
    monkeypatch.setattr(machine_files, "_SMI_S", 0.5)
    assert "no answer within 0.5 s" in smi(tmp_path, "sleep 60").problem
