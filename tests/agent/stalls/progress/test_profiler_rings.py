"""The rings of the NCCL profiler plug-in, as a progress signal: read with the trainer's rights, by the busiest communicator."""

import json
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hangdog_agent.capture import profiler_layout as layout
from hangdog_agent.capture.process_capture import Tools
from hangdog_agent.discovery.discover import RankProcesses
from hangdog_agent.stalls.monitor import StallMonitor
from hangdog_agent.stalls.progress.logs import Logs
from hangdog_agent.stalls.progress.profiler_rings import RingSignal
from hangdog_agent.stalls.progress.progress_signal import LEAST, ProgressSignal, SignalKind
from hangdog_agent.stalls.progress.ring_count import (
    BEHIND,
    SENDING,
    WAITING,
    DeviceReading,
    OperationSteps,
    TransferSteps,
    device_reading,
    reading,
)
from hangdog_agent.stalls.settings import StallSettings
from hangdog_models.progress.device_readings import DeviceReadings
from hangdog_models.ranks import Rank
from hangdog_models.rules.ruleset import packaged
from hangdog_models.stall_timeouts import Sign
from support.fakes import nccl_played, targets
from support.fakes.dumper import own_job
from support.fakes.nccl_played import BuiltNccl
from support.fakes.recorder_asked import by_pid

SETTINGS = StallSettings(traffic_every_s=0.0, ras_every_s=0.0)
COUNTED = SignalKind.COLLECTIVES


@pytest.fixture(scope="session")
def nccl(tmp_path_factory: pytest.TempPathFactory) -> BuiltNccl:
    return nccl_played.build(tmp_path_factory.mktemp("nccl"))


def kept(path: Path, *communicators: tuple[int, int, int], state: int = layout.LIVE, writes: int = 2) -> int:
    """An opened ring of communicators, each given by its number, its operations and its finished ones."""
    ring = bytearray(layout.SIZE)
    places = layout.COMMS, layout.OPS, layout.FLOWS
    layout.HEADER.pack_into(ring, 0, layout.MAGIC, layout.VERSION, layout.SIZE, *places, *[0] * 5)
    for place, (number, operations, finished) in enumerate(communicators):
        at = layout.AT_COMMS + place * layout.COMM.size
        counts = operations, 0, operations, operations, finished, 0, 0, 0
        layout.COMM.pack_into(ring, at, writes, state, 0, 2, 1, number, 0, 0, b"", *counts, *[0] * 16)
    path.write_bytes(ring)
    return os.open(path, os.O_RDONLY)


def test_the_busiest_communicator_counts(tmp_path: Path) -> None:
    """The small one is that of a thread beside the training, and gets on while this one hangs."""
    before = reading(kept(tmp_path / "before", (7, 100, 99), (8, 5, 5)), 0)
    assert before == {"number": 7, "moved": 399, "operations": 100}
    assert reading(kept(tmp_path / "later", (7, 100, 99), (8, 50, 50)), 0) == before


def test_the_oldest_operation_of_the_busiest_communicator_is_timed(tmp_path: Path) -> None:
    os.close(kept(tmp_path / "ring", (8, 5, 5), (7, 100, 97)))
    ring = bytearray((tmp_path / "ring").read_bytes())
    for slot, (place, order, began_s, state) in enumerate(
        ((1, 98, 3, layout.LIVE), (1, 97, 2, layout.LIVE), (0, 4, 1, layout.LIVE), (1, 3, 1, layout.ENDED))
    ):
        at = layout.AT_OPS + slot * layout.OP.size
        texts = 0, 0, 1, b"", b"", b"", b""
        layout.OP.pack_into(ring, at, 2, state, place, order, 0, 0, 0, began_s * 10**9, *[0] * 7, *texts)
    (tmp_path / "ring").write_bytes(ring)
    handle = os.open(tmp_path / "ring", os.O_RDONLY)
    found = reading(handle, 12 * 10**9)
    assert found is not None and (found["order"], found["age_s"]) == (97, 10.0)
    os.close(handle)


def test_what_a_ring_shows_of_its_device_is_read_off_its_transfers(tmp_path: Path) -> None:
    os.close(kept(tmp_path / "ring", (8, 5, 5), (7, 100, 97)))
    ring, texts = bytearray((tmp_path / "ring").read_bytes()), (0, 0, 1, b"", b"", b"", b"")
    layout.OP.pack_into(ring, layout.AT_OPS, 2, layout.LIVE, 1, 97, 0, 0, 0, 10**9, 1, 0, 1, 1, 0, 0, 0, *texts)
    for slot, (sends, steps) in enumerate(((1, (9, 6, 6, 4)), (0, (9, 5, 5, 5)))):
        at = layout.AT_FLOWS + slot * layout.FLOW.size
        layout.FLOW.pack_into(ring, at, 2, layout.LIVE, 1, 97, 0, 0, 0, 0, 3, 24, 0, sends, *steps)
    (tmp_path / "ring").write_bytes(ring)
    handle = os.open(tmp_path / "ring", os.O_RDONLY)
    found = reading(handle, 2 * 10**9)
    assert found is not None and found["device"] == [SENDING, 7, 0, 3]
    os.close(handle)


def launched(order: int, communicator: int = 0) -> OperationSteps:
    return OperationSteps(communicator, order, 1, launched=True, begun=False, runs=False)


def running(order: int, communicator: int = 0) -> OperationSteps:
    return OperationSteps(communicator, order, 1, launched=True, begun=True, runs=True)


def flow(
    sends: bool, posted: int, ready: int, transmitted: int, done: int, peer: int = 1, order: int = 5
) -> TransferSteps:
    return TransferSteps(0, order, peer, sends, posted, ready, transmitted, done)


#: What a transfer waits for.
FOR_DEVICE, FOR_ROOM, ON_THE_WAY = flow(True, 4, 2, 2, 2), flow(True, 4, 3, 2, 2), flow(True, 4, 3, 3, 2)
FOR_DATA, TO_BE_TAKEN, THROUGH = flow(False, 4, 2, 2, 2), flow(False, 4, 3, 3, 2), flow(False, 4, 4, 4, 4)


@pytest.mark.parametrize(
    ("operations", "flows", "doing"),
    [
        ([], [], None),
        ([launched(5)], [], BEHIND),
        ([OperationSteps(0, 5, 1, launched=False, begun=False, runs=False)], [], None),
        ([running(5)], [], WAITING),
        ([running(5), launched(6)], [], WAITING),
        ([running(4, 1), launched(5)], [], WAITING),
        ([running(5)], [FOR_DATA, FOR_DEVICE], WAITING),
        ([running(5)], [FOR_ROOM, THROUGH], WAITING),
        ([running(5)], [FOR_DEVICE, THROUGH], BEHIND),
        ([running(5)], [FOR_DEVICE, TO_BE_TAKEN], BEHIND),
        ([running(5)], [ON_THE_WAY, FOR_DATA], SENDING),
        ([running(5)], [flow(True, 4, 3, 3, 2, order=9)], WAITING),
        ([OperationSteps(0, 5, 1, launched=True, begun=True, runs=False)], [], None),
        ([OperationSteps(0, 5, 1, launched=True, begun=True, runs=False)], [TO_BE_TAKEN], BEHIND),
    ],
)
def test_what_a_device_does(operations: list[OperationSteps], flows: list[TransferSteps], doing: str | None) -> None:
    found = device_reading(operations, flows)
    assert (found.doing if found else None) == doing


def test_to_whom_data_is_under_way_is_told() -> None:
    flows = [FOR_DATA, flow(True, 4, 3, 3, 2, peer=3)]
    assert device_reading([running(5)], flows) == DeviceReading(SENDING, 0, 3)


def test_what_a_device_did_is_counted_and_its_usual_path_named() -> None:
    signal = RingSignal(3.0)
    assert signal.device is None
    signal.find(WAITING)
    signal.find(BEHIND, 0xAB, 2)
    for peer in (3, 1, 3):
        signal.find(SENDING, 0xAB, 2, peer)
    assert signal.device == DeviceReadings(1, 1, 3, 0xAB, 2, 3)


def usual(signal: RingSignal, apart_s: float, flown_s: float) -> float:
    """Eight steps so far apart, of which an operation was seen in flight for so long; answers the last look."""
    for step in range(8):
        signal.look(step > 0, step * apart_s)
        signal.fly(step, flown_s)
    return 7 * apart_s


def test_an_operation_in_flight_for_longer_than_any_was_is_a_stall() -> None:
    """Minutes between two steps are usual, and of the operations none took more than two seconds."""
    signal = RingSignal(3.0)
    at = usual(signal, 300.0, 2.0)
    for later, overdue in ((2.0, False), (2.9, False), (4.0, True)):
        signal.look(False, at + later)
        signal.fly(8, later)
        assert (signal.stalled_since is not None) is overdue
    assert signal.stalled_since == at
    assert not signal.contradicts(at)


def test_an_operation_that_is_usually_as_long_is_none(tmp_path: Path) -> None:
    signal = RingSignal(3.0)
    at = usual(signal, 300.0, 60.0)
    signal.look(False, at + 61.0)
    signal.fly(8, 61.0)
    assert signal.stalled_since is None
    signal.look(False, at + 80.0)
    signal.fly(8, 80.0)
    assert signal.stalled_since == at


def test_one_that_waits_while_others_get_on_is_none() -> None:
    """A receive that is posted ahead of what it is for."""
    signal = RingSignal(3.0)
    at = usual(signal, 1.0, 0.5)
    for second in range(1, 60):
        signal.look(True, at + second)
        signal.fly(8, float(second))
        assert signal.stalled_since is None


def test_what_turned_out_to_be_benign_is_usual_from_then_on() -> None:
    signal = RingSignal(3.0)
    at = usual(signal, 300.0, 2.0)
    signal.look(False, at + 20.0)
    signal.fly(8, 20.0)
    signal.mark_benign(at + 20.0)
    signal.look(False, at + 24.0)
    signal.fly(8, 24.0)
    assert signal.stalled_since is None


def test_who_ended_is_written_or_is_no_ring_counts_nothing(tmp_path: Path) -> None:
    assert reading(kept(tmp_path / "ended", (7, 100, 99), state=layout.ENDED), 0) is None
    assert reading(kept(tmp_path / "written", (7, 100, 99), writes=3), 0) is None
    (tmp_path / "short").write_bytes(b"HDNCCLPR")
    assert reading(os.open(tmp_path / "short", os.O_RDONLY), 0) is None


def test_any_bytes_are_read(tmp_path: Path) -> None:
    chance = random.Random(3)
    for _ in range(200):
        os.close(kept(tmp_path / "ring", (7, 100, 99)))
        ring = bytearray((tmp_path / "ring").read_bytes())
        for _ in range(chance.randrange(1, 40)):
            ring[chance.randrange(chance.choice((layout.AT_OPS, layout.SIZE)))] = chance.randrange(256)
        (tmp_path / "ring").write_bytes(ring[: chance.choice((len(ring), chance.randrange(len(ring))))])
        handle = os.open(tmp_path / "ring", os.O_RDONLY)
        found = reading(handle, 10**9)
        os.close(handle)
        assert found is None or (isinstance(found["number"], int) and json.dumps(found))


@pytest.fixture
def logs() -> Iterator[Logs]:
    made = Logs("/proc", SETTINGS)
    yield made
    made.close()


def test_a_ring_advances_with_the_training_and_stalls_with_it(nccl: BuiltNccl, tmp_path: Path, logs: Logs) -> None:
    with nccl_played.pair(nccl, tmp_path, lambda _: {}) as processes:
        members = {one.process.key: one for one in (by_pid(each.pid) for each in processes)}

        def sources() -> list[ProgressSignal]:
            found = logs.read(members, time.monotonic())
            return [each for signals in found.values() for each in signals if each.kind is COUNTED]

        def known() -> bool:
            found = sources()
            return len(found) == 2 and all(each.advances > LEAST for each in found)

        targets.until(known, 60.0)
        assert not any(each.stalled_since for each in sources())
        nccl_played.hang(tmp_path, processes, 0.0)
        targets.until(lambda: all(each.stalled_since for each in sources()), 60.0)
        before = devices(sources())
        targets.until(
            lambda: all(sum(now) > sum(then) + 1 for now, then in zip(devices(sources()), before, strict=True)), 60.0
        )
        grown = [
            tuple(b - a for a, b in zip(then, now, strict=True))
            for then, now in zip(before, devices(sources()), strict=True)
        ]
        assert [tuple(map(bool, one)) for one in grown] == [(True, False, False), (False, True, False)], "waits; behind"


def devices(signals: list[ProgressSignal]) -> list[tuple[int, int, int]]:
    """How often each device waited, was behind and was sending."""
    found = [each.device for each in signals if isinstance(each, RingSignal)]
    return [(each.waiting, each.behind, each.sending) if each is not None else (0, 0, 0) for each in found]


def test_no_ring_is_looked_at_where_it_is_turned_off(nccl: BuiltNccl, tmp_path: Path) -> None:
    off = Logs("/proc", StallSettings(traffic_every_s=0.0, ras_every_s=0.0, ring_every_s=0.0))
    with nccl_played.training(nccl, tmp_path / "rings", "counts", 100) as process:
        member = by_pid(process.pid)
        for _ in range(5):
            signals = off.read({member.process.key: member}, time.monotonic())[member.process.key]
            assert COUNTED not in {each.kind for each in signals}
            time.sleep(0.3)
    off.close()


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_hang_that_rings_alone_show_is_suspected_in_seconds(tools: Tools, nccl: BuiltNccl, tmp_path: Path) -> None:
    """All hosts wait for their device and poll; there is no log, no heartbeat, no RAS and no recorder."""
    monitor = StallMonitor(tools, packaged(), SETTINGS)
    job = own_job()
    with nccl_played.pair(nccl, tmp_path, lambda _: job) as processes:
        members = [by_pid(each.pid) for each in processes]
        assert not suspected(monitor, members, 18.0), "it trains"
        (tmp_path / "pair.hang").touch()
        began = time.monotonic()
        shown = suspected(monitor, members, 35.0)
        took = time.monotonic() - began
    monitor.close()
    assert set(shown) == {Rank(0), Rank(1)}
    print(f"\nsuspected after {took:.1f} s")


def suspected(monitor: StallMonitor, members: list[RankProcesses], seconds: float) -> dict[Rank, Sign]:
    """What the ranks show once a rank is overdue; empty where none was for so long."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for signs in monitor.tick(members).values():
            if any(sign.overdue for sign in signs.values()) and len(signs) == len(members):
                return signs
        time.sleep(1.0)
    return {}
