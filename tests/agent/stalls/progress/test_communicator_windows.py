"""Windows of communicators: what a ring tells of all of them, how fast each goes, and who is behind in it."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from hangdog_agent.capture import profiler_layout as layout
from hangdog_agent.capture.process_capture import Tools
from hangdog_agent.discovery.discover import Key
from hangdog_agent.stalls.progress.communicator_windows import CommunicatorWindows
from hangdog_agent.stalls.progress.profiler_rings import RingSignal
from hangdog_agent.stalls.progress.ring_count import CommunicatorReading, reading
from hangdog_agent.stalls.progress.sources import ProgressSources
from hangdog_agent.stalls.settings import StallSettings
from hangdog_models.progress.communicator_window import CommunicatorWindow
from hangdog_models.ranks import Rank
from support.fakes import nccl_played, targets
from support.fakes.nccl_played import BuiltNccl
from support.fakes.recorder_asked import by_pid

KEYS: tuple[Key, ...] = ((100, 1), (101, 1))
SECOND = 10**9


def ring(
    path: Path,
    *communicators: tuple[int, tuple[int, ...]],
    flight: tuple[tuple[int, int, float, bytes], ...] = (),
    rank: int = 0,
    ranks: int = 4,
) -> int:
    """An opened ring of communicators by number and counts (collectives, messages, launched, started, finished, left out).

    `flight`: the place of a communicator, the order, when it was enqueued in seconds, and the function.
    """
    made, texts = bytearray(layout.SIZE), (b"", b"", b"")
    places = layout.COMMS, layout.OPS, layout.FLOWS
    layout.HEADER.pack_into(made, 0, layout.MAGIC, layout.VERSION, layout.SIZE, *places, *[0] * 5)
    for place, (number, counts) in enumerate(communicators):
        at, name = layout.AT_COMMS + place * layout.COMM.size, f"group {place}".encode()
        layout.COMM.pack_into(
            made, at, 2, layout.LIVE, rank, ranks, 1, number, 0, 0, name, *counts, 0, 0, *[0] * 4, *[1] * 12
        )
    for slot, (place, order, at_s, function) in enumerate(flight):
        at = layout.AT_OPS + slot * layout.OP.size
        times = int(at_s * SECOND), 1, 0, 1
        layout.OP.pack_into(
            made, at, 2, layout.LIVE, place, order, 0, 0, 0, *times, 1, 0, 0, 0, 7, 9, 1, function, *texts
        )
    path.write_bytes(made)
    return os.open(path, os.O_RDONLY)


def told(handle: int, now_s: float = 12.0) -> list[CommunicatorReading]:
    found = reading(handle, int(now_s * SECOND), everything=True)
    os.close(handle)
    assert found is not None
    return [CommunicatorReading(*one) for one in json.loads(json.dumps(found))["communicators"]]


def test_all_communicators_of_a_ring_are_told_with_the_oldest_operation_of_each(tmp_path: Path) -> None:
    flight = ((1, 98, 11.0, b"AllGather"), (1, 97, 2.0, b"AllReduce"), (0, 4, 10.0, b"Broadcast"))
    counts = {7: (5, 0, 5, 5, 4, 0), 8: (99, 0, 99, 98, 97, 0)}
    assert told(ring(tmp_path / "ring", *counts.items(), flight=flight)) == [
        CommunicatorReading(7, "group 0", 4, 5, 5, 5 + 5 + 5 + 4 + 12, 2.0, "Broadcast"),
        CommunicatorReading(8, "group 1", 4, 99, 98, 99 + 99 + 98 + 97 + 12, 10.0, "AllReduce"),
    ]


def test_they_are_told_only_where_they_are_wanted(tmp_path: Path) -> None:
    handle = ring(tmp_path / "ring", (7, (5, 0, 5, 5, 4, 0)))
    found = reading(handle, SECOND)
    os.close(handle)
    assert found is not None and "communicators" not in found


@pytest.mark.parametrize(
    ("counts", "order"),
    [
        ((9, 0, 9, 7, 7, 0), 7),  # its device has entered seven
        ((9, 0, 9, 0, 0, 0), 9),  # of its device nothing is told
        ((9, 4, 13, 13, 12, 0), 9),
        ((9, 4, 13, 11, 10, 0), None),  # which of them were messages is not known
        ((0, 4, 4, 4, 4, 0), None),  # sends and receives: each rank has its own
        ((9, 0, 8, 8, 8, 1), None),  # some found no place in the ring
    ],
)
def test_an_order_is_how_many_collectives_a_rank_has_entered(
    tmp_path: Path, counts: tuple[int, ...], order: int | None
) -> None:
    assert [one.order for one in told(ring(tmp_path / "ring", (7, counts)))] == [order]


def test_what_cannot_be_a_communicator_is_left_out(tmp_path: Path) -> None:
    assert told(ring(tmp_path / "ring", (7, (5, 0, 5, 5, 4, 0)), rank=4)) == []
    windows = CommunicatorWindows()
    windows.take(KEYS[0], [read(5, size=1 << 30)], 0.0)
    assert windows.of([(KEYS[0], Rank(0))]) == ()


def read(
    order: int | None, operations: int | None = None, age_s: float | None = None, number: int = 7, size: int = 4,
    function: str = "",
) -> CommunicatorReading:  # fmt: skip
    begun = operations if operations is not None else order or 0
    return CommunicatorReading(number, "world", size, begun, order, begun * 4, age_s, function)


def both(windows: CommunicatorWindows) -> CommunicatorWindow:
    (found,) = windows.of([(KEYS[0], Rank(5)), (KEYS[1], Rank(4))])
    return found


def test_the_rate_is_that_of_the_last_half_minute_and_a_rest_is_timed() -> None:
    windows = CommunicatorWindows()
    for at in range(0, 60, 5):
        for key, ahead in zip(KEYS, (0, 3), strict=True):
            windows.take(key, [read(10 * at + ahead)], float(at))
    moving = both(windows)
    assert (moving.rate, moving.idle_s, moving.ranks, moving.rests) == (10.0, 0.0, (4, 5), False)
    for at in range(60, 100, 5):
        windows.take(KEYS[0], [read(550, age_s=at - 55.0, function="AllReduce")], float(at))
        windows.take(KEYS[1], [read(549)], float(at))
    window = both(windows)
    assert (window.rate, window.idle_s, window.rests, window.waits) == (0.0, 35.0, True, True)
    assert (window.lowest, window.highest, window.behind) == (549, 550, (4,))
    assert (window.age_s, window.operation) == (40.0, "AllReduce")


def test_ranks_whose_orders_cannot_be_compared_are_not_behind() -> None:
    windows = CommunicatorWindows()
    windows.take(KEYS[0], [read(5)], 0.0)
    windows.take(KEYS[1], [read(None, operations=3)], 0.0)
    window = both(windows)
    assert (window.lowest, window.highest, window.behind) == (None, None, ())


def test_a_communicator_that_began_anew_or_ended_leaves_nothing_behind() -> None:
    windows = CommunicatorWindows()
    for at, order in ((0.0, 900), (5.0, 3), (10.0, 8)):
        windows.take(KEYS[0], [read(order)], at)
    (window,) = windows.of([(KEYS[0], Rank(0))])
    assert (window.rate, window.highest) == (1.0, 8)
    windows.take(KEYS[0], [read(1, number=9)], 15.0)
    assert [one.communicator for one in windows.of([(KEYS[0], Rank(0))])] == [9]
    before = windows.changes
    windows.forget(KEYS[0])
    assert windows.of([(KEYS[0], Rank(0))]) == () and windows.changes == before + 1


def test_foreign_names_become_safe_to_show() -> None:
    windows, name = CommunicatorWindows(), "a\x1b[31m" * 40
    windows.take(KEYS[0], [(7, name, 4, 1, 1, 4, 1.0, "x\n" * 40)], 0.0)
    (window,) = windows.of([(KEYS[0], Rank(0))])
    shown: tuple[Any, ...] = window.name, window.operation
    assert all(text.isprintable() and len(text) <= 64 for text in shown) and "\\x1b" in window.name


@pytest.fixture(scope="session")
def nccl(tmp_path_factory: pytest.TempPathFactory) -> BuiltNccl:
    return nccl_played.build(tmp_path_factory.mktemp("nccl"))


def test_a_communicator_of_trainers_moves_and_then_waits_for_the_device_that_hangs(
    nccl: BuiltNccl, tools: Tools, tmp_path: Path
) -> None:
    sources = ProgressSources(tools, StallSettings(traffic_every_s=0.0, ras_every_s=0.0, communicators_every_s=1.0))
    with nccl_played.pair(nccl, tmp_path, lambda _: {}) as processes:
        members = {one.process.key: one for one in (by_pid(each.pid) for each in processes)}

        def window() -> CommunicatorWindow | None:
            sources.read({"job": members})
            found = sources.communicators({"job": members}).get("job", ())
            return found[0] if found and len(found[0].ranks) == 2 else None

        targets.until(lambda: (one := window()) is not None and one.rate > 1 and not one.rests, 60.0)
        (tmp_path / "pair.hang").touch()
        targets.until(lambda: (one := window()) is not None and one.waits, 60.0)
        last = window()
    sources.close()
    assert last is not None and last.behind == (1,) and last.operation == "AllReduce"
    assert None not in (last.lowest, last.highest) and last.lowest != last.highest


def test_none_is_told_of_where_that_is_turned_off(nccl: BuiltNccl, tools: Tools, tmp_path: Path) -> None:
    sources = ProgressSources(tools, StallSettings(traffic_every_s=0.0, ras_every_s=0.0, communicators_every_s=0.0))
    with nccl_played.pair(nccl, tmp_path, lambda _: {}) as processes:
        members = {one.process.key: one for one in (by_pid(each.pid) for each in processes)}

        def counts() -> bool:
            return any(
                isinstance(each, RingSignal) for found in sources.read({"job": members}).values() for each in found
            )

        targets.until(counts, 60.0)
        assert sources.communicators({"job": members}) == {}
    sources.close()
