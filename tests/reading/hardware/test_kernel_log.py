"""The kernel log reader: every spelling of a line, every clock, what is taken back, what is old, and what is only noise."""

import re

import pytest

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.findings import Finding, Impact, LogEnd
from hangdog_models.reading.hardware import kernel_log
from hangdog_models.reading.limits import Limits
from support.refused import refused


def one(text: str) -> Finding:
    (finding,) = kernel_log.read(text)
    return finding


@pytest.mark.parametrize(
    ("line", "device", "code"),
    [
        ("NVRM: Xid (PCI:0000:4b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen", "0000:4b:00", "Xid 79"),
        ("NVRM: Xid (PCI:0000:4B:00): 79, pid=n/a, name=n/a, GPU has fallen", "0000:4b:00", "Xid 79"),
        ("NVRM: Xid (PCI:0000:4b:00): 79, GPU has fallen off the bus.", "0000:4b:00", "Xid 79"),
        ("NVRM: Xid (0000:4b:00): 79, GPU has fallen off the bus.", "0000:4b:00", "Xid 79"),
        ("NVRM: Xid (PCI:0000:4b:00.0): 79, GPU has fallen off the bus.", "0000:4b:00", "Xid 79"),
        ("nvrm: xid (pci:0000:4b:00): 79, gpu has fallen off the bus.", "0000:4b:00", "Xid 79"),
        ("NVRM: Xid (PCI:0018:01:00): 79, GPU has fallen off the bus.", "0018:01:00", "Xid 79"),
        ("NVRM: Xid (PCI:0000:4b:00 GPU-I:05): 79, pid=12, GPU has fallen", "0000:4b:00", "Xid 79"),
        ("NVRM: GPU 0000:4b:00.0: GPU has fallen off the bus.", "0000:4b:00", "Xid 79"),
        ("NVRM: Xid (PCI:0009:01:00): 149, NETIR  Fatal   XC0 i0 Link -1 (0x000fe406 0x0)", "0009:01:00", "Xid 149"),
        ("NVRM: Xid (PCI:0009:01:00): 95, pid=77, name='my job', Uncontained: LTC", "0009:01:00", "Xid 95"),
        ("nvidia-nvswitch0: SXid (PCI:0000:85:00.0): 20034, Fatal, Link 30 LTSSM", "0000:85:00", "SXid 20034"),
    ],
)
def test_every_spelling_convicts_the_same_device(line: str, device: str, code: str) -> None:
    found = one(line)
    assert (found.source, found.code, found.impact, found.device) == ("kernel log", code, Impact.CONVICTS, device)
    assert found.times == 1 and found.machine == "" and found.rank is None


@pytest.mark.parametrize(
    ("prefix", "at_s", "uptime_s"),
    [
        ("", None, None),
        ("[...] ", None, None),
        ("[   12.500000] ", None, 12.5),
        ("[   12.500000][ T1234] ", None, 12.5),
        ("<3>[   12.500000] ", None, 12.5),
        ("kern  :err   : [   12.500000] ", None, 12.5),
        ("3,1001,12500000,-;", None, 12.5),
        ("6,1001,12500000,-,caller=T77;", None, 12.5),
        ("kernel: [12.5] ", None, 12.5),
        ("[   12.500000] host-a kernel: ", None, 12.5),
        ("[Sun Feb 23 16:24:18 2025] ", 1740327858.0, None),
        ("[So Feb 23 16:24:18 2025] ", 1740327858.0, None),
        ("2025-02-23T16:24:18,500000+00:00 ", 1740327858.5, None),
        ("2025-02-23T17:24:18+0100 host-a kernel: ", 1740327858.0, None),
        ("2025-02-23T16:24:18.5Z host-a kernel: [   12.500000] ", 1740327858.5, 12.5),
        ("Sun 2025-02-23 16:24:18 UTC host-a kernel: ", 1740327858.0, None),
        ("1740327858.250000 host-a kernel: ", 1740327858.25, None),
        ("Feb 23 16:24:18 host-a kernel: ", None, None),
        ("Okt  6 16:24:18 host-a kernel: [   12.500000] ", None, 12.5),
        ("10月 06 16:24:18 host-a kernel: ", None, None),
        ("окт 06 16:24:18 host-a kernel: ", None, None),
        ("[  +0.000844] ", None, None),
        ("[Feb23 16:24] ", None, None),
        ("messages:Feb 23 16:24:18 host-a kernel: ", None, None),
        ("/var/log/kern.log.1:4711:Feb 23 16:24:18 host-a kernel: [   12.500000] ", None, 12.5),
        ("kern.log:[   12.500000] ", None, 12.5),
        ("10.0.0.9: kern:     err: [2025-02-23T16:24:18.500000000Z]: ", 1740327858.5, None),
    ],
)
def test_every_tools_prefix_is_taken_off_and_its_clock_read(
    prefix: str, at_s: float | None, uptime_s: float | None
) -> None:
    found = one(prefix + "NVRM: Xid (PCI:0000:4b:00): 79, GPU has fallen off the bus.")
    assert (found.at_s, found.uptime_s) == (at_s, uptime_s)
    assert kernel_log.recognises(prefix + "NVRM: Xid (PCI:0000:4b:00): 79, GPU has fallen off the bus.\n")


@pytest.mark.parametrize(
    "line",
    [
        "12,1001,12500000,-;NVRM: Xid (PCI:0000:4b:00): 79, GPU has fallen off the bus.",  # a user wrote into /dev/kmsg
        "<14>[  1.5] NVRM: Xid (PCI:0000:4b:00): 79, GPU has fallen off the bus.",
        "user  :err   : [ 1.5] NVRM: Xid (PCI:0000:4b:00): 79, GPU has fallen off the bus.",
        "Oct  6 17:59:27 host-a gpud[22]: NVRM: Xid (PCI:0000:4b:00): 79, GPU has fallen off the bus.",
        "Oct  6 17:59:27 host-a kernel: python: NVRM: Xid (PCI:0000:4b:00): 79, GPU has fallen off the bus.",
        "messages:Oct  6 17:59:27 host-a gpud[22]: NVRM: Xid (PCI:0000:4b:00): 79, GPU has fallen off the bus.",
        "kern.log:<14>[  1.5] NVRM: Xid (PCI:0000:4b:00): 79, GPU has fallen off the bus.",
        "10.0.0.9: user: warning: [2025-02-23T16:24:18.5Z]: NVRM: Xid (PCI:0000:4b:00): 79, GPU has fallen off the bus.",
        "NVRM: Xid error: xyz, invalid data",
        "NVRM: loading NVIDIA UNIX Open Kernel Module  570.86.15",
    ],
)
def test_what_the_kernel_did_not_say_is_no_finding(line: str) -> None:
    assert kernel_log.read(line) == ()


def test_repeats_are_one_finding_with_the_time_of_the_last() -> None:
    text = "\n".join(
        f"[  {n}.000000] NVRM: Xid (PCI:0000:4b:00): 119, pid={n}, name=smi, Timeout" for n in (10, 16, 22)
    )
    found = one(text)
    assert (found.code, found.impact, found.times, found.uptime_s) == ("Xid 119", Impact.RESET, 3, 22.0)


def test_the_process_in_the_line_is_a_victim_that_asked() -> None:
    asked = one("NVRM: Xid (PCI:0000:4b:00): 119, pid=7, name=nvidia-smi, Timeout after 6s")
    assert re.search(r"\bnvidia-smi, .*\bvictim\b", asked.what)


def test_a_record_of_several_lines_is_one_event() -> None:
    lines = [
        "[ 5.1] NVRM: The NVIDIA GPU 0000:4b:00.0",
        "[ 5.1] NVRM: (PCI ID: 10de:2330) installed in this system has",
        "[ 5.1] NVRM: fallen off the bus and is not responding to commands.",
    ]
    assert (one("\n".join(lines)).code, one("\n".join(lines)).device) == ("Xid 79", "0000:4b:00")
    both = "[ 5.0] NVRM: Xid (PCI:0000:4b:00): 79, GPU has fallen off the bus.\n" + "\n".join(lines)
    assert one(both).times == 1
    switch = (
        "nvidia-nvswitch0: SXid (PCI:0000:85:00.0): 20034, Fatal, Link 30 LTSSM Fault Up\n"
        "nvidia-nvswitch0: SXid (PCI:0000:85:00.0): 20034, Severity 1 Engine instance 60\n"
        "nvidia-nvswitch0: SXid (PCI:0000:85:00.0): 20034, Data {0x00000001, 0x0}\n"
    )
    assert one(switch).times == 1


#: https://github.com/NVIDIA/NVSentinel/issues/155, as `dmesg` writes it; one line of the driver's record in each.
RECORD = [
    "NVRM: The NVIDIA GPU 0000:b3:00.0",
    "NVRM: (PCI ID: 10de:26b5) installed in this system has",
    "NVRM: fallen off the bus and is not responding to commands.",
]


@pytest.mark.parametrize(
    "text",
    [
        "[ 1843.308145] " + "\n               ".join(RECORD) + "\n[ 1843.439662] NVRM: The NVIDIA probe routine failed for 1 device(s).\n",
        # https://github.com/leptonai/gpud/pull/1209, as `journalctl -k` writes it
        "Feb 14 05:03:41 gpu-1 kernel: bridge: filtering\nFeb 14 05:03:42 gpu-1 kernel: " + "\n                              ".join(RECORD) + "\n",
        "3,1001,1843308145,-;" + "\\x0a".join(RECORD) + "\n",  # /dev/kmsg
        "Feb 14 05:03:42 gpu-1 kernel: " + "#012".join(RECORD) + "\n",  # rsyslog
    ],
)  # fmt: skip
def test_a_record_whose_lines_below_the_first_bear_no_mark(text: str) -> None:
    assert (one(text).code, one(text).impact, one(text).device) == ("Xid 79", Impact.CONVICTS, "0000:b3:00")
    assert kernel_log.recognises(text)


@pytest.mark.parametrize(
    "head",
    [
        "Feb 14 05:03:42 gpu-1 python[7]: ",
        "[ 1.5] python[7]: segfault at 0 in ",
        "[ 1.5] NVRM: Xid (PCI:0000:1b:00): 43, pid=1, name=",
        "3,1001,12500000,-;NVRM: Xid (PCI:0000:1b:00): 43, pid=1, name=",
        "12,1001,12500000,-;",
        "",
    ],
)
@pytest.mark.parametrize("between", ["\n          ", "\\x0a", "#012"])
def test_what_a_user_writes_below_another_line_is_not_the_drivers(head: str, between: str) -> None:
    text = f"{head}x{between}NVRM: Xid (PCI:0000:4b:00): 79, GPU has fallen off the bus.\n"
    assert [found.code for found in kernel_log.read(text)] == (["Xid 43"] if "NVRM" in head else [])


def test_xid_45_is_noise_unless_it_names_what_caused_it() -> None:
    head = "NVRM: Xid (PCI:0000:dc:00): 45, pid=18, name=python3, Ch 00000001"
    assert one(head).impact is Impact.TELLS_NOTHING
    assert one(f"{head} caused by previous Xid 119").impact is Impact.SUSPECTS
    assert one(f"{head} caused by previous Xid 31").impact is Impact.PROGRAM
    assert one(f"{head} caused by previous Xid 45").impact is Impact.TELLS_NOTHING


def test_what_caused_an_xid_45_is_named_and_the_other_end_of_its_link_suffers() -> None:
    line = "NVRM: Xid (PCI:0000:{gpu}:00): 45, pid=18, name=python3, Ch 00000001 caused by previous Xid {other}\n"
    near, far = line.format(gpu="dc", other=149), line.format(gpu="ba", other=145)
    found = {one.device: (one.code, one.impact) for one in kernel_log.read(near + far)}
    assert found["0000:dc:00"] == ("Xid 149 behind Xid 45", Impact.RESET), (
        "what ends a channel is no error that the link recovers from"
    )
    assert found["0000:ba:00"] == ("Xid 145 behind Xid 45", Impact.VICTIM)
    assert one(far).impact is Impact.RESET


@pytest.mark.parametrize(
    ("prefix", "machine"),
    [
        ("Feb 23 16:24:18 gpu-a kernel: ", "gpu-a"),
        ("[   12.500000] gpu-a kernel: ", "gpu-a"),
        ("10.0.0.9: kern: warning: [2025-02-23T16:24:18.5Z]: ", "10.0.0.9"),
        ("[   12.500000] ", ""),
        ("kernel: ", ""),
    ],
)
def test_the_machine_is_whom_the_line_names(prefix: str, machine: str) -> None:
    assert one(f"{prefix}NVRM: Xid (PCI:0000:4b:00): 79, GPU has fallen off the bus.").machine == machine


def test_what_two_machines_wrote_into_one_log_is_of_each() -> None:
    line = "Feb 23 16:24:18 {host} kernel: NVRM: Xid (PCI:0000:4b:00): 79, GPU has fallen off the bus.\n"
    found = kernel_log.read(line.format(host="gpu-a") + line.format(host="gpu-b"))
    assert [one.machine for one in found] == ["gpu-a", "gpu-b"]


def test_driver_errors_without_an_xid_are_read() -> None:
    fabric = "[1891044.5] NVRM: nvCheckOkFailedNoLog: Check failed: out of sync [NV_ERR_X] (0x00000087) returned from s @ m.c:1\n"
    found = one(fabric * 688)
    assert (found.code, found.impact, found.times) == ("fabric state", Impact.RESET, 688)
    lost = (
        "NVRM: nvAssertOkFailedNoLog: Assertion failed: lost [NV_ERR_GPU_IS_LOST] (0x0000000F) returned from r @ k.c:1"
    )
    assert one(lost).impact is Impact.CONVICTS
    assert one("NVRM: GPU 0000:4b:00.0: RmInitAdapter failed! (0x62:0x65:2000)").impact is Impact.CONVICTS


@pytest.mark.parametrize(
    ("line", "code", "bearing"),
    [
        ("Out of memory: Killed process 4711 (python3) total-vm:1kB", "out of memory", Impact.SUSPECTS),
        ("Memory cgroup out of memory: Killed process 4711 (python3)", "out of memory", Impact.PROGRAM),
        ("pt_main_thread[99]: segfault at 0 ip 00007f sp 00007f error 4 in libnccl.so.2.21[7f+1]", "crash in NCCL", Impact.PROGRAM),
        ("nvidia 0000:4b:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer", "PCIe fatal", Impact.CONVICTS),
        ("nvidia 0000:4b:00.0: AER: can't recover (no error_detected callback)", "PCIe not recovered", Impact.RESET),
        ("pcieport 0000:00:03.0: AER: device recovery failed", "PCIe not recovered", Impact.SUSPECTS),
        ("nvidia 0000:4b:00.0: AER: PCIe Bus Error: severity=Uncorrectable (Non-Fatal), type=T", "PCIe uncorrected", Impact.SUSPECTS),
        ("pcieport 0000:00:01.0: PCIe Bus Error: severity=Corrected, type=Physical Layer", "PCIe corrected", Impact.TELLS_NOTHING),
        ("EDAC MC0: 1 UE memory read error on CPU_SrcID#0", "host memory", Impact.SUSPECTS),
        ("EDAC MC0: 27 CE memory read error on CPU_SrcID#0", "host memory corrected", Impact.TELLS_NOTHING),
        ("mce: [Hardware Error]: CPU 3: Machine Check Exception: 5 Bank 7", "machine check", Impact.SUSPECTS),
        ("watchdog: BUG: soft lockup - CPU#41 stuck for 23s! [python3:99]", "processor stuck", Impact.SUSPECTS),
        ("mlx5_core 0000:18:00.0: device's health compromised - reached miss count", "network card", Impact.CONVICTS),
        ("mlx5_core 0000:18:00.0: Port module event[error]: module 0, Cable error, High Temperature", "network module", Impact.SUSPECTS),
        ("mlx5_core 0000:18:00.0 ibp24s0: Link down", "link down", Impact.SUSPECTS),
        ("mlx5_core 0000:18:00.0: mlx5_cmd_out_err:808:(pid 1): ACCESS_REG(0x805) op_mod(0x1) failed", "access refused", Impact.TELLS_NOTHING),
        ("blk_update_request: I/O error, dev nvme0n1, sector 12345 op 0x0", "disk error", Impact.SUSPECTS),
        ("critical medium error, dev sda, sector 512 op 0x0:(READ)", "disk error", Impact.SUSPECTS),
        ("Buffer I/O error on dev sda1, logical block 64, async page read", "disk error", Impact.SUSPECTS),
        ("nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0x10", "disk gone", Impact.RESET),
        ("nvme nvme1: Removing after probe failure status: -19", "disk gone", Impact.RESET),
        ("nvme nvme0: controller is down; will reset: CSTS=0x3, PCI_STATUS=0x10", "disk error", Impact.SUSPECTS),
        ("nvme nvme0: I/O 123 QID 4 timeout, reset controller", "disk error", Impact.SUSPECTS),
        ("nfs: server files.lan not responding, still trying", "NFS not responding", Impact.SERVICE),
        ("Lustre: 17:0:(c.c:1:f()) x: Connection to fs-MDT0 (at 1.2.3.4@o2ib) was lost; in progress", "Lustre not responding", Impact.SERVICE),
    ],
)  # fmt: skip
def test_lines_that_are_not_the_gpus(line: str, code: str, bearing: Impact) -> None:
    found = one(f"[ 77.0] {line}")
    assert (found.code, found.impact, found.uptime_s) == (code, bearing, 77.0)


def test_a_server_that_answers_again_is_no_fault_and_a_link_that_came_back_is_a_note() -> None:
    down = "[1.0] nfs: server a not responding, still trying\n[1.0] nfs: server b not responding, timed out\n"
    (found,) = kernel_log.read(down + "[9.0] nfs: server a OK\n")
    assert (found.code, found.peers) == ("NFS not responding", ("b",))
    assert kernel_log.read("[1.0] nfs: server a not responding, still trying\n[2.0] nfs: server a OK") == ()
    flap = "[1.0] mlx5_core 0000:18:00.0 ib0: Link down\n[2.0] mlx5_core 0000:18:00.0 ib0: Link up\n"
    assert (one(flap).code, one(flap).impact) == ("link flap", Impact.PATH)
    assert kernel_log.read("[2.0] mlx5_core 0000:18:00.0 ib0: Link up\n") == ()


@pytest.mark.parametrize(
    ("frames", "code", "bearing"),
    [
        (["schedule", "io_schedule", "nfs_wait_bit_killable", "ksys_write"], "waits for storage", Impact.SERVICE),
        (["schedule", "os_acquire_mutex", "nvidia_ioctl"], "waits for the GPU driver", Impact.SUSPECTS),
        (["schedule", "jbd2_log_wait_commit", "ext4_sync_file"], "waits for a disk", Impact.SUSPECTS),
        (["schedule", "futex_wait"], "hung task", Impact.SUSPECTS),
    ],
)
def test_a_hung_task_is_judged_by_where_its_stack_hangs(frames: list[str], code: str, bearing: Impact) -> None:
    lines = [
        "INFO: task python3:4711 blocked for more than 120 seconds.",
        "      Tainted: P  OE  5.15.0",
        "Call Trace:",
        " <TASK>",
    ]
    text = "\n".join(f"[ 99.0] {line}" for line in [*lines, *(f" {name}+0x1a/0x90" for name in frames), " </TASK>"])
    assert (one(text).code, one(text).impact) == (code, bearing)
    assert "python3" in one(text).what
    addressed = "\n".join(
        f"[ 99.0] {line}" for line in [*lines, *(f"[<ffffffffa1766f60>] ? {name}+0x1a/0x90" for name in frames)]
    )
    assert (one(addressed).code, one(addressed).impact) == (code, bearing)


XID = "NVRM: Xid (PCI:0000:4b:00): 48, An uncorrectable error"
LATER = "NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus."


@pytest.mark.parametrize(
    ("first", "last", "old"),
    [
        ("Sep 28 17:59:27 h kernel: " + XID, "Oct  6 17:59:27 h kernel: " + LATER, True),
        ("Oct  6 17:20:00 h kernel: " + XID, "Oct  6 17:59:27 h kernel: " + LATER, False),
        ("Oct  6 14:20:00 h kernel: " + XID, "Oct  6 17:59:27 h kernel: " + LATER, True),
        ("Dec 31 23:59:00 h kernel: " + XID, "Jan  1 00:01:00 h kernel: " + LATER, False),
        ("Dec 31 23:59:00 h kernel: " + XID, "Jan  9 00:01:00 h kernel: eth0 is fine", True),
        ("[2397166.0] " + XID, "[12.0] " + LATER, True),  # a restart between them
        ("[10.0] " + XID, "[2397166.0] eth0 is fine", True),
        ("[10.0] " + XID, "[5000.0] eth0 is fine", False),
        ("[Sun Feb 23 16:24:18 2025] " + XID, "[Sun Mar  9 16:24:18 2025] eth0 is fine", True),
    ],
)
def test_what_is_old_by_the_logs_own_clock_is_shown_and_accuses_nobody(first: str, last: str, old: bool) -> None:
    found = kernel_log.read(f"{first}\n{last}\n")[0]
    assert found.code == "Xid 48"
    assert found.impact is (Impact.TELLS_NOTHING if old else Impact.SUSPECTS)
    assert ("(old: " in found.what) is old


def test_a_restart_leaves_no_time_of_the_earlier_clock() -> None:
    text = f"2025-10-06T10:00:00Z h kernel: [99999.0] {XID}\n2025-10-06T10:20:00Z h kernel: [12.0] {LATER}\n"
    before, after = kernel_log.read(text)
    assert before.uptime_s is None and before.impact is Impact.SUSPECTS and after.uptime_s == 12.0


def test_other_logs_are_not_taken_for_kernel_logs() -> None:
    for text in (
        "[rank0]: NCCL WARN something\n[rank1]: y\n",
        "2026-01-01 10:00:00,123 INFO trainer: step 3\n" * 3,
        "[Feb 25 2025 13:59:45] [INFO] [tid 1803] Received an inband message\n",
        "",
        "{}",
    ):
        assert not kernel_log.recognises(text)
    assert kernel_log.recognises("[    0.000000] Linux version 6.8.0\n[    0.000000] Command line: x\n")
    assert kernel_log.recognises("Oct  6 17:59:27 host kernel: usb 1-1: new device\n" * 3)


def test_more_events_than_are_kept_are_counted() -> None:
    text = "\n".join(f"NVRM: Xid ({n:04x}:01:00): 79, x" for n in range(1100))
    found = kernel_log.read(text)
    assert len(found) == 1001 and found[-1].code == "more events" and "100 further" in found[-1].what


def test_a_log_that_is_too_large_is_refused_by_the_limit_it_breaks() -> None:
    with refused("too-large", UnreadableEvidence, "file_bytes"):
        kernel_log.read("x" * 101, Limits(file_bytes=100))


def test_letters_that_a_terminal_would_obey_are_escaped_wherever_they_stand() -> None:
    evil = "\x1b[2J\ud800"
    text = f"NVRM: Xid (PCI:0000:4b:00 {evil}): 119, pid=1, name={evil}, {evil}\nnfs: server a{evil} not responding, timed out\n"
    for found in kernel_log.read(text):
        assert (found.what + found.device + "".join(found.peers)).isprintable()


@pytest.mark.parametrize(
    ("line", "code", "impact", "device"),
    [
        (
            "amdgpu 0000:63:00.0: amdgpu: 2 uncorrectable hardware errors detected in umc block",
            "AMD uncorrectable count", Impact.SUSPECTS, "0000:63:00",
        ),
        (
            "amdgpu 0000:c1:00.0: amdgpu: {3} socket: 1, die: 0, 1 new uncorrectable hardware errors detected in gfx block",
            "AMD uncorrectable", Impact.RESET, "0000:c1:00",
        ),
        (
            "amdgpu 0000:dd:00.0: {1}uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) detected!",
            "AMD uncorrectable", Impact.RESET, "0000:dd:00",
        ),
        ("amdgpu 0000:63:00.0: amdgpu: RAS records:11 exceed threshold:10", "AMD pages retired", Impact.CONVICTS, "0000:63:00"),
        (
            "[drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring gfx_0.0.0 timeout, signaled seq=13, emitted seq=15",
            "AMD ring timeout", Impact.SUSPECTS, "",
        ),
        (
            "amdgpu 0000:03:00.0: amdgpu: ring comp_1.0.0 timeout, signaled seq=13, emitted seq=15",
            "AMD ring timeout", Impact.SUSPECTS, "0000:03:00",
        ),
        (
            "amdgpu 0000:3d:00.0: amdgpu: The cp might be in an unrecoverable state due to an unsuccessful queues preemption",
            "AMD queue preemption", Impact.RESET, "0000:3d:00",
        ),
        ("amdgpu 0000:63:00.0: amdgpu: GPU reset begin!", "AMD reset", Impact.SUSPECTS, "0000:63:00"),
        ("amdgpu 0000:63:00.0: amdgpu: GPU reset end with ret = -62", "AMD reset failed", Impact.CONVICTS, "0000:63:00"),
    ],
)  # fmt: skip
def test_lines_of_amds_driver(line: str, code: str, impact: Impact, device: str) -> None:
    """Wordings of drivers/gpu/drm/amd of Linux 5.4 to 6.16, and of public reports of them."""
    found = one(line)
    assert (found.code, found.impact, found.device) == (code, impact, device)


@pytest.mark.parametrize(
    "line",
    [
        "amdgpu 0000:63:00.0: amdgpu: 0 uncorrectable hardware errors detected in umc block",
        "amdgpu 0000:63:00.0: amdgpu: 4 correctable hardware errors detected in umc block",
        "[drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring gfx_0.0.0 timeout, but soft recovered",
        "amdgpu 0000:63:00.0: amdgpu: GPU reset(2) succeeded!",
    ],
)
def test_lines_of_amds_driver_that_accuse_nothing(line: str) -> None:
    assert not kernel_log.read(line)


def test_a_log_goes_until_its_last_line_by_each_of_its_clocks() -> None:
    human = "[Sun Feb 23 16:24:18 2025] a: x\n"
    assert kernel_log.end(human + "cut off") == LogEnd("kernel log", "", 1740327858.0)
    assert kernel_log.end("[   12.5000] a: x\n[   99.500000] b: y\n\n") == LogEnd("kernel log", "", None, 99.5)
    assert kernel_log.end(human + "b\n" * 100) is None  # of too long ago to be looked for
    assert kernel_log.end("") is kernel_log.end("no clock in it") is None


@pytest.mark.parametrize("address", ["PCI:...", "PCI:xxxx:xx:xx", "PCI:****:**:**"])
def test_an_address_that_somebody_masked_hides_no_lost_gpu(address: str) -> None:
    (one,) = kernel_log.read(f"[ 100.5] NVRM: Xid ({address}): 79, GPU has fallen off the bus.\n")
    assert (one.code, one.impact, one.device) == ("Xid 79", Impact.CONVICTS, "")
