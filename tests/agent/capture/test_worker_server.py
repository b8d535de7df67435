"""PyTorch's worker server, the first door to a flight record: asked before the pipe, and never waited for."""

import os
import re
import socket
import subprocess
import sys
import time
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pytest

from hangdog.demo.conductor import free_port
from hangdog_models.ranks import Rank
from hangdog_models.reading.collectives.library_counters import flight_record
from hangdog_models.stack import Reason
from support.fakes import targets
from support.fakes.dumper import SERVING, own_job, pickled, played, recorded, serving
from support.fakes.recorder_asked import LONG, SHORT, ask, enqueued, words


def rank(path: Path, **handlers: bytes) -> "AbstractContextManager[subprocess.Popen[bytes]]":
    """A rank with nothing but a worker server."""
    said = own_job() | {"RANK": "0"} | serving(path, **handlers)
    return targets.running(SERVING + targets.WAIT, environ=said)


def test_a_worker_server_is_asked_first_and_no_dump_is_written(tmp_path: Path) -> None:
    with played(tmp_path, 0, pickled(1, 0), **serving(tmp_path / "s", fr_trace_json=recorded(7, 6))) as process:
        assert enqueued(ask(process)) == {"0": 7}
    assert not (tmp_path / "dump-0").exists()


def test_the_recorder_of_nccl_goes_before_the_others_when_it_recorded_anything(tmp_path: Path) -> None:
    empty = b'{"entries":[],"version":"2.10","pg_status":{}}'
    for number, (nccl, other, expected) in enumerate(
        [(recorded(7, 6), empty, 7), (empty, recorded(5, 4), 5), (recorded(7, 6), recorded(5, 4), 7)]
    ):
        with rank(tmp_path / str(number), dump_nccl_trace_json=nccl, fr_trace_json=other) as process:
            assert enqueued(ask(process)) == {"0": expected}


def test_a_worker_server_that_recorded_nothing_leaves_the_pipe(tmp_path: Path) -> None:
    """PyTorch built with another recorder for NCCL answers for gloo here: the FIFO belongs to the recorder that counts."""
    empty = b'{"entries":[],"version":"2.10","pg_status":{"0":{"last_enqueued_collective":"3"}}}'
    with played(tmp_path, 0, pickled(7, 6), **serving(tmp_path / "s", fr_trace_json=empty)) as process:
        assert enqueued(ask(process)) == {"0": 7}
    (tmp_path / "pipe-0.pipe").unlink()
    with played(tmp_path, 0, pickled(7, 6), "never", **serving(tmp_path / "t", fr_trace_json=empty)) as process:
        assert enqueued(ask(process, SHORT)) == {"0": 3}


def test_a_silent_worker_server_leaves_the_pipe(tmp_path: Path) -> None:
    with played(tmp_path, 0, pickled(7, 6), **serving(tmp_path / "s")) as process:
        assert enqueued(ask(process, replace(LONG, socket_s=0.2))) == {"0": 7}


def test_why_no_door_opened_is_told_of_each(tmp_path: Path) -> None:
    with played(tmp_path, 0, pickled(7, 6), "never", **serving(tmp_path / "s")) as process:
        reason, told = words(ask(process, SHORT))
    assert reason is Reason.TIMED_OUT
    assert re.fullmatch(r"its worker server .* 0\.3 s; .*dump .* 0\.5 s", told)
    said = own_job() | {"RANK": "0", "TORCH_WORKER_SERVER_SOCKET": str(tmp_path / "none")}
    with targets.running(targets.WAIT, environ=said) as process:
        reason, told = words(ask(process))
    assert reason is Reason.TOOL_FAILED and "no worker server" in told


def test_nothing_is_said_to_a_socket_of_another_process(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s"))
        listening.listen(8)
        said = own_job() | {"RANK": "0", "TORCH_WORKER_SERVER_SOCKET": str(tmp_path / "s")}
        with targets.running(targets.WAIT, environ=said) as process:
            reason, told = words(ask(process))
            assert reason is Reason.TOOL_FAILED and "another process" in told
        line, _ = listening.accept()
        with line:
            assert line.recv(100) == b""


def test_a_file_in_the_place_of_the_socket_is_none(tmp_path: Path) -> None:
    (tmp_path / "s").touch()
    said = own_job() | {"RANK": "0", "TORCH_WORKER_SERVER_SOCKET": str(tmp_path / "s")}
    with targets.running(targets.WAIT, environ=said) as process:
        reason, told = words(ask(process))
    assert reason is Reason.TOOL_FAILED and "not a socket" in told


def test_a_file_system_that_hangs_holds_up_nobody(tmp_path: Path) -> None:
    """The child that asks is killed: here it waits at a socket that takes it in and says nothing, for longer than all may take."""
    with rank(tmp_path / "socket") as process:
        began = time.monotonic()
        reason, _ = words(ask(process, replace(SHORT, socket_s=60.0, dump_s=-119.0, start_s=0.5)))
        assert reason is Reason.TIMED_OUT
        assert time.monotonic() - began < 5.0


def test_a_socket_at_the_end_of_a_long_path(tmp_path: Path) -> None:
    folder = tmp_path / ("f" * 100)
    folder.mkdir()
    with rank(folder / "s", fr_trace_json=recorded(7, 6)) as process:
        assert enqueued(ask(process)) == {"0": 7}


#: A rank of a real process group, with PyTorch's own worker server; it ends when its input does.
RANK = """
import os
import torch, torch.distributed as dist
from torch.distributed.elastic.control_plane import worker_main
with worker_main():
    dist.init_process_group("gloo")
    for _ in range(3):
        dist.all_reduce(torch.ones(2))
    os.write(1, b"ready\\n")
    os.read(0, 1)
os._exit(0)
"""


@pytest.mark.slow
def test_a_real_process_group_tells_through_its_worker_server(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    port = free_port()
    group = own_job() | {
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "GLOO_SOCKET_IFNAME": "lo",
    }
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", RANK],
            env=os.environ | group | {"RANK": str(at), "TORCH_WORKER_SERVER_SOCKET": str(tmp_path / f"s{at}")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        for at in range(2)
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
        for number, process in enumerate(processes):
            told = ask(process)
            assert told.rank == Rank(number)
            counters = flight_record(told.data, Rank(number))
            assert counters.completed["0"] == counters.enqueued["0"] >= 2
            assert [entry.operation for entry in counters.entries if "all_reduce" in entry.operation]
        targets.stop(processes[1])
        assert words(ask(processes[1]))[0] is Reason.STOPPED
    finally:
        for process in processes:
            process.kill()
            process.communicate()
