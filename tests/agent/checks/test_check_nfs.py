"""NFS mounts by the kernel's statistics: silent and slow servers, queues in the client, numbers that make no sense."""

import re
from pathlib import Path

import pytest

from hangdog_agent.checks.check_paths import CheckPaths
from hangdog_agent.checks.check_result import CheckResult, CheckVerdict, Moment
from hangdog_agent.checks.nfs import Nfs, parse
from hangdog_agent.checks.settings import CheckSettings
from hangdog_models.findings import Impact

OTHERS = "device proc mounted on /proc with fstype proc\ndevice /dev/vda mounted on / with fstype ext4\n"


def block(
    device: str = "fs-1:/data",
    folder: str = "/mnt/data",
    sends: int = 1_000,
    receives: int = 1_000,
    backlog: int = 0,
    write: tuple[int, int, int, int] = (500, 0, 1_000, 5_000),
    transport: str = "tcp 875 1 1 0 -1",
) -> str:
    """One mount as the kernel prints it; `write` is requests, major time-outs, ms queued, ms at the server."""
    requests, timeouts, queued, served = write
    return f"""device {device} mounted on {folder} with fstype nfs4 statvers=1.1
\topts:\trw,vers=4.2,rsize=1048576,wsize=1048576,hard,proto=tcp,timeo=600,retrans=2
\tage:\t12345
\tcaps:\tcaps=0x3fffbfff,wtmult=512,dtsize=1048576,bsize=0,namlen=255
\tsec:\tflavor=1,pseudoflavor=1
\tevents:\t1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27
\tbytes:\t1 2 3 4 5 6 7 8
\tRPC iostats version: 1.1  p/v: 100003/4 (nfs)
\txprt:\t{transport} {sends} {receives} 0 77 {backlog} 64 5 6
\tper-op statistics
\t        NULL: 1 1 0 44 24 0 0 0 0
\t        READ: 10 10 0 100 1000 5 20 25 0
\t       WRITE: {requests} {requests} {timeouts} 9 9 {queued} {served} {queued + served} 0
no device mounted on / with fstype none
"""


class Mounted:
    """A pretended /proc with mountstats, and the check, looked at every 30 s."""

    def __init__(self, folder: Path, pids: tuple[int, ...] = ()) -> None:
        self._proc = folder
        self._now = 1_000.0
        self.write(OTHERS)
        self.check = Nfs(CheckPaths(proc=folder), CheckSettings(), lambda: pids)

    def write(self, text: str, pid: str = "self") -> None:
        (self._proc / pid).mkdir(exist_ok=True)
        (self._proc / pid / "mountstats").write_text(text)

    def look(self, text: str = "") -> tuple[CheckResult, ...]:
        if text:
            self.write(OTHERS + text + OTHERS)
        self._now += 30.0
        return self.check.look(Moment(self._now, 1.8e9, "boot-1"))


@pytest.fixture
def mounted(tmp_path: Path) -> Mounted:
    return Mounted(tmp_path)


def test_a_machine_without_nfs_says_why(mounted: Mounted, tmp_path: Path) -> None:
    assert "NFS" in mounted.check.supported()
    assert Nfs(CheckPaths(proc=tmp_path / "none"), CheckSettings()).supported()
    mounted.write(block())
    assert mounted.check.supported() == ""


def test_the_kernels_table_is_read() -> None:
    one, two = parse(OTHERS + block() + block("fs-2:/home", "/home") + OTHERS)
    assert (one.device, one.folder, one.sends, one.receives, one.backlog) == ("fs-1:/data", "/mnt/data", 1000, 1000, 0)
    assert one.operations["WRITE"] == (500, 0, 1_000, 5_000)
    assert one.operations["READ"] == (10, 0, 5, 20)
    assert two.device == "fs-2:/home"


@pytest.mark.parametrize("transport", ["tcp 875 1 1 0 0", "rdma 0 1 1 0 0", "udp 875 1", "local 1 1 0 0"])
def test_every_transport_has_its_counters_somewhere_else(transport: str) -> None:
    (mount,) = parse(block(sends=50, receives=40, backlog=30, transport=transport))
    assert (mount.sends, mount.receives, mount.backlog) == (50, 40, 30)


def test_several_connections_of_one_mount_are_added() -> None:
    line = "\txprt:\ttcp 875 1 1 0 0 7 5 0 1 3 64 1 1\n"
    (mount,) = parse(block().replace("\tper-op", line * 3 + "\tper-op"))
    assert (mount.sends, mount.receives, mount.backlog) == (1_021, 1_015, 9)


def test_a_busy_mount_in_order_is_no_result(mounted: Mounted) -> None:
    assert mounted.look(block()) == ()
    assert mounted.look(block(sends=2_000, receives=2_000, write=(1_500, 0, 2_000, 15_000))) == ()
    assert mounted.look() == ()


def test_a_server_that_answers_nothing_blames_the_service_at_the_second_look(mounted: Mounted) -> None:
    mounted.look(block())
    assert mounted.look(block(sends=1_010)) == ()
    (silent,) = mounted.look(block(sends=1_020))
    assert (silent.code, silent.kind, silent.finding.impact) == (
        "NFS not responding",
        CheckVerdict.TELEMETRY,
        Impact.SERVICE,
    )
    assert silent.component.name == "/mnt/data"
    assert "fs-1:/data" in silent.words
    assert mounted.look(block(sends=1_030, receives=1_030)) == ()
    assert mounted.look(block(sends=1_031, receives=1_030)) == ()  # its answer is still on the way


def test_an_idle_mount_is_not_silent(mounted: Mounted) -> None:
    looks = [mounted.look(block(sends=1_007)) for _ in range(5)]
    assert looks == [()] * 5


def test_time_outs_slowness_and_queues_are_told_apart(mounted: Mounted) -> None:
    mounted.look(block())
    (timeouts,) = mounted.look(block(sends=1_001, receives=1_001, write=(501, 2, 1_000, 5_000)))
    assert (timeouts.code, timeouts.finding.impact) == ("NFS time-outs", Impact.SERVICE)
    (slow,) = mounted.look(block(sends=1_101, receives=1_101, write=(601, 2, 1_000, 205_000)))
    assert (slow.code, slow.finding.impact) == ("NFS slow", Impact.SERVICE)
    assert re.search(r" 0 ms .*machine.* 2000 ms .*server", slow.words)
    (queue,) = mounted.look(block(sends=1_201, receives=1_201, write=(701, 2, 101_000, 206_000)))
    assert (queue.code, queue.finding.impact) == ("NFS queueing", Impact.TELLS_NOTHING)
    assert re.search(r"\bWRITE 100 .*\bqueued 100000 ms\b.*\bserved 1000 ms\b", queue.evidence[0])
    (backlog,) = mounted.look(block(sends=1_301, receives=1_301, backlog=2_000, write=(801, 2, 101_100, 207_000)))
    assert (backlog.code, backlog.kind) == ("NFS back-log", CheckVerdict.TELEMETRY)
    assert "20 requests wait" in backlog.words


@pytest.mark.parametrize(
    "nonsense",
    [
        block(sends=1_100, receives=1_100, write=(600, 0, 18_446_744_073_709_551_615, 5_000)),
        block(sends=0, receives=0, write=(0, 0, 0, 0)),
        block().replace("1000 1000 0 77", "1000 x 0 77"),
        block().replace("WRITE: 500", "WRITE: -"),
        block()[:200],
        "device \ndevice x\n\txprt:\n\txprt:\ttcp\n" + block(),
    ],
    ids=["queue of all time", "set back", "no number", "cut line", "cut off", "empty lines"],
)
def test_numbers_that_make_no_sense_are_no_result(nonsense: str, mounted: Mounted) -> None:
    mounted.look(block())
    assert mounted.look(nonsense) == ()
    assert mounted.look(block(sends=2_000, receives=2_000)) == ()


def test_mounts_of_trainers_in_containers_are_seen_once(tmp_path: Path) -> None:
    mounted = Mounted(tmp_path, pids=(7, 8, 9))
    for pid in ("7", "8"):
        mounted.write(block(folder=f"/in-{pid}"), pid)
    assert mounted.check.supported() == ""
    mounted.look()
    for pid in ("7", "8"):
        mounted.write(block(folder=f"/in-{pid}", sends=1_001, receives=1_001, write=(501, 1, 1_000, 5_000)), pid)
    (timeouts,) = mounted.look()
    assert timeouts.component.name == "/in-7"
