"""Level 0 with the true checks: a fake NVML, a kernel log that is a FIFO, a PCIe bus of our own; and a driver that never answers."""

import json
import os
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hangdog_agent.checks.check_paths import CheckPaths
from hangdog_agent.checks.check_result import Moment
from hangdog_agent.checks.check_state import Notes
from hangdog_agent.checks.gpus.gpu import Gpus
from hangdog_agent.checks.gpus.nvml_client import Sweeper
from hangdog_agent.checks.settings import CheckSettings
from hangdog_agent.machine_tests.level import LevelOutcome, LevelResult, MachineConviction, PartKind
from hangdog_agent.machine_tests.levels.passive import Passive, judged
from hangdog_agent.machine_tests.members import Ended, MemberEnd
from hangdog_agent.machine_tests.settings import LevelSettings
from hangdog_agent.machine_tests.torch_engine import Engine, Probe, Report, read
from support.fakes.fake_gpus import FakeGpus, built
from support.fakes.ladder import failed

XID_79 = "NVRM: Xid (PCI:0000:1c:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
XID_31 = "NVRM: Xid (PCI:0000:1c:00): 31, pid=4711, name=python3, Ch 00000008, MMU Fault"
GPU0, GPU1 = ((MachineConviction(PartKind.DEVICE, (f"GPU {index}",)),) for index in (0, 1))
#: The kernel and a user, as they stand in front of a record.
KERNEL, USER = 3, 11


class Machine:
    """Two GPUs in order on a PCIe bus, and a kernel log that says nothing yet."""

    def __init__(self, folder: Path, library: Path) -> None:
        self.gpus = FakeGpus(folder / "answers", library)
        self.places = CheckPaths(sys=folder / "sys", kmsg=folder / "kmsg")
        os.mkfifo(self.places.kmsg)
        self._log = os.open(self.places.kmsg, os.O_RDWR)
        for bus in ("1b", "1c"):
            device = folder / f"sys/bus/pci/devices/0000:{bus}:00.0"
            device.mkdir(parents=True)
            for name, value in {"vendor": "0x10de", "device": "0x2330", "class": "0x030200",
                                "current_link_width": "16", "max_link_width": "16"}.items():  # fmt: skip
                (device / name).write_text(f"{value}\n")

    def log(self, *texts: str, prio: int = KERNEL) -> None:
        for seq, line in enumerate(texts):
            os.write(self._log, f"{prio},{100 + seq},{int(1e6 * (time.monotonic() - 60)) + seq},-;{line}\n".encode())

    def level(self, known: str = "", **settings: Any) -> Passive:
        quick = replace(LevelSettings(), passive_apart_s=0.05, **settings)
        return Passive(quick, self.gpus.environ, known, self.places)

    def told(self, known: str = "", deadline_s: float = 60.0, **settings: Any) -> tuple[LevelResult, ...]:
        return self.level(known, **settings).run(deadline_s, threading.Event())

    def close(self) -> None:
        os.close(self._log)


@pytest.fixture(scope="module")
def nvml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = built(tmp_path_factory.mktemp("nvml"))
    if library is None:
        pytest.skip("no C compiler to build the fake NVML with: apt-get install gcc")
    return library


@pytest.fixture
def machine(tmp_path: Path, nvml: Path) -> Iterator[Machine]:
    made = Machine(tmp_path, nvml)
    yield made
    made.close()


def test_of_a_sound_machine_it_says_what_was_read_and_what_is_not_there(machine: Machine) -> None:
    machine.log(XID_31)
    machine.log(XID_79, prio=USER)  # anybody may write that
    (result,) = machine.told()
    assert result.outcome is LevelOutcome.PASS
    assert re.search(r"\bGPUs, kernel log, PCIe links; not here: network cards \(", result.message)
    assert any("Xid 31" in line for line in result.evidence), result.evidence


def test_what_convicts_fails_what_wants_a_reset_or_another_look_is_open(machine: Machine) -> None:
    machine.gpus.say("0/remap", "0 0 0 1")
    machine.gpus.say("0/width", "8")
    machine.gpus.say("1/field.230", "2")
    machine.log(XID_79)
    results = machine.told()
    by_words = {
        part: one
        for one in results
        for part in ("remapped", "lanes", "action 2", "Xid 79", "nothing speaks")
        if part in " ".join((one.message, *one.evidence)) and (part != "Xid 79" or one.test == "kernel log")
    }
    assert {part: (one.test, one.outcome, one.convicts) for part, one in by_words.items()} == {
        "remapped": ("GPUs", LevelOutcome.FAIL, GPU0),
        "lanes": ("GPUs", LevelOutcome.INCONCLUSIVE, ()),
        "action 2": ("GPUs", LevelOutcome.INCONCLUSIVE, ()),
        "Xid 79": ("kernel log", LevelOutcome.FAIL, GPU1),  # by the address that NVML gave
        "nothing speaks": ("reading", LevelOutcome.PASS, ()),
    }, results
    assert len(results) == 5
    assert "reset it" in by_words["action 2"].message


def test_the_last_line_of_a_flood_counts(machine: Machine) -> None:
    machine.places.kmsg.unlink()
    since = int(1e6 * (time.monotonic() - 60))
    lines = [*[XID_31] * 1_500, XID_79]
    records = (f"{KERNEL},{seq},{since + seq},-;{line}\n" for seq, line in enumerate(lines))
    machine.places.kmsg.write_text("".join(records))
    assert failed(machine.told()) == {"kernel log": GPU1}


def test_a_driver_that_blocks_keeps_back_nothing_else_and_its_second_silence_convicts(machine: Machine) -> None:
    machine.gpus.say("init", "@")
    machine.log(XID_79)
    results = machine.told(passive_nvml_s=1.0)
    assert failed(results) == {
        "GPUs": (MachineConviction(PartKind.MACHINE, ()),),
        "kernel log": (MachineConviction(PartKind.DEVICE, ("GPU 0000:1c:00",)),),  # nobody told which GPU that is
    }
    assert "does not answer" in results[0].message and "2 times in a row" in results[0].message


@pytest.mark.slow
def test_a_driver_that_blocks_longer_than_there_is_time_is_killed_and_convicts_nobody(machine: Machine) -> None:
    machine.gpus.say("init", "@")
    machine.log(XID_79)
    began = time.monotonic()
    results = machine.told(deadline_s=8.0)
    assert time.monotonic() - began < 8 + 10
    assert failed(results).keys() == {"kernel log"}, "what was read by then counts"
    assert results[0].outcome is LevelOutcome.INCONCLUSIVE
    assert results[0].message.startswith("GPUs: no answer; ") and "within 8 s" in results[0].message


def test_what_the_agent_remembers_is_missed_and_stays_the_agents(machine: Machine, tmp_path: Path) -> None:
    notes, boot = tmp_path / "notes", machine.places.boot()
    sweeper = Sweeper(CheckSettings(), environ=machine.gpus.environ)
    agent = Gpus(CheckSettings(), Notes(notes, boot), sweeper)
    assert agent.supported() == "" and agent.look(Moment(time.monotonic(), 0.0, boot)) == ()
    agent.close()
    before = (notes / "gpu.json").read_bytes()
    machine.gpus.say("count", "1")
    assert failed(machine.told(str(notes))) == {"GPUs": GPU1}
    assert ((notes / "gpu.json").read_bytes(), [path.name for path in notes.iterdir()]) == (before, ["gpu.json"])


@pytest.mark.slow
def test_what_ought_to_be_there_and_cannot_be_read_is_open(machine: Machine) -> None:
    machine.gpus.say("init", "!9")
    machine.places.kmsg.unlink()
    gpus, log, _ = machine.told()
    assert gpus.outcome is log.outcome is LevelOutcome.INCONCLUSIVE
    assert gpus.message.startswith("GPUs: 2 ") and "not loaded" in gpus.message
    assert log.message.startswith("kernel log: not read: ")


@pytest.mark.parametrize(
    ("seen", "why"),
    [(2, ""), (0, "torch sees none of the 2 NVIDIA GPUs on the PCIe bus: driver, container or --python")],
)
def test_the_cpu_is_not_tested_in_place_of_gpus_that_torch_does_not_see(
    seen: int, why: str, machine: Machine, tmp_path: Path
) -> None:
    (tmp_path / "torch.py").write_text(
        "class cuda:\n    is_available = staticmethod(lambda: True)\n"
        f"    device_count = staticmethod(lambda: {seen})\n"
        "class distributed:\n    is_nccl_available = staticmethod(lambda: True)\n__version__ = 'played'\n"
    )
    engine = Engine(environ={"PYTHONPATH": str(tmp_path)})
    assert engine.probe(60.0, places=machine.places) == Probe("played", seen, why)
    assert engine.probe(60.0, places=CheckPaths(sys=tmp_path / "none")) == Probe("played", seen, "")


def report(*lines: str) -> Report:
    ended = Ended("the reading", MemberEnd.DEADLINE, seconds=9.0, stdout="\n".join(lines))
    return read(ended)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "[1]",
        '{"part": 7}',
        '{"part": {"check": ["gpu"]}}',
        '{"part": {"check": "gpu", "found": [7, {}]}}',
        "\x00\xff",
    ],
)
def test_whatever_a_sick_machine_answers_convicts_nobody(line: str) -> None:
    results = list(judged(report(line)))
    assert results and {one.outcome for one in results} <= {LevelOutcome.INCONCLUSIVE, LevelOutcome.PASS}


def test_a_bug_in_one_check_is_told() -> None:
    first, *_ = judged(report('{"part": {"check": "gpu", "failed": "this is a bug in hangdog: KeyError: 7"}}'))
    assert first.outcome is LevelOutcome.INCONCLUSIVE
    assert first.message.startswith("GPUs: ") and first.message.endswith("KeyError: 7")


def test_who_could_not_be_asked_has_not_passed() -> None:
    found = [{"kind": "telemetry", "code": "NVML not asked", "words": "its process died"}]
    first, *rest = judged(report(json.dumps({"part": {"check": "gpu", "found": found}})))
    assert (first.outcome, first.message) == (LevelOutcome.INCONCLUSIVE, "its process died")
    assert LevelOutcome.PASS not in {one.outcome for one in rest}
