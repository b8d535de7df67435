"""The kernel log, read from a FIFO as from /dev/kmsg: every shape of line, gaps, floods, restarts; and users who write into it."""

import errno
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hangdog_agent.checks.check_paths import CheckPaths
from hangdog_agent.checks.check_result import CheckKind, CheckResult, CheckVerdict, Component, Moment
from hangdog_agent.checks.check_state import Notes
from hangdog_agent.checks.kernel_log import Kernel
from hangdog_agent.checks.kmsg import Kmsg, parse
from hangdog_agent.checks.settings import CheckSettings
from hangdog_models.findings import Impact

XID_79 = "NVRM: Xid (PCI:0000:4b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
GPU_3 = Component(CheckKind.GPU, "3", "GPU-3", "serial-3", "0000:4b:00")


class Log:
    """A FIFO that the check reads, and the check, which may be restarted."""

    def __init__(self, folder: Path, clock: Iterator[Moment]) -> None:
        self.places = CheckPaths(kmsg=folder / "kmsg", state=folder / "notes")
        os.mkfifo(self.places.kmsg)
        self._clock = clock
        self._seq = 100
        self.boot = "boot-1"
        self.settings = CheckSettings()
        self.check = self._check()
        self._pipe = os.open(self.places.kmsg, os.O_WRONLY)

    def _check(self, any_facility: bool = False) -> Kernel:
        notes = Notes(self.places.state, self.boot)
        check = Kernel(
            self.places,
            self.settings,
            notes,
            {GPU_3.pci: GPU_3}.get,
            any_facility,
            read=lambda fd, size: self.read(fd, size),
        )
        assert check.supported() == ""
        return check

    read = staticmethod(os.read)

    def restart(self, any_facility: bool = False, killed: bool = False) -> None:
        if not killed:
            self.check.close()
        self.check = self._check(any_facility)

    def write(self, *texts: str, seq: int | None = None, prio: int = 3, step_us: int = 1_000) -> None:
        """Records as the device gives them, with a line of details behind each."""
        for text in texts:
            self._seq = seq if seq is not None else self._seq + 1
            usec = 900_000_000 + step_us * self._seq
            os.write(self._pipe, f"{prio},{self._seq},{usec},-,caller=T7;{text}\n SUBSYSTEM=pci\n".encode())

    def look(self) -> tuple[CheckResult, ...]:
        return self.check.look(next(self._clock))

    def told(self, *texts: str) -> list[tuple[str, str, CheckVerdict]]:
        self.write(*texts)
        return [(result.code, result.finding.device, result.kind) for result in self.look()]

    def close(self) -> None:
        self.check.close()
        os.close(self._pipe)


@pytest.fixture
def log(tmp_path: Path, clock: Iterator[Moment]) -> Iterator[Log]:
    opened = Log(tmp_path, clock)
    yield opened
    opened.close()


@pytest.mark.parametrize(
    ("texts", "code", "device", "kind"),
    [
        ((XID_79,), "Xid 79", "0000:4b:00", CheckVerdict.CONVICT),
        (("NVRM: Xid (PCI:0000:4b:00): 79, GPU has fallen off the bus.",), "Xid 79", "0000:4b:00", CheckVerdict.CONVICT),
        (("NVRM: Xid (0000:4b:00): 14, Channel 00000007",), "Xid 14", "0000:4b:00", CheckVerdict.TELEMETRY),
        (("NVRM: Xid (PCI:0000:9b:00): 119, pid=31337, name=python3, Timeout after 45s of waiting for RPC response from GPU4 GSP! Expected function 103 (GSP_RM_ALLOC) (0x2081 0x4).",), "Xid 119", "0000:9b:00", CheckVerdict.RESET),
        (("NVRM: Xid (PCI:0000:1b:00): 63, pid=4711, Row Remapper: New row marked for remapping, reset gpu to activate.",), "Xid 63", "0000:1b:00", CheckVerdict.RESET),
        (("NVRM: Xid (PCI:0000:1b:00): 154, GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)",), "Xid 154", "0000:1b:00", CheckVerdict.RESET),
        (("NVRM: Xid (PCI:0000:1b:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (OS Reboot)",), "Xid 154", "0000:1b:00", CheckVerdict.RESET),
        (("NVRM: Xid (PCI:0000:1b:00): 154, GPU recovery action changed from 0x2 (OS Reboot) to 0x0 (None)",), "Xid 154", "0000:1b:00", CheckVerdict.TELEMETRY),
        (("NVRM: Xid (PCI:0018:01:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6 0x00000000 0x00000000)",), "Xid 149", "0018:01:00", CheckVerdict.CONVICT),
        (("NVRM: Xid (PCI:0000:1b:00): 146, TLW_RX/TLW_RX_PIPE0 Nonfatal XC0 i0 Link 00 (0x0000000a 0x00000001)",), "Xid 146", "0000:1b:00", CheckVerdict.SUSPECT),
        (("NVRM: GPU 0000:4b:00.0: GPU has fallen off the bus.",), "Xid 79", "0000:4b:00", CheckVerdict.CONVICT),
        (("NVRM: The NVIDIA GPU 0000:4b:00.0\\x0aNVRM: (PCI ID: 10de:2330) installed in this system has\\x0aNVRM: fallen off the bus and is not responding to commands.",), "Xid 79", "0000:4b:00", CheckVerdict.CONVICT),
        (("NVRM: The NVIDIA GPU 0000:4b:00.0", "NVRM: (PCI ID: 10de:2330) installed in this system has", "NVRM: fallen off the bus and is not responding to commands."), "Xid 79", "0000:4b:00", CheckVerdict.CONVICT),
        (("nvidia-nvswitch3: SXid (PCI:0000:85:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error (First)",), "SXid 12028", "0000:85:00", CheckVerdict.TELEMETRY),
        (("nvidia-nvswitch0: SXid (PCI:0000:85:00.0): 20034, Fatal, Link 30 LTSSM Fault Up", "nvidia-nvswitch0: SXid (PCI:0000:85:00.0): 20034, Severity 1 Engine instance 60 Sub-engine instance 00"), "SXid 20034", "0000:85:00", CheckVerdict.CONVICT),
        (("mlx5_core 0000:16:00.0: mlx5_pcie_event:299:(pid 0): Detected insufficient power on the PCIe slot (27W).",), "PCIe power", "0000:16:00", CheckVerdict.SUSPECT),
        (("mlx5_core 0000:16:00.0: Port module event[error]: module 0, Cable error, High Temperature",), "network module", "0000:16:00", CheckVerdict.SUSPECT),
        (("Memory cgroup out of memory: Killed process 77 (python) total-vm:1kB",), "out of memory", "", CheckVerdict.TELEMETRY),
        (("Out of memory: Killed process 77 (python) total-vm:1kB",), "out of memory", "", CheckVerdict.SUSPECT),
        (("blk_update_request: I/O error, dev nvme0n1, sector 7 op 0x0:(READ)",), "disk error", "nvme0n1", CheckVerdict.SUSPECT),
        (("nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0x10",), "disk gone", "nvme0", CheckVerdict.RESET),
    ],
    ids=lambda value: value[0][:60] if isinstance(value, tuple) else "",
)  # fmt: skip
def test_every_shape_of_line_is_one_event(
    texts: tuple[str, ...], code: str, device: str, kind: CheckVerdict, log: Log
) -> None:
    assert log.told(*texts) == [(code, device, kind)]
    assert log.look() == ()


def test_a_result_says_where_when_and_by_which_line(log: Log) -> None:
    log.write(XID_79, seq=4711)
    (result,) = log.look()
    assert result.component == GPU_3
    assert result.identity == "boot-1/kernel/4711/Xid 79/0000:4b:00"
    assert result.evidence == (XID_79,)
    assert result.finding.source == "kernel log"
    # The record was written 904.711 s after the machine's start, the look taken at 1000 s.
    assert result.finding.at_s == pytest.approx(1.8e9 - 1000.0 + 904.711)
    assert not result.lasting


def test_the_lines_of_one_fault_are_one_event_and_a_later_one_is_another(log: Log) -> None:
    storm = [XID_79, "NVRM: GPU 0000:4b:00.0: GPU has fallen off the bus.", XID_79, "NVRM: fallen off the bus"]
    assert len(log.told(*storm)) == 1
    assert log.told(*storm) == []
    log.write(XID_79, seq=80_000)  # 80 s later by the kernel's clock
    codes = [result.code for result in log.look()]
    assert sorted(codes) == ["Xid 79", "kernel log gap"]


def test_lines_are_not_counted_twice_when_the_agent_restarts(log: Log) -> None:
    log.write(XID_79, seq=101)
    assert len(log.look()) == 1
    log.restart()
    log.write(XID_79, seq=101)  # the device begins with its oldest record again
    assert log.look() == ()
    assert log.told("NVRM: Xid (PCI:0000:1b:00): 95, Uncontained") == [("Xid 95", "0000:1b:00", CheckVerdict.CONVICT)]


def test_what_a_killed_agent_had_not_passed_on_is_told_again_under_its_name(log: Log) -> None:
    log.write(XID_79, seq=101)
    (before,) = log.look()
    log.restart(killed=True)
    log.write(XID_79, seq=101)
    (after,) = log.look()
    assert after.identity == before.identity


def test_after_a_reboot_the_numbers_begin_anew(log: Log) -> None:
    log.write(XID_79, seq=5_000)
    (before,) = log.look()
    log.boot = "boot-2"
    log.restart()
    log.write(XID_79, seq=7)
    after = log.check.look(Moment(1000.0, 1.8e9, "boot-2"))
    assert [result.identity for result in after] == ["boot-2/kernel/7/Xid 79/0000:4b:00"]
    assert before.identity.startswith("boot-1/")


def test_what_happened_hours_before_the_agent_is_no_news_unless_it_lasts(log: Log) -> None:
    log.write(XID_79, "nfs: server fs-1 not responding, still trying")
    assert [result.code for result in log.check.look(Moment(901.0 + 7_200.0, 1.8e9, "boot-1"))] == [
        "NFS not responding"
    ]


def test_a_user_cannot_talk_a_machine_out_of_a_job(log: Log) -> None:
    log.write(XID_79, prio=11)  # what a user writes has facility 1 or more
    forged = "python3\\x0aNVRM: Xid (PCI:0000:4b:00): 79, GPU[9]: segfault at 0 ip 0 sp 0 error 4"
    named = "NVRM: Xid (PCI:0000:1b:00): 43, pid=1, name=a\\x0aNVRM: GPU has fallen off the bus, Ch 1"
    log.write(forged, named, "traps: a\\x0a3,9,9,-;NVRM: Xid (PCI:0000:4b:00): 79, GPU lost")
    assert [result.code for result in log.look()] == ["Xid 43"]
    log.restart(any_facility=True)
    log.write(XID_79, prio=11)
    assert [result.code for result in log.look()] == ["Xid 79"]


def test_a_link_that_is_down_lasts_until_it_is_up_also_over_a_restart(log: Log) -> None:
    down, up = "mlx5_core 0000:16:00.0 ib0: Link down", "mlx5_core 0000:16:00.0 ib0: Link up"
    assert log.told(down) == [("link down", "0000:16:00", CheckVerdict.SUSPECT)]
    (lasting,) = log.look()
    assert lasting.lasting
    log.restart()
    (still,) = log.look()
    assert still.identity == lasting.identity
    assert log.told(up) == [("link flap", "0000:16:00", CheckVerdict.TELEMETRY)]
    assert log.look() == ()
    assert log.told(up) == []  # nothing was down


def test_a_file_server_that_answers_again_is_no_longer_told(log: Log) -> None:
    log.write("nfs: server fs-1 not responding, still trying", "nfs: server fs-2 not responding, timed out")
    assert [result.finding.peers for result in log.look()] == [("fs-1",), ("fs-2",)]
    log.write("nfs: server fs-1 OK")
    (left,) = log.look()
    assert (left.finding.peers, left.finding.impact, left.component.sort) == (
        ("fs-2",),
        Impact.SERVICE,
        CheckKind.MOUNT,
    )


@pytest.mark.parametrize("together", [True, False])
def test_a_hung_task_is_told_by_where_it_hangs(together: bool, log: Log) -> None:
    task = "INFO: task python:4711 blocked for more than 120 seconds."
    stack = [" Call Trace:", "  <TASK>", "  __schedule+0x2d/0x8", "  rpc_wait_bit_killable+0x1e/0x90"]
    log.write(task)
    first = () if together else log.look()
    log.write(*stack)
    found = [*first, *log.look(), *log.look()]
    assert [(result.code, result.finding.impact) for result in found] == [("waits for storage", Impact.SERVICE)]


def test_a_hung_task_whose_stack_had_not_come_is_read_again_after_a_restart(log: Log) -> None:
    task, frame = "INFO: task python:4711 blocked for more than 120 seconds.", "  nfs_wait_bit_killable+0x1e/0x90"
    log.write(task, seq=101)
    assert log.look() == ()
    log.restart()
    log.write(task, seq=101)
    log.write(frame)
    assert [result.code for result in (*log.look(), *log.look())] == ["waits for storage"]


def test_a_hung_task_without_a_stack_is_told_by_the_next_look(log: Log) -> None:
    assert log.told("INFO: task python:4711 blocked for more than 120 seconds.") == []
    assert [result.code for result in log.look()] == ["hung task"]
    assert log.look() == ()


def test_overwritten_records_are_a_gap(log: Log) -> None:
    log.write("usb 1-1: new device", seq=101)
    assert log.look() == ()
    log.write(XID_79, seq=151)
    gap, event = sorted(log.look(), key=lambda result: result.code, reverse=True)
    assert (gap.code, gap.kind, event.code) == ("kernel log gap", CheckVerdict.TELEMETRY, "Xid 79")
    assert gap.words.startswith("49 records")


def test_the_kernels_word_that_records_are_gone_is_no_end(log: Log) -> None:
    refusals = [errno.EPIPE]

    def read(fd: int, size: int) -> bytes:
        if refusals:
            raise OSError(refusals.pop(), "overwritten")
        return os.read(fd, size)

    log.read = read
    assert log.told(XID_79) == [("Xid 79", "0000:4b:00", CheckVerdict.CONVICT)]


def test_records_cut_by_a_read_are_whole(log: Log) -> None:
    log.read = lambda fd, _size: os.read(fd, 7)
    assert log.told(XID_79) == [("Xid 79", "0000:4b:00", CheckVerdict.CONVICT)]


def test_a_flood_of_a_hundred_thousand_lines_is_read_in_one_look(tmp_path: Path) -> None:
    noise = "".join(
        f"6,{n},{900_000_000 + n},-;usb 1-1: device number {n} does what devices do\n" for n in range(100_000)
    )
    path = tmp_path / "kmsg"
    path.write_text(f"{noise}3,100000,950000000,-;{XID_79}\n", encoding="utf-8")
    check = Kernel(CheckPaths(kmsg=path), CheckSettings(), Notes(None, "boot-1"))
    assert check.supported() == ""
    began = time.process_time()
    (result,) = check.look(Moment(1000.0, 1.8e9, "boot-1"))
    assert time.process_time() - began < 2.0  # half a second by itself
    check.close()
    assert result.code == "Xid 79"


def test_a_storm_of_telling_lines_is_bounded_and_goes_on_in_the_next_look(tmp_path: Path) -> None:
    path = tmp_path / "kmsg"
    lines = [f"3,{n},{900_000_000 + n},-;NVRM: Xid (PCI:0000:{n:02x}:00): 79, GPU gone" for n in range(30)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    check = Kernel(CheckPaths(kmsg=path), CheckSettings(kmsg_relevant=20), Notes(None, "boot-1"))
    check.supported()
    told = [len(check.look(Moment(1000.0 + n, 1.8e9, "boot-1"))) for n in range(3)]
    check.close()
    assert told == [20, 10, 0]


@pytest.mark.parametrize("line", ["", " SUBSYSTEM=pci", "3,1,2;x", "a,1,2,-;x", "3,1,2,-", "3,-1,2,-;x", "\0" * 99])
def test_what_is_no_record_is_passed_over(line: str) -> None:
    assert parse(line) is None


def test_a_machine_whose_log_cannot_be_read_says_why(tmp_path: Path) -> None:
    assert "mount it" in Kmsg(tmp_path / "kmsg").open()
    (tmp_path / "folder").mkdir(mode=0)
    if os.geteuid():
        assert "CAP_SYSLOG" in Kmsg(tmp_path / "folder" / "kmsg").open()


def test_the_real_log_of_this_machine_can_be_read() -> None:
    check = Kernel(CheckPaths(), CheckSettings(), Notes(None, "boot-1"))
    if why := check.supported():
        pytest.skip(why)
    check.look(Moment(time.monotonic(), 1.8e9, "boot-1"))
    check.close()
