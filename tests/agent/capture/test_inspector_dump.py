"""What NCCL Inspector wrote of a trainer comes with a capture: of one that is stopped as well, and nothing but such lines."""

import os
import re
import zlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from hangdog_agent.capture import inspector_dump, library_counters
from hangdog_agent.capture.inspector_process import MOST_BYTES, whole_lines
from hangdog_agent.capture.settings import CaptureSettings
from hangdog_models.collectives import INSPECTOR, RankCounters
from hangdog_models.diagnosis.waits import kept_records
from hangdog_models.progress.collective_progress import RankProgress
from hangdog_models.ranks import Rank
from hangdog_models.reading.collectives.library_counters import LibraryCounters, inspected_rank, joined
from hangdog_models.snapshot import Job, Snapshot
from hangdog_models.stack import Missing, Reason
from hangdog_proto.codec import collectives
from hangdog_proto.codec.collectives import Statement, StatementKind
from hangdog_proto.generated import hangdog_pb2 as pb
from support.fakes import targets
from support.fakes.dumper import own_job
from support.fakes.inspector_played import environ_of, training
from support.fakes.recorder_asked import TOOLS, by_pid

DATA = "0x700885418fd77bcf AllReduce"


def written(pid: int) -> Statement:
    """What was written, once something was."""
    targets.until(lambda: DATA.partition(" ")[0].encode() in getattr(said(pid), "data", b""))
    stated = said(pid)
    assert stated is not None
    return stated


def said(pid: int) -> Statement | None:
    return inspector_dump.completed(by_pid(pid), TOOLS)


def test_what_a_trainer_completed(tmp_path: Path) -> None:
    with training(tmp_path, 1) as process:
        stated = written(process.pid)
    assert (stated.kind, stated.rank, stated.missing, stated.age_s) == (StatementKind.INSPECTOR, 1, None, 0)
    found = inspected_rank(stated.data)
    assert (found.pid, found.largest.size, found.counters.source) == (process.pid, 8, INSPECTOR)
    assert found.counters.completed[DATA] % 4 == 3 and found.counters.entries[0].took_ns == 900_000


def test_a_stopped_trainer_shows_as_much_and_stays_as_it_is(tmp_path: Path) -> None:
    with training(tmp_path) as process:
        written(process.pid)
        targets.stop(process)
        assert inspected_rank(written(process.pid).data).counters.completed
        assert targets.letter(process.pid) == "T"


def test_it_is_as_old_as_the_time_between_two_dumps(tmp_path: Path) -> None:
    with training(tmp_path, NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS="30000000") as process:
        assert written(process.pid).age_s == 30


def test_a_trainer_without_inspector_says_nothing_of_one(tmp_path: Path) -> None:
    for environ in ({}, environ_of(1000)):
        with targets.running(targets.WAIT, environ=own_job() | {"RANK": "0"} | environ) as process:
            assert said(process.pid) is None
    with training(tmp_path, form="prometheus") as process:
        targets.until(lambda: inspector_dump.find(by_pid(process.pid), targets.proc) is not None)
        assert said(process.pid) is None, "it has no operations in it"


def test_it_can_be_turned_off(tmp_path: Path) -> None:
    with training(tmp_path) as process:
        written(process.pid)
        off = replace(TOOLS, settings=CaptureSettings(inspector=0))
        assert inspector_dump.completed(by_pid(process.pid), off) is None


def test_it_travels_with_what_other_libraries_counted(tmp_path: Path) -> None:
    with training(tmp_path) as process:
        written(process.pid)
        received = library_counters.hear([by_pid(process.pid)], replace(TOOLS, settings=CaptureSettings(ras=0)))
    told = collectives.unpack_all(pb.Capture(statements=received))
    assert told is not None and not told.unreadable
    ((rank, found),) = told.inspected
    assert rank == 0 and DATA in found.counters.completed


#: A trainer that has a file of Inspector's name open, which its argument makes.
HOLDER = """
import os, socket, sys
path = f"{sys.argv[1]}/{socket.gethostname()}-pid{os.getpid()}.log"
exec(sys.argv[2])
os.write(1, b"ready\\n")
os.read(0, 1)
"""


@pytest.mark.parametrize(
    ("made", "words"),
    [
        ("os.mkfifo(path); held = os.open(path, os.O_RDWR)", "no regular file"),
        ("held = open(path, 'wb'); held.truncate(1 << 40)", None),
        ("held = open(path, 'wb')", None),
        ("held = open(path, 'wb'); held.write(b'x' * (1 << 20)); held.flush()", None),
    ],
)
def test_what_is_no_dump_is_not_taken_for_one(made: str, words: str | None, tmp_path: Path) -> None:
    environ = own_job() | {"RANK": "0"} | environ_of(1000)
    with targets.running(HOLDER, os.fspath(tmp_path), made, environ=environ) as process:
        stated = said(process.pid)
    if words is None:
        assert stated is None
    else:
        assert stated is not None and stated.missing is not None and words in stated.missing.message


def test_a_descriptor_that_became_another_file_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with training(tmp_path) as process:
        written(process.pid)
        member = by_pid(process.pid)
        found = inspector_dump.find(member, targets.proc)
        assert found is not None
        monkeypatch.setattr(inspector_dump, "find", lambda *_: replace(found, name="another"))
        assert inspector_dump.completed(member, TOOLS) is None


def test_only_whole_lines_are_taken() -> None:
    assert whole_lines(b"a\nb\nc", cut=False) == b"a\nb\n"
    assert whole_lines(b"a\nb\nc", cut=True) == b"b\n"
    assert whole_lines(b"abc", cut=True) == whole_lines(b"abc", cut=False) == b""


def test_the_end_of_a_long_file_is_taken(tmp_path: Path) -> None:
    made = "held = open(path, 'w'); held.write(('y' * 99 + chr(10)) * 20000 + 'last' + chr(10)); held.flush()"
    environ = own_job() | {"RANK": "0"} | environ_of(1000)
    with targets.running(HOLDER, os.fspath(tmp_path), made, environ=environ) as process:
        stated = said(process.pid)
    assert (
        stated is not None and stated.data.endswith(b"\nlast\n") and MOST_BYTES - 100 < len(stated.data) <= MOST_BYTES
    )


def told(ranks: Mapping[int, int]) -> LibraryCounters:
    """A machine's message: by rank how many operations of the whole job it completed."""
    statements = []
    for rank, number in ranks.items():
        header = f'{{"header":{{"id":"0x7f","rank":{rank},"n_ranks":{len(ranks)}}},"metadata":'
        metadata = '{"inspector_output_format_version":"v4.2","hostname":"a","pid":7},'
        data = f'{header}{metadata}"coll_perf":{{"coll":"AllReduce","coll_sn":{number}}}}}\n'.encode()
        statements.append(collectives.pack(Statement(StatementKind.INSPECTOR, Rank(rank), data, age_s=9)))
    found = collectives.unpack_all(pb.Capture(statements=statements))
    assert found is not None and not found.unreadable
    return found


def test_ranks_are_counted_by_it_where_no_flight_record_counts_them() -> None:
    owner = {Rank(0): "a", Rank(1): "a"}
    both = told({0: 9, 1: 8})
    found = joined({"a": {0: both}}, owner)
    assert [(one.rank, one.completed, one.source, one.age_s) for one in found.counters] == [
        (0, {"0x7f AllReduce": 9}, INSPECTOR, 9),
        (1, {"0x7f AllReduce": 8}, INSPECTOR, 9),
    ]
    assert found.counters[0].members == {"0x7f AllReduce": (0, 1)} and not found.notes
    record = RankCounters(Rank(0), {"0": 5}, {"0": 4}, (), {}, {})
    found = joined({"a": {0: LibraryCounters((record,)), 1: both}}, owner)
    assert [one.source == INSPECTOR for one in found.counters] == [False, True]
    ring = LibraryCounters(progress=(RankProgress(Rank(1), ()),))
    assert [one.rank for one in joined({"a": {0: ring, 1: both}}, owner).counters] == [0]
    assert not joined({"b": {0: both}}, owner).counters, "another machine has these ranks"


def test_why_there_is_no_flight_record_is_no_news_where_nobody_keeps_any() -> None:
    silent = LibraryCounters(lacking=((Rank(0), Missing(Reason.NO_EVIDENCE, "not set in its environment")),))
    assert not joined({"a": {0: silent, 1: told({0: 9})}}, {Rank(0): "a"}).notes


def test_what_tells_of_several_devices_is_whose_nobody_knows() -> None:
    line = b'{"header":{"id":"0x7f","rank":%d,"n_ranks":2},"coll_perf":{"coll":"AllReduce","coll_sn":1}}\n'
    packed = collectives.pack(Statement(StatementKind.INSPECTOR, Rank(0), line % 0 + line % 1))
    found = collectives.unpack_all(pb.Capture(statements=[packed]))
    assert found is not None
    ((whose, why),) = found.unreadable.items()
    assert "NCCL Inspector" in whose and "rank 0" in whose and "2 devices" in why
    damaged = pb.Statement(kind="nccl inspector", rank=0, size=9, deflated=zlib.compress(b"not a dump"[:9]))
    found = collectives.unpack_all(pb.Capture(statements=[damaged]))
    assert found is not None and not found.inspected and found.unreadable


def test_it_is_called_by_its_name_where_it_is_too_old() -> None:
    counters = joined({"a": {0: told({0: 9, 1: 8})}}, {Rank(0): "a", Rank(1): "a"}).counters
    now = kept_records.current(Snapshot(Job("job"), (), counters=counters), 1.0, ())
    assert re.search(r"\bNCCL Inspector .*\b0-1 .*\b9 s\b", " ".join(now.account.notes))
