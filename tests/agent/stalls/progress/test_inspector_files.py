"""What NCCL Inspector writes while a job runs, as a progress signal and as the state of communicators."""

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from hangdog_agent.capture import inspector_dump
from hangdog_agent.capture.process_capture import Tools
from hangdog_agent.discovery.discover import RankProcesses
from hangdog_agent.stalls.monitor import StallMonitor
from hangdog_agent.stalls.progress.communicator_windows import CommunicatorWindows
from hangdog_agent.stalls.progress.file_reader import Found
from hangdog_agent.stalls.progress.inspector_files import InspectedSignal, InspectorFiles
from hangdog_agent.stalls.progress.logs import Logs
from hangdog_agent.stalls.progress.profiler_rings import Rings
from hangdog_agent.stalls.progress.progress_signal import LEAST, ProgressSignal
from hangdog_agent.stalls.settings import StallSettings
from hangdog_models.ranks import Rank
from hangdog_models.rules.ruleset import packaged
from hangdog_models.stall_timeouts import Sign
from support.fakes import targets
from support.fakes.dumper import own_job
from support.fakes.inspector_played import environ_of, training
from support.fakes.recorder_asked import by_pid

#: The usual settings, but that files are looked at more often.
SETTINGS = StallSettings(traffic_every_s=0.0, ras_every_s=0.0, inspector_every_s=0.25)


@pytest.fixture
def logs() -> Iterator[Logs]:
    made = Logs("/proc", SETTINGS)
    yield made
    made.close()


def signals(logs: Logs, *members: RankProcesses) -> list[ProgressSignal]:
    time.sleep(0.1)
    found = logs.read({one.process.key: one for one in members}, time.monotonic())
    return [each for of_one in found.values() for each in of_one if isinstance(each, InspectedSignal)]


def test_it_advances_with_the_training_and_stalls_with_it(tmp_path: Path, logs: Logs) -> None:
    """A smaller communicator goes on while the training hangs."""
    with ExitStack() as stack:
        members = [by_pid(stack.enter_context(training(tmp_path, rank)).pid) for rank in (0, 1)]

        def sources() -> list[ProgressSignal]:
            return signals(logs, *members)

        targets.until(lambda: len(found := sources()) == 2 and all(one.advances > LEAST for one in found))
        assert not any(one.stalled_since for one in sources())
        assert all(one.authoritative and one.counts_collectives and one.steps >= 16 for one in sources())
        (tmp_path / "hang").touch()
        targets.until(lambda: all(one.stalled_since for one in sources()))


@pytest.mark.parametrize("form", ["prometheus", "totals"])
def test_prometheus_text_shows_that_something_completes(form: str, tmp_path: Path, logs: Logs) -> None:
    """It does not tell of which communicator, so it stalls nothing by itself. With totals it is written on while all hang."""
    with training(tmp_path, form=form) as process:
        member = by_pid(process.pid)
        targets.until(lambda: any(one.advances > LEAST for one in signals(logs, member)))
        (found,) = signals(logs, member)
        assert not found.authoritative and not found.counts_collectives
        (tmp_path / "hang").touch()
        targets.until(lambda: all(one.stalled_since for one in signals(logs, member)))


def test_its_communicators_are_shown_without_what_it_does_not_tell(tmp_path: Path, logs: Logs) -> None:
    with training(tmp_path) as process:
        member = by_pid(process.pid)

        def shown(number: int = 0x700885418FD77BCF) -> float:
            signals(logs, member)
            windows = logs.communicators.of([(member.process.key, Rank(0))])
            return next((one.rate for one in windows if one.communicator == number), 0.0)

        targets.until(lambda: shown() > 0 and shown(0xAB) > 0)
        assert shown() > shown(0xAB)
        data, side = sorted(logs.communicators.of([(member.process.key, Rank(0))]), key=lambda one: -one.size)
        assert (data.name, data.size, side.name, side.size) == ("data", 8, "", 2)
        assert (data.lowest, data.behind, data.age_s, data.operation) == (None, (), None, "")
        assert data.idle_s < 5.0
        (tmp_path / "hang").touch()
        targets.until(lambda: shown() == 0.0)
        still = next(one for one in logs.communicators.of([(member.process.key, Rank(0))]) if one.size == 8)
        assert still.completed_only and not still.waits, "nothing says that an operation is in flight"


@pytest.mark.parametrize(
    "environ",
    [
        {"NCCL_INSPECTOR_ENABLE": "0"},
        {"NCCL_INSPECTOR_ENABLE": "yes"},
        {"NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS": "-1"},
    ],
)
def test_a_trainer_whose_inspector_is_off_is_not_searched(environ: dict[str, str], tmp_path: Path) -> None:
    with training(tmp_path, 0, "json", "", **environ) as process:
        assert inspector_dump.find(by_pid(process.pid), targets.proc) is None


def test_nothing_is_read_where_it_is_turned_off(tmp_path: Path) -> None:
    off = Logs("/proc", StallSettings(traffic_every_s=0.0, ras_every_s=0.0, inspector_every_s=0.0))
    with training(tmp_path) as process:
        member = by_pid(process.pid)
        assert not any(signals(off, member) for _ in range(5))
    off.close()


#: A trainer that has a file of that name open, which its argument makes.
HOLDER = """
import os, socket, sys
path = f"{sys.argv[1]}/{socket.gethostname()}-pid{os.getpid()}.log"
exec(sys.argv[2])
os.write(1, b"ready\\n")
os.read(0, 1)
"""


@pytest.mark.parametrize(
    "made",
    [
        "os.mkfifo(path); held = os.open(path, os.O_RDWR)",
        "held = open(path, 'wb'); held.truncate(1 << 40)",
        "held = open(path, 'wb'); held.write(os.urandom(1 << 20)); held.flush()",
        "held = open(path, 'w'); held.write('{' * (1 << 20)); held.flush()",
        "held = open(path, 'w'); held.write('[' * 99999 + chr(10) + '{\"header\":' * 9999); held.flush()",
        "held = open(path, 'w'); held.write('x'); held.flush(); os.unlink(path)",
    ],
)
def test_what_is_no_dump_shows_nothing_and_holds_nobody_up(made: str, tmp_path: Path, logs: Logs) -> None:
    environ = own_job() | {"RANK": "0"} | environ_of(1000)
    with targets.running(HOLDER, os.fspath(tmp_path), made, environ=environ) as process, training(tmp_path, 1) as sound:
        members = by_pid(process.pid), by_pid(sound.pid)
        targets.until(lambda: any(one.advances > LEAST for one in signals(logs, *members)))
        assert sum(bool(one.advances) for one in signals(logs, *members)) == 1
        assert {one.size for one in logs.communicators.of([(members[0].process.key, Rank(0))])} == set()


def line(number: int, identity: object = "0x7f", rank: object = 0, size: object = 8, kind: str = "AllReduce") -> str:
    header = {"id": identity, "rank": rank, "n_ranks": size, "comm_name": "unknown"}
    return json.dumps({"header": header, "coll_perf": {"coll": kind, "coll_sn": number}}) + "\n"


class Followed:
    """One file that is followed, given piece by piece."""

    def __init__(self, tmp_path: Path, stack: ExitStack) -> None:
        self.member = by_pid(stack.enter_context(training(tmp_path)).pid)
        self.windows = CommunicatorWindows()
        self.files = InspectorFiles(targets.proc, SETTINGS, self.windows)
        self.key = self.member.process.key
        targets.until(lambda: inspector_dump.find(self.member, targets.proc) is not None)
        assert self.files.queries({self.key: self.member}, 0.0)
        self.at = 0.0

    def take(self, text: str, joins: bool = True, identity: tuple[int, int] = (1, 1)) -> None:
        self.at += 1.0
        self.files.take(self.key, Found(identity, 0, 0, text.encode(), joins), self.at)

    @property
    def steps(self) -> float:
        return self.files.signals()[self.key].steps

    @property
    def advances(self) -> int:
        return self.files.signals()[self.key].advances

    def sizes(self) -> set[int]:
        return {one.size for one in self.windows.of([(self.key, Rank(0))])}


@pytest.fixture
def followed(tmp_path: Path) -> Iterator[Followed]:
    with ExitStack() as stack:
        yield Followed(tmp_path, stack)


def test_lines_that_are_cut_are_put_together(followed: Followed) -> None:
    followed.take("x" * 9 + "\n" + line(1) + line(2)[:30], joins=False)
    followed.take(line(2)[30:] + line(3)[:-1])
    assert (followed.advances, followed.steps) == (1, 3)
    followed.take(line(9)[20:] + line(5), joins=False)
    assert (followed.advances, followed.steps) == (2, 6), "the half line is of nothing that was read"


def test_each_function_counts_by_itself_and_counts_only_grow(followed: Followed) -> None:
    followed.take("\n" + line(9) + line(4, kind="AllGather"))
    followed.take(line(3))
    assert followed.advances == 0
    followed.take(line(5, kind="AllGather"))
    assert (followed.advances, followed.steps) == (1, 16)


def test_a_communicator_that_was_missed_until_now_is_no_progress(followed: Followed) -> None:
    followed.take("\n" + line(9))
    followed.take(line(99, "0xab"))
    assert followed.advances == 0
    followed.take(line(100, "0xab"))
    assert followed.advances == 1


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: line(1, "not a number"),
        lambda: line(1, "0x" + "f" * 17),
        lambda: line(1, 7),
        lambda: line(1, rank=8),
        lambda: line(1, rank=-1),
        lambda: line(1, size=1 << 60),
        lambda: line(-1),
        lambda: line(1 << 64),
        lambda: line(1).replace("1", "9" * 5000),
        lambda: line(1).replace('"AllReduce"', "null"),
        lambda: '{"header":[],"coll_perf":7}\n',
    ],
)
def test_what_cannot_be_is_left_out(wrong: Callable[[], str], followed: Followed) -> None:
    followed.take("\n" + wrong())
    assert followed.sizes() == set()


def test_no_more_is_kept_than_a_ring_has_places_for(followed: Followed) -> None:
    followed.take("\n" + "".join(line(1, hex(number)) for number in range(1, 1000)))
    assert len(followed.windows.of([(followed.key, Rank(0))])) == 64
    for number in range(1000):
        followed.take(line(1, "0x1", kind=f"k{number}"))
    assert followed.steps <= 2 * 33


def test_a_communicator_that_is_silent_for_long_is_forgotten(followed: Followed) -> None:
    followed.take("\n" + line(1, "0xab", size=2) + line(1))
    followed.at += 400.0
    followed.take(line(2))
    assert followed.sizes() == {2, 8}
    followed.at += 400.0
    followed.take(line(3))
    assert followed.sizes() == {8}


def test_another_file_under_the_same_descriptor_is_not_followed(followed: Followed) -> None:
    followed.take("\n" + line(1))
    followed.take(line(2), identity=(1, 2))
    assert followed.files.signals() == {} and followed.sizes() == set()
    assert followed.files.queries({followed.key: followed.member}, followed.at), "it is looked for anew"


def test_a_trainer_without_a_ring_keeps_the_communicators_that_inspector_tells_of(followed: Followed) -> None:
    rings = Rings("/proc", SETTINGS)
    files = InspectorFiles(targets.proc, SETTINGS, rings.windows)
    assert files.queries({followed.key: followed.member}, 0.0)
    files.take(followed.key, Found((1, 1), 0, 0, ("\n" + line(1)).encode()), 1.0)
    rings.take(followed.key, None, 2.0)
    assert [one.size for one in rings.windows.of([(followed.key, Rank(0))])] == [8]


def test_what_is_written_seldom_tells_of_no_communicators(tmp_path: Path) -> None:
    """Whether one rests is decided after ten seconds."""
    with training(tmp_path, NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS="30000000") as process:
        member, windows = by_pid(process.pid), CommunicatorWindows()
        files = InspectorFiles(targets.proc, SETTINGS, windows)
        targets.until(lambda: bool(files.queries({member.process.key: member}, time.monotonic() * 99)))
        files.take(member.process.key, Found((1, 1), 0, 0, ("\n" + line(1)).encode()), 1.0)
        assert files.signals() and windows.of([(member.process.key, Rank(0))]) == ()


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_hang_that_inspector_alone_shows_is_suspected_in_seconds(tools: Tools, tmp_path: Path) -> None:
    """All hosts poll; there is no log, no heartbeat, no RAS, no recorder and no ring."""
    monitor = StallMonitor(tools, packaged(), StallSettings(traffic_every_s=0.0, ras_every_s=0.0))
    job = own_job()
    with ExitStack() as stack:
        members = [by_pid(stack.enter_context(training(tmp_path, rank, polls="1", **job)).pid) for rank in (0, 1)]
        assert not overdue(monitor, members, 18.0), "it trains"
        (tmp_path / "hang").touch()
        began = time.monotonic()
        shown = overdue(monitor, members, 35.0)
        took = time.monotonic() - began
    monitor.close()
    assert set(shown) == {Rank(0), Rank(1)}
    print(f"\nsuspected after {took:.1f} s")


def overdue(monitor: StallMonitor, members: list[RankProcesses], seconds: float) -> dict[Rank, Sign]:
    """What the ranks show once a rank is overdue; empty where none was for so long."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for signs in monitor.tick(members).values():
            if any(sign.overdue for sign in signs.values()) and len(signs) == len(members):
                return signs
        time.sleep(1.0)
    return {}
