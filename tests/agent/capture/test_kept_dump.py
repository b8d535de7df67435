"""A flight record that PyTorch wrote by itself: taken where the rank answers no more, if it is surely the rank's own."""

import os
import pickle  # noqa: TID251  # forges what PyTorch writes; only our own reader reads it
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hangdog_agent.capture.flight_recorder import kept_dump
from hangdog_agent.capture.flight_recorder.recorder import record
from hangdog_models.stack import Reason
from hangdog_proto.codec.collectives import Statement
from support.fakes import targets
from support.fakes.dumper import own_job, pickled, played
from support.fakes.recorder_asked import LONG, SHORT, TOOLS, ask, enqueued, trainer, words

#: Where nobody reads the FIFO, that is told soon.
SOON = replace(LONG, read_s=0.3)


def written(folder: Path, rank: int, age_s: float = 0.0, **entry: Any) -> None:
    """A whole dump in the place of the rank's, by somebody else."""
    document = pickle.loads(pickled(99, 98))
    document["entries"][0] |= entry
    path = folder / f"dump-{rank}"
    path.write_bytes(pickle.dumps(document, protocol=2))
    os.utime(path, ns=(time.time_ns() - int(age_s * 1e9),) * 2)


def said_of_the_dump(told: Statement) -> str:
    """What it says of the dump on disk, after why the rank did not answer."""
    return words(told)[1].partition("the dump on disk")[2]


#: Of a dump of PyTorch 2.11.0 on an H200: the thread and the time of one operation.
BY_PYTORCH = (
    b'X\x0b\x00\x00\x00thread_nameq"X\x06\x00\x00\x00pythonq#X\t\x00\x00\x00thread_idq$'
    b"X\x0f\x00\x00\x00140339380691264q%X\x11\x00\x00\x00collective_seq_idq&K\x01"
    b"X\x0f\x00\x00\x00time_created_nsq+\x8a\x08_\x87-lj\x83\xeb\x18X\x0b\x00\x00\x00input_sizesq,"
)


def test_threads_and_times_are_found_as_pytorch_writes_them() -> None:
    assert kept_dump.threads_of(BY_PYTORCH) == {140339380691264}
    assert kept_dump.newest_s(BY_PYTORCH, 2e9) == pytest.approx(1795673369.541969759)
    assert kept_dump.newest_s(BY_PYTORCH, 1.7e9) is None


def test_what_a_rank_wrote_by_itself_is_taken_where_it_reads_its_pipe_no_more(tmp_path: Path) -> None:
    with played(tmp_path, 3, pickled(7, 6), "by itself") as process:
        time.sleep(1.0)
        told = ask(process, SOON)
    assert (told.rank, enqueued(told)) == (3, {"0": 7})
    assert 1 < told.age_s < 30, "what was written before it was asked says how long before"


def test_a_new_dump_goes_before_an_old_one(tmp_path: Path) -> None:
    with played(tmp_path, 3, pickled(7, 6)) as process:
        written(tmp_path, 3, time_created_ns=time.time_ns())
        told = ask(process)
    assert (enqueued(told), told.age_s) == ({"0": 7}, 0)


def test_it_is_taken_where_no_pipe_is_named_at_all(tmp_path: Path) -> None:
    said = {"TORCH_NCCL_DEBUG_INFO_PIPE_FILE": ""}
    with played(tmp_path, 0, pickled(7, 6), "by itself", **said) as process:
        assert enqueued(ask(process)) == {"0": 7}


def test_and_in_the_place_where_pytorch_writes_when_nobody_names_one(tmp_path: Path) -> None:
    place = tmp_path / "cache" / "torch"
    place.mkdir(parents=True)
    (place / "comm_lib_trace_rank_4").symlink_to(tmp_path / "dump-4")
    said = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": ""}
    with played(tmp_path, 4, pickled(7, 6), "by itself", **said) as process:
        assert enqueued(ask(process, SOON)) == {"0": 7}
        written(tmp_path, 4, time_created_ns=time.time_ns())
        assert said_of_the_dump(ask(process, SOON)).endswith("another process"), (
            "in a place that all jobs of its user share, a record without threads may be anybody's"
        )


def test_what_a_process_with_other_threads_wrote_is_not_taken(tmp_path: Path) -> None:
    with played(tmp_path, 0, pickled(7, 6), "by another") as process:
        told = ask(process, SOON)
    assert words(told)[0] is Reason.TIMED_OUT and "0.3 s;" in words(told)[1]
    assert said_of_the_dump(told).endswith("another process")


def test_older_pytorch_names_no_threads_then_a_place_that_the_job_named_decides(tmp_path: Path) -> None:
    with played(tmp_path, 0, pickled(7, 6), "deaf") as process:
        written(tmp_path, 0, time_created_ns=time.time_ns())
        assert enqueued(ask(process, SOON)) == {"0": 99}


@pytest.mark.parametrize("clock_s", [0.0, 60.0], ids=["its own clock", "a file server whose clock is ahead"])
def test_what_an_earlier_start_of_the_job_left_is_not_taken(tmp_path: Path, clock_s: float) -> None:
    written(tmp_path, 0, time_created_ns=time.time_ns() - 61 * 10**9)
    with played(tmp_path, 0, pickled(7, 6), "deaf") as process:
        os.utime(tmp_path / "dump-0", ns=(time.time_ns() + int((clock_s - 60) * 1e9),) * 2)
        assert "earlier start" in said_of_the_dump(ask(process, SOON))


def test_a_time_that_cannot_be_makes_its_age_unknown(tmp_path: Path) -> None:
    with played(tmp_path, 0, pickled(7, 6), "deaf") as process:
        written(tmp_path, 0, -300.0, time_created_ns=time.time_ns())
        assert "impossible time" in said_of_the_dump(ask(process, SOON))


def test_a_dump_that_is_another_users_is_not_taken(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to give a file away")
    with played(tmp_path, 0, pickled(7, 6), "by itself") as process:
        os.chown(tmp_path / "dump-0", 65534, 65534)
        assert "another user" in said_of_the_dump(ask(process, SOON))


def test_half_of_one_is_not_taken(tmp_path: Path) -> None:
    with played(tmp_path, 0, pickled(7, 6), "by itself") as process:
        os.truncate(tmp_path / "dump-0", 100)
        assert "incomplete" in said_of_the_dump(ask(process, SOON))


def test_a_link_and_a_pipe_in_its_place_are_no_dump(tmp_path: Path) -> None:
    with played(tmp_path, 0, pickled(7, 6), "deaf") as process:
        os.mkfifo(tmp_path / "dump-0")
        reason, said = words(ask(process, SOON))
    assert reason is Reason.TIMED_OUT and said.endswith(" 0.3 s"), "of the dump it says nothing"


def test_nobody_is_waited_for_who_does_not_read_and_not_asked_twice(tmp_path: Path) -> None:
    patience = replace(LONG, read_s=1.0)
    with played(tmp_path, 0, pickled(7, 6), "deaf") as process:
        target, took = trainer(process), []
        for _ in range(2):
            began = time.monotonic()
            reason, said = words(record(target, TOOLS, patience))
            took.append(time.monotonic() - began)
            time.sleep(1.2)
    assert reason is Reason.TOOL_FAILED and "earlier request" in said
    assert 1.0 <= took[0] < patience.dump_s
    assert took[1] < took[0] - 0.5, "the second look does not wait again"


def test_a_pipe_that_was_turned_off_leaves_its_dump_unread(tmp_path: Path) -> None:
    tools = replace(TOOLS, settings=replace(TOOLS.settings, recorder_pipe=0))
    with played(tmp_path, 0, pickled(7, 6), "by itself") as process:
        assert words(record(trainer(process), tools, SHORT))[0] is Reason.NO_EVIDENCE


def test_a_job_that_has_neither_pipe_nor_dump_has_nothing_to_tell(tmp_path: Path) -> None:
    with targets.running(targets.WAIT, environ=own_job() | {"RANK": "5", "HOME": str(tmp_path)}) as process:
        assert words(ask(process))[0] is Reason.NO_EVIDENCE
