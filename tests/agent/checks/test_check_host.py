"""Disks, memory and PCIe links below pretended kernel trees: what turned read-only, ran short, grew narrow or went away."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from hangdog_agent.checks import disk
from hangdog_agent.checks.check_paths import CheckPaths
from hangdog_agent.checks.check_result import CheckResult, CheckVerdict, Moment
from hangdog_agent.checks.check_state import Notes
from hangdog_agent.checks.disk import Disks
from hangdog_agent.checks.memory import MemoryCheck
from hangdog_agent.checks.pcie import Pcie
from hangdog_agent.checks.settings import CheckSettings
from hangdog_models.findings import Finding, Impact

SETTINGS = CheckSettings()


def told(results: tuple[CheckResult, ...]) -> list[tuple[str, str, CheckVerdict]]:
    return [(result.code, result.component.name, result.kind) for result in results]


# ------------------------------------------------------------------ disks


class Mounts:
    """A pretended /proc and /sys with one disk, a volume upon it, and file systems."""

    def __init__(self, folder: Path) -> None:
        self.places = CheckPaths(proc=folder / "proc", sys=folder / "sys")
        (self.places.proc / "self").mkdir(parents=True)
        block = self.places.sys / "devices/pci0000:00/0000:02:00.0/nvme/nvme0/nvme0n1"
        (block / "nvme0n1p2").mkdir(parents=True)
        volume = self.places.sys / "devices/virtual/block/dm-0"
        (volume / "slaves").mkdir(parents=True)
        (volume / "slaves/nvme0n1p2").symlink_to(block / "nvme0n1p2")
        (self.places.sys / "dev/block").mkdir(parents=True)
        (self.places.sys / "dev/block/259:2").symlink_to(block / "nvme0n1p2")
        (self.places.sys / "dev/block/253:0").symlink_to(volume)
        self.complaints: list[Finding] = []
        self.check = Disks(self.places, SETTINGS, lambda: self.complaints)
        self.mount()

    def mount(self, root: str = "rw", volume: str = "rw", bind: str = "rw") -> None:
        (self.places.proc / "self/mountinfo").write_text(
            f"21 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 {root},errors=remount-ro\n"
            f"22 21 253:0 / /scratch rw,noatime - xfs /dev/mapper/scratch {volume},attr2\n"
            f"23 21 259:2 /etc /pod/etc {bind},relatime - ext4 /dev/nvme0n1p2 {root}\n"
            "24 21 0:5 / /dev rw - devtmpfs devtmpfs ro\n25 21 7:0 / /snap ro - squashfs /dev/loop0 ro\ncut 21\n"
        )

    def complain(self, device: str) -> None:
        self.complaints.append(Finding("kernel log", "disk error", Impact.SUSPECTS, "a disk failed", device=device))


@pytest.fixture
def mounts(tmp_path: Path) -> Mounts:
    return Mounts(tmp_path)


def test_a_file_system_that_turned_read_only_is_suspect(mounts: Mounts, clock: Iterator[Moment]) -> None:
    assert mounts.check.supported() == ""
    assert mounts.check.look(next(clock)) == ()
    mounts.mount(bind="ro")  # one mount's own option is no fault
    assert mounts.check.look(next(clock)) == ()
    mounts.mount(root="ro")
    assert told(mounts.check.look(next(clock))) == [("file system", "nvme0n1p2", CheckVerdict.SUSPECT)]
    mounts.mount()
    assert mounts.check.look(next(clock)) == ()


@pytest.mark.parametrize("device", ["nvme0n1p2", "nvme0n1", "nvme0"])
@pytest.mark.parametrize(("turned", "name"), [("root", "nvme0n1p2"), ("volume", "scratch")])
def test_with_the_kernels_complaint_it_is_a_disk_fault_and_convicts(
    device: str, turned: str, name: str, mounts: Mounts, clock: Iterator[Moment]
) -> None:
    mounts.check.look(next(clock))
    mounts.mount(**{turned: "ro"})
    mounts.complain("sdb")
    mounts.complain("nvme1n1")
    assert told(mounts.check.look(next(clock))) == [("file system", name, CheckVerdict.SUSPECT)]
    mounts.complain(device)
    (fault,) = mounts.check.look(next(clock))
    assert told((fault,)) == [("disk fault", name, CheckVerdict.CONVICT)]
    assert fault.evidence[1] == "a disk failed"


def test_what_was_read_only_from_the_start_is_meant_so(mounts: Mounts, clock: Iterator[Moment]) -> None:
    mounts.mount(root="ro")
    mounts.complain("nvme0n1")
    assert mounts.check.look(next(clock)) == ()


def test_the_agents_own_folder_is_probed_by_a_child(tmp_path: Path, clock: Iterator[Moment]) -> None:
    places = CheckPaths(state=tmp_path)
    assert Disks(places, CheckSettings(spool_bytes=1)).look(next(clock)) == ()
    (full,) = Disks(places, CheckSettings(spool_bytes=1 << 62)).look(next(clock))
    assert told((full,)) == [("folder full", str(tmp_path), CheckVerdict.TELEMETRY)]
    assert Disks(CheckPaths(state=tmp_path / "none"), CheckSettings(spool_bytes=1 << 62)).look(next(clock)) == ()


def test_a_probe_that_hangs_is_evidence_and_hangs_nobody_else(
    tmp_path: Path, clock: Iterator[Moment], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "_PROBE", "import time; time.sleep(600)")
    check = Disks(CheckPaths(state=tmp_path), CheckSettings(probe_s=0.3))
    (hangs,) = check.look(next(clock))
    assert told((hangs,)) == [("folder hangs", str(tmp_path), CheckVerdict.SUSPECT)]
    assert "no answer within 0.3 s" in hangs.words


# ------------------------------------------------------------------ memory


class Host:
    """A pretended /proc and /sys with memory."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.check = MemoryCheck(CheckPaths(proc=folder / "proc", sys=folder / "sys"), SETTINGS)
        self.set("proc/meminfo", "MemTotal:  1000000 kB\nMemFree:  1 kB\nMemAvailable:  500000 kB\n")
        self.set("proc/vmstat", "nr_free_pages 1\noom_kill 7\n")
        self.set("sys/devices/system/edac/mc/mc0/ue_count", "2\n")

    def set(self, name: str, text: str) -> None:
        (self._folder / name).parent.mkdir(parents=True, exist_ok=True)
        (self._folder / name).write_text(text)


@pytest.fixture
def host(tmp_path: Path, clock: Iterator[Moment]) -> Host:
    host = Host(tmp_path)
    assert host.check.supported() == ""
    assert host.check.look(next(clock)) == ()
    return host


def test_kills_for_memory_are_counted_by_their_rise(host: Host, clock: Iterator[Moment]) -> None:
    host.set("proc/vmstat", "oom_kill 9\n")
    (killed,) = host.check.look(next(clock))
    assert (killed.code, killed.kind, killed.lasting) == ("out of memory", CheckVerdict.TELEMETRY, False)
    assert "killed 2 processes" in killed.words
    assert host.check.look(next(clock)) == ()


def test_a_kill_while_all_memory_is_used_up_speaks_against_the_machine(host: Host, clock: Iterator[Moment]) -> None:
    host.set("proc/meminfo", "MemTotal: 1000000 kB\nMemAvailable: 9000 kB\n")
    assert [result.code for result in host.check.look(next(clock))] == ["memory short"]
    host.set("proc/vmstat", "oom_kill 8\n")
    assert told(host.check.look(next(clock))) == [
        ("memory short", "", CheckVerdict.TELEMETRY),
        ("out of memory", "", CheckVerdict.SUSPECT),
    ]


def test_new_errors_of_a_memory_module_make_suspect(host: Host, clock: Iterator[Moment]) -> None:
    host.set("sys/devices/system/edac/mc/mc0/ue_count", "3\n")
    (error,) = host.check.look(next(clock))
    assert told((error,)) == [("host memory", "mc0", CheckVerdict.SUSPECT)]
    host.set("sys/devices/system/edac/mc/mc0/ue_count", "0\n")  # set back
    assert host.check.look(next(clock)) == ()
    host.set("sys/devices/system/edac/mc/mc0/ue_count", "1\n")
    assert "had 1 error" in host.check.look(next(clock))[0].words


@pytest.mark.parametrize("text", ["", "MemTotal: 0 kB\nMemAvailable: 0 kB\n", "MemTotal:\nMemAvailable: x\n", "\0"])
def test_memory_without_numbers_does_not_apply(text: str, host: Host, clock: Iterator[Moment]) -> None:
    host.set("proc/meminfo", text)
    host.set("proc/vmstat", "oom_kill x\n")
    assert host.check.supported()
    assert host.check.look(next(clock)) == ()


# ------------------------------------------------------------------ PCIe


class Bus:
    """A pretended PCIe bus with two GPUs, two cards, a virtual function and a disk."""

    def __init__(self, folder: Path) -> None:
        self.places = CheckPaths(sys=folder / "sys", state=folder / "notes")
        self.root = self.places.sys / "bus/pci/devices"
        for gpu in ("0000:1b:00.0", "0000:1c:00.0"):
            self.add(gpu, "0x10de", "0x030200", "0x2330")
        for card in ("0000:16:00.0", "0000:17:00.0"):
            self.add(card, "0x15b3", "0x020700", "0x1021")
        self.add("0000:16:00.1", "0x15b3", "0x020700", "0x101e", width="0")
        (self.root / "0000:16:00.1/physfn").mkdir()
        self.add("0000:02:00.0", "0x144d", "0x010802", "0xa80a", width="1")
        self.begin()

    def begin(self) -> None:
        self.check = Pcie(self.places, SETTINGS, Notes(self.places.state, "boot-1"))

    def add(self, address: str, vendor: str, kind: str, device: str, width: str = "16") -> None:
        (self.root / address).mkdir(parents=True)
        for name, value in (("vendor", vendor), ("class", kind), ("device", device), ("max_link_width", "16")):
            (self.root / address / name).write_text(f"{value}\n")
        self.width(address, width)

    def width(self, address: str, width: str) -> None:
        (self.root / address / "current_link_width").write_text(f"{width}\n")


@pytest.fixture
def bus(tmp_path: Path) -> Bus:
    return Bus(tmp_path)


def test_a_link_that_grew_narrow_slows(bus: Bus, clock: Iterator[Moment]) -> None:
    assert bus.check.supported() == ""
    assert bus.check.look(next(clock)) == ()
    bus.width("0000:1b:00.0", "8")
    (narrow,) = bus.check.look(next(clock))
    assert (narrow.code, narrow.finding.device, narrow.finding.impact) == ("PCIe lanes", "0000:1b:00", Impact.SLOWS)
    assert "8 of 16 lanes" in narrow.words
    bus.begin()  # the agent restarts, and remembers how wide it was
    bus.width("0000:1c:00.0", "8")
    assert len(bus.check.look(next(clock))) == 2


def test_at_first_sight_a_link_is_compared_with_its_like(bus: Bus, clock: Iterator[Moment]) -> None:
    bus.add("0000:1d:00.0", "0x10de", "0x030200", "0x2330", width="4")
    assert [result.finding.device for result in bus.check.look(next(clock))] == ["0000:1d:00"]


def test_of_two_that_differ_nobody_knows_which_is_usual(bus: Bus, clock: Iterator[Moment]) -> None:
    bus.width("0000:1c:00.0", "8")
    assert bus.check.look(next(clock)) == ()


def test_links_that_are_all_narrow_are_wired_so(bus: Bus, clock: Iterator[Moment]) -> None:
    for gpu in ("0000:1b:00.0", "0000:1c:00.0"):
        bus.width(gpu, "8")
    assert bus.check.look(next(clock)) == ()


@pytest.mark.parametrize("width", ["0", "63", "255", "Unknown", ""])
def test_a_link_that_sleeps_or_tells_nonsense_is_not_narrow(width: str, bus: Bus, clock: Iterator[Moment]) -> None:
    bus.check.look(next(clock))
    bus.width("0000:1b:00.0", width)
    assert bus.check.look(next(clock)) == ()


def test_a_device_that_is_gone_from_the_bus_convicts(bus: Bus, clock: Iterator[Moment]) -> None:
    bus.check.look(next(clock))
    shutil.rmtree(bus.root / "0000:16:00.1")  # a virtual function, given to a container
    shutil.rmtree(bus.root / "0000:1c:00.0")
    assert bus.check.look(next(clock)) == ()
    (gone,) = bus.check.look(next(clock))
    assert (gone.code, gone.kind, gone.component.pci) == ("PCIe device lost", CheckVerdict.CONVICT, "0000:1c:00")


def test_a_machine_without_such_devices_says_why(tmp_path: Path) -> None:
    check = Pcie(CheckPaths(sys=tmp_path), SETTINGS, Notes(None, "boot-1"))
    assert "no GPU" in check.supported()
