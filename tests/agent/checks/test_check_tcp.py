"""Connections of trainers whose data nobody acknowledges: by tables of the kernel's form, and by a real network that parts."""

import itertools
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hangdog_agent.checks.check_paths import CheckPaths
from hangdog_agent.checks.check_result import CheckResult, CheckVerdict, Moment
from hangdog_agent.checks.settings import CheckSettings
from hangdog_agent.checks.tcp import Tcp, Unacknowledged, address, counts, parse, without_route
from hangdog_models.findings import Impact
from hangdog_models.ranks import Rank
from live.network import ADDRESS, Network

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"


def hexadecimal(dotted: str) -> str:
    packed = socket.inet_aton(dotted)
    return (packed[::-1] if sys.byteorder == "little" else packed).hex().upper()


def row(
    end: str = "10.9.9.2", times: int = 5, inode: int = 77, state: str = "01", timer: str = "01", probes: int = 0
) -> str:
    """One connection as the kernel prints it."""
    ends = f"{hexadecimal('10.9.9.1')}:B9DC {hexadecimal(end)}:1388"
    return f"   0: {ends} {state} 00000028:00000000 {timer}:00000086 {times:08X}     0        {probes} {inode} 2 00000000 163 0 0 1 -1\n"


class Trainers:
    """A pretended /proc with processes, their network namespaces and open files; looked at every five seconds."""

    def __init__(self, folder: Path) -> None:
        self._proc = folder
        self._now = 1_000.0
        self.ranks: dict[int, Rank] = {}
        self.check = Tcp(CheckPaths(proc=folder), CheckSettings(), lambda: self.ranks)

    def add(self, pid: int, sockets: tuple[int, ...] = (), namespace: str = "net:[1]") -> None:
        self.ranks[pid] = Rank(pid - 40)
        folder = self._proc / str(pid)
        for name in ("ns", "net", "fd"):
            (folder / name).mkdir(parents=True)
        (folder / "ns/net").symlink_to(namespace)
        for number, inode in enumerate(sockets):
            (folder / "fd" / str(number)).symlink_to(f"socket:[{inode}]")
        self.tables(pid, 0)

    def tables(self, pid: int, time_outs: int, tcp: str = "", tcp6: str = "") -> None:
        net = self._proc / str(pid) / "net"
        (net / "netstat").write_text(f"TcpExt: SyncookiesSent TCPTimeouts\nTcpExt: 0 {time_outs}\nIpExt: A\nIpExt: 1\n")
        (net / "tcp").write_text(HEAD + tcp)
        (net / "tcp6").write_text(HEAD + tcp6)

    def look(self) -> tuple[CheckResult, ...]:
        self._now += 5.0
        return self.check.look(Moment(self._now, 1.8e9, "boot-1"))


@pytest.fixture
def trainers(tmp_path: Path) -> Trainers:
    return Trainers(tmp_path)


def test_what_a_trainer_sends_again_and_again_is_told_once_a_peer(trainers: Trainers) -> None:
    trainers.add(41, sockets=(77, 78))
    assert trainers.look() == ()
    trainers.tables(41, 9, row(times=5, inode=77) + row(times=7, inode=78))
    (one,) = trainers.look()
    assert (one.code, one.finding.impact, one.kind) == (
        "TCP unacknowledged",
        Impact.UNACKNOWLEDGED,
        CheckVerdict.TELEMETRY,
    )
    assert one.finding.device == "10.9.9.2"
    assert re.search(r"\brank 1 .*\b10\.9\.9\.2 .*\b7 times\b.*\b2 connections", one.words)
    assert [again.identity for again in trainers.look()] == [one.identity]  # no new time-out: it goes on for all that
    trainers.tables(41, 9)
    assert trainers.look() == ()


def test_connections_over_ipv6_are_read_and_the_worst_ends_named(trainers: Trainers) -> None:
    trainers.add(41, sockets=tuple(range(20)))
    six = "00000000000000000000000001000000" if sys.byteorder == "little" else "00000000000000000000000000000001"
    v6 = row(times=9, inode=0).replace(hexadecimal("10.9.9.2"), six)
    trainers.tables(41, 1, "".join(row(end=f"10.9.9.{at}", inode=at, times=5) for at in range(1, 20)), v6)
    found = trainers.look()
    assert (len(found), found[0].finding.device) == (8, "::1")


def test_ranks_that_send_to_one_machine_are_told_together(trainers: Trainers) -> None:
    for pid in (41, 42, 43):
        trainers.add(pid, sockets=(pid,))
    trainers.tables(41, 1, "".join(row(inode=pid, times=pid - 36) for pid in (41, 42, 43)))
    (one,) = trainers.look()
    assert re.search(r"\branks 1-3 .*\b10\.9\.9\.2 .*\b7 times\b.*\b3 connections", one.words)


def test_the_table_is_left_alone_while_nothing_times_out(trainers: Trainers) -> None:
    trainers.add(41, sockets=(77,))
    assert trainers.look() == ()
    trainers.tables(41, 0, row())
    assert trainers.look() == ()
    trainers.tables(41, 1, row())
    assert len(trainers.look()) == 1


@pytest.mark.parametrize(
    "other",
    [
        row(times=3),  # three seconds have not passed
        row(timer="04"),  # the other end's process does not read: its kernel answers the probes
        row(timer="02"),  # nothing to send: a sign of life is due
        row(state="02"),  # not yet open
        row(inode=99),  # another program's
        "nonsense\n",
        row().replace("0209090A", "XX").replace("0A090902", "XX"),
    ],
)
def test_other_connections_are_none_of_the_jobs(trainers: Trainers, other: str) -> None:
    trainers.add(41, sockets=(77,))
    trainers.tables(41, 1, other)
    assert trainers.look() == ()


def test_each_namespace_is_asked_and_processes_that_are_gone_are_not(trainers: Trainers, tmp_path: Path) -> None:
    trainers.add(41, sockets=(70,))
    trainers.add(42, sockets=(71,))
    trainers.add(51, sockets=(77,), namespace="net:[2]")
    trainers.ranks[60] = Rank(20)
    trainers.tables(41, 3, row(end="10.9.9.3", inode=71))
    trainers.tables(51, 3, row(end="10.9.9.4", times=6))
    found = [(one.finding.device, re.findall(r"rank \d+", one.words)) for one in trainers.look()]
    assert found == [("10.9.9.4", ["rank 11"]), ("10.9.9.3", ["rank 2"])]
    shutil.rmtree(tmp_path / "51/net")
    assert [one.finding.device for one in trainers.look()] == ["10.9.9.3"]


def test_tables_that_take_long_are_read_in_turns_and_what_was_seen_stands_meanwhile(
    trainers: Trainers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container each: to go over all tables whenever something times out would take a tenth of a core."""
    spent = itertools.count(0.0, 0.087)  # each reading takes so long by this clock, of which a hundredth is borne
    monkeypatch.setattr("hangdog_agent.checks.tcp.time.thread_time", lambda: next(spent))
    for pid in (41, 42, 43):
        trainers.add(pid, sockets=(pid,), namespace=f"net:[{pid}]")
        trainers.tables(pid, 3, row(end=f"10.9.9.{pid}", inode=pid))
    told = [len(trainers.look()) for _ in range(8)]
    assert told == [1, 2, 2, 3, 3, 3, 3, 3]
    for pid in (41, 42, 43):
        trainers.tables(pid, 3)
    assert [len(trainers.look()) for _ in range(6)] == [2, 2, 1, 1, 0, 0]


def test_the_kernels_tables_are_read() -> None:
    assert list(parse(HEAD + row())) == [Unacknowledged("10.9.9.2", 5, "77")]
    assert list(parse(HEAD + row(timer="04", probes=6))) == [Unacknowledged("10.9.9.2", 6, "77")]
    of = ("TcpExt:", ("TCPTimeouts", "TCPWinProbe"))
    assert counts("TcpExt: A TCPTimeouts TCPWinProbe\nTcpExt: 1 23 4\n", of) == 27
    assert counts("Ip: A OutNoRoutes\nIp: 1 5\nTcp: A\nTcp: 9\n", ("Ip:", ("OutNoRoutes",))) == 5
    garbage = ("", "TcpExt: A\nTcpExt: 1\n", "TcpExt: TCPTimeouts\n", 13, "TcpExt: TCPTimeouts\nTcpExt: x\n")
    assert [counts(read, of) for read in garbage] == [None] * 5
    mapped = "00000000" * 2 + ("FFFF0000" if sys.byteorder == "little" else "0000FFFF") + hexadecimal("10.0.0.7")
    assert [address(written) for written in (mapped, "zz", "", "0" * 10)] == ["10.0.0.7", "", "", ""]


ROUTES = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"


def route(network: str, mask: str, flags: str = "0001") -> str:
    return f"eth1\t{hexadecimal(network)}\t00000000\t{flags}\t0\t0\t0\t{hexadecimal(mask)}\t0\t0\t0\n"


@pytest.mark.parametrize(
    ("routes", "cut_off"),
    [
        ("", ["10.9.9.2"]),
        (route("10.9.8.0", "255.255.255.0"), ["10.9.9.2"]),
        (route("0.0.0.0", "0.0.0.0", "0201"), ["10.9.9.2"]),  # a route that refuses
        (route("10.9.9.0", "255.255.255.0"), []),
        (route("10.9.9.2", "255.255.255.255"), []),
        (route("0.0.0.0", "0.0.0.0", "0003"), []),
        ("nonsense\n" + route("10.9.0.0", "255.255.0.0"), []),
    ],
)
def test_whoever_has_no_route_to_the_other_end_has_an_interface_that_is_down(
    trainers: Trainers, tmp_path: Path, routes: str, cut_off: list[str]
) -> None:
    trainers.add(41, sockets=(77,))
    trainers.tables(41, 1, row())
    (tmp_path / "41/net/route").write_text(ROUTES + routes)
    found = trainers.look()
    assert [(one.code, one.finding.impact, one.finding.device) for one in found[1:]] == [
        ("no route to a peer", Impact.SUSPECTS, end) for end in cut_off
    ]


def test_packets_of_others_without_a_way_have_the_table_read_rarely(trainers: Trainers, tmp_path: Path) -> None:
    """As on a machine whose services look for each other by multicast: each reading costs some 30 ms."""
    trainers.add(41, sockets=(77,))
    found = []
    for at in range(6):  # five seconds apart
        (tmp_path / "41/net/snmp").write_text(f"Ip: OutNoRoutes\nIp: {at}\n")
        (tmp_path / "41/net/tcp").write_text(HEAD + (row() if at else ""))
        found.append(len(trainers.look()))
    assert found == [0, 0, 0, 0, 1, 1]


@pytest.mark.parametrize("read", [13, "", "garbage", "eth1\t0\n"])
def test_a_table_that_tells_no_routes_accuses_nobody(read: str | int) -> None:
    assert without_route({"10.9.9.2"}, read) == frozenset()
    assert without_route({"fd00::1"}, ROUTES) == frozenset()


def test_a_machine_without_such_tables_says_so(tmp_path: Path) -> None:
    assert Tcp(CheckPaths(proc=tmp_path), CheckSettings()).supported()
    assert Tcp(CheckPaths(), CheckSettings()).supported() == ""


@pytest.fixture
def network() -> Iterator[Network]:
    if shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("needs root and `ip`: apt-get install iproute2")
    with Network() as made:
        yield made


TALK = """
import socket, sys
if sys.argv[1] == "listen":
    server = socket.create_server((sys.argv[2], 5000))
    print("ready", flush=True)
    talker = server.accept()[0]
else:
    talker = socket.create_connection((sys.argv[2], 5000))
    talker.settimeout(1.0)
    try:
        while True:
            talker.send(bytes(int(sys.argv[3])))
            if sys.argv[3] == "1":
                break
    except TimeoutError:
        pass
    print("ready", flush=True)
sys.stdin.readline()
while sys.argv[1] == "send":
    talker.settimeout(60)
    talker.send(b"x")
    sys.stdin.readline()
"""


@pytest.mark.parametrize("size", [1, 1 << 20], ids=["room", "no room"])
def test_a_network_that_parts_is_seen_and_a_process_that_does_not_read_is_none(network: Network, size: int) -> None:
    """Real sockets in two network namespaces: the other end never reads, and after a while the network parts."""
    with (
        started(network.side("right"), "listen", size) as listening,
        started(network.side("left"), "send", size) as sending,
    ):
        check = Tcp(CheckPaths(), CheckSettings(tcp_resent=2), lambda: {listening.pid: Rank(0), sending.pid: Rank(1)})
        time.sleep(1.5)  # a probe of a closed window or two, each answered
        assert look(check) == ()
        network.part()
        tell(sending)
        until = time.monotonic() + 20.0
        while not (found := look(check)) and time.monotonic() < until:
            time.sleep(0.2)
        assert [one.finding.device for one in found] == [ADDRESS["right"]]
        assert "what rank 1 sends" in found[0].words


def test_a_real_interface_that_is_turned_off_is_told_from_a_network_that_parts(network: Network) -> None:
    with started(network.side("right"), "listen", 1), started(network.side("left"), "send", 1) as sending:
        check = Tcp(CheckPaths(), CheckSettings(tcp_resent=2), lambda: {sending.pid: Rank(1)})
        assert look(check) == ()
        network.turn_off("left")
        tell(sending)
        until = time.monotonic() + 20.0
        while not (found := look(check)) and time.monotonic() < until:
            time.sleep(0.2)
        assert [(one.code, one.finding.device) for one in found] == [
            ("TCP unacknowledged", ADDRESS["right"]), ("no route to a peer", ADDRESS["right"]),
        ]  # fmt: skip


def look(check: Tcp) -> tuple[CheckResult, ...]:
    return check.look(Moment(time.monotonic(), 1.8e9, "boot"))


def tell(process: "subprocess.Popen[str]") -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


@contextmanager
def started(namespace: str, role: str, size: int) -> Iterator["subprocess.Popen[str]"]:
    """A process in a network namespace that is connected, and has sent what there was room for."""
    command = ("ip", "netns", "exec", namespace, sys.executable, "-c", TALK, role, ADDRESS["right"], str(size))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()
