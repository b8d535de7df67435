"""A trainer's flight record: poked for, waited for, never an old one, and always either the record or a reason."""

import http.server
import os
import shutil
import socket
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import targets
from dumper import DUMPER, own_job, pickled, played, recorded
from hangdog_agent.capture import doors
from hangdog_agent.capture.look import Tools
from hangdog_agent.capture.recorder import Patience, record
from hangdog_agent.census import Census
from hangdog_agent.discover import Kind, Member, find
from hangdog_agent.settings import CaptureSettings
from hangdog_models.ranks import Rank
from hangdog_models.reading.testimony import flight_record
from hangdog_models.stack import Missing, Reason
from hangdog_proto.statement import Statement

TOOLS = Tools(targets.proc, Missing(Reason.TOOL_MISSING, "none needed"), CaptureSettings())
#: Long enough for everything that is played, on a busy machine too.
LONG = Patience(socket_s=5.0, dump_s=8.0, start_s=8.0)
#: For what never comes.
SHORT = Patience(socket_s=0.3, dump_s=0.5, start_s=8.0)


def trainer(process: "subprocess.Popen[bytes]") -> Member:
    """The trainer as discovery finds it, environment included."""
    (found,) = [m for m in find(Census(targets.proc).take()) if m.process.pid == process.pid]
    assert found.kind is Kind.TRAINER
    return found


def ask(process: "subprocess.Popen[bytes]", patience: Patience = LONG) -> Statement:
    return record(trainer(process), TOOLS, patience)


def enqueued(told: Statement) -> dict[str, int]:
    assert told.missing is None, told.missing
    assert told.rank is not None
    return flight_record(told.data, told.rank).enqueued


def words(told: Statement) -> tuple[Reason, str]:
    assert told.missing is not None and not told.data
    return told.missing.reason, told.missing.words


@pytest.mark.parametrize("how", ["at once", "late", "in halves"])
def test_a_dump_is_awaited_until_it_is_whole(tmp_path: Path, how: str) -> None:
    with played(tmp_path, 3, pickled(7, 6), how) as process:
        told = ask(process)
    assert (told.rank, enqueued(told)) == (3, {"0": 7})
    assert told.data == pickled(7, 6)


def test_an_old_dump_is_not_taken_for_a_new_one(tmp_path: Path) -> None:
    (tmp_path / "dump-0").write_bytes(pickled(99, 98))
    with played(tmp_path, 0, pickled(7, 6), "never") as process:
        assert words(ask(process, SHORT)) == (Reason.TIMED_OUT, "no new dump within 0.5 s")
    assert (tmp_path / "dump-0").read_bytes() == pickled(99, 98)


def test_a_new_dump_in_the_place_of_an_old_one_is(tmp_path: Path) -> None:
    (tmp_path / "dump-0").write_bytes(pickled(99, 98))
    with played(tmp_path, 0, pickled(7, 6), "late") as process:
        assert enqueued(ask(process)) == {"0": 7}


def test_half_a_dump_is_none(tmp_path: Path) -> None:
    with played(tmp_path, 0, pickled(7, 6), "half") as process:
        assert words(ask(process, SHORT)) == (Reason.TIMED_OUT, "its new dump is not whole after 0.5 s")


def test_nobody_listens_at_a_pipe_that_was_left_behind(tmp_path: Path) -> None:
    with played(tmp_path, 0, b"") as process:
        target = trainer(process)
        door = tmp_path / "pipe-0.pipe"
        door.unlink()
        os.mkfifo(door)
        assert words(record(target, TOOLS, SHORT))[1] == "it does not listen at its pipe"
        door.unlink()
        assert words(record(target, TOOLS, SHORT))[1] == "its pipe does not exist"
        door.write_text("")
        assert words(record(target, TOOLS, SHORT))[1] == "what stands in its pipe's place is no pipe"
        assert door.read_text() == ""


def test_the_pipe_of_another_process_is_not_poked(tmp_path: Path) -> None:
    with played(tmp_path, 0, pickled(7, 6)) as other:
        says = own_job() | {"RANK": "0", "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": f"{tmp_path}/pipe-"}
        with targets.running(targets.WAIT, environ=says) as process:
            assert words(ask(process, SHORT))[1] == "it does not listen at its pipe"
        assert other.poll() is None
    assert not (tmp_path / "dump-0").exists()


def test_a_stopped_rank_is_not_poked(tmp_path: Path) -> None:
    with played(tmp_path, 0, pickled(7, 6)) as process:
        target = trainer(process)
        targets.stop(process)
        began = time.monotonic()
        assert words(record(target, TOOLS))[0] is Reason.STOPPED
        assert time.monotonic() - began < 1.0


def test_a_rank_that_has_ended(tmp_path: Path) -> None:
    with played(tmp_path, 0, b"") as process:
        target = trainer(process)
        targets.end(process)
        assert words(record(target, TOOLS)) == (Reason.EXITED, "its process has ended")


def test_nothing_to_ask_is_said_at_once() -> None:
    with targets.running(targets.WAIT, environ=own_job() | {"RANK": "5"}) as process:
        reason, said = words(ask(process))
    assert reason is Reason.NO_EVIDENCE
    assert "TORCH_NCCL_DEBUG_INFO_PIPE_FILE" in said


def test_without_a_name_the_dump_is_found_where_pytorch_writes_it(tmp_path: Path) -> None:
    place = tmp_path / "cache" / "torch"
    place.mkdir(parents=True)
    (place / "comm_lib_trace_rank_4").symlink_to(tmp_path / "elsewhere")
    said = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": ""}
    with played(tmp_path, 4, pickled(7, 6), **said) as process:
        (tmp_path / "dump-4").symlink_to(tmp_path / "elsewhere")
        assert enqueued(ask(process)) == {"0": 7}


def test_a_dump_that_is_too_large_is_refused_before_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hangdog_agent.capture.recorder.MOST_BYTES", 100)
    with played(tmp_path, 0, pickled(7, 6)) as process:
        reason, said = words(ask(process))
    assert reason is Reason.TOOL_FAILED
    assert said.endswith("bytes is longer than 100")


def test_a_file_system_that_hangs_holds_up_nobody(tmp_path: Path) -> None:
    """The child that asks is killed: here it waits at a socket that takes it in and says nothing, for longer than all may take."""
    with silent(tmp_path / "socket"), targets.running(targets.WAIT, environ=door(tmp_path / "socket")) as process:
        began = time.monotonic()
        reason, _ = words(ask(process, replace(SHORT, socket_s=60.0, dump_s=-119.0, start_s=0.5)))
        assert reason is Reason.TIMED_OUT
        assert time.monotonic() - began < 5.0


def test_a_rank_in_another_mount_namespace_is_found_through_its_own_root(tmp_path: Path) -> None:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("needs root and unshare, to make a mount namespace")
    inner = tmp_path / "inner"
    inner.mkdir()
    prepare = f'mount -t tmpfs none {inner} && mkdir {inner}/real && ln -s {inner}/real {inner}/link && exec "$@"'
    command = ("unshare", "--mount", "sh", "-c", prepare, "sh")
    (tmp_path / "record").write_bytes(pickled(7, 6))
    places = (f"{inner}/link/pipe-0.pipe", f"{inner}/link/dump-0", f"{tmp_path}/record")
    said = own_job() | {
        "RANK": "0",
        "TORCH_FR_DEBUG_INFO_PIPE_FILE": f"{inner}/link/pipe-",
        "TORCH_FR_DUMP_TEMP_FILE": f"{inner}/link/dump-",
    }
    with targets.running(DUMPER, *places, "at once", environ=said, command=command) as process:
        assert enqueued(ask(process)) == {"0": 7}
    assert not list(inner.iterdir()), "nothing of it lies in our own tree"


def test_links_never_lead_out_of_a_root(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "a").mkdir(parents=True)
    (root / "a" / "up").symlink_to("../../../../etc/passwd")
    (root / "a" / "absolute").symlink_to("/a/b")
    (root / "a" / "loop").symlink_to("loop")
    assert doors.inside(str(root), "/a/up") == f"{root}/etc/passwd"
    assert doors.inside(str(root), "/a/absolute/c") == f"{root}/a/b/c"
    assert doors.inside(str(root), "../x/./y") == f"{root}/x/y"
    assert doors.inside("", "/none/such") == "/none/such"
    with pytest.raises(doors.Refused, match="too many"):
        doors.inside(str(root), "/a/loop")


class WorkerServer(http.server.BaseHTTPRequestHandler):
    """Plays PyTorch's worker server: a handler it does not know is a 404."""

    handlers: dict[str, bytes]

    def do_POST(self) -> None:
        content = self.handlers.get(self.path.removeprefix("/handler/"))
        self.send_response(404 if content is None else 200)
        self.send_header("Content-Length", str(len(content or b"")))
        self.end_headers()
        self.wfile.write(content or b"")

    def address_string(self) -> str:
        return "a unix socket"

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def worker_server(path: Path, **handlers: bytes) -> Iterator[None]:
    kind = type("Handlers", (WorkerServer,), {"handlers": handlers})
    with socketserver.UnixStreamServer(str(path), kind) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def silent(path: Path) -> Iterator[None]:
    """A socket whose owner is stopped: the kernel takes the connection, nobody answers."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen(8)
        yield


def door(path: Path) -> dict[str, str]:
    return own_job() | {"RANK": "0", "TORCH_WORKER_SERVER_SOCKET": str(path)}


def test_a_worker_server_is_asked_first_and_no_dump_is_written(tmp_path: Path) -> None:
    with worker_server(tmp_path / "s", fr_trace_json=recorded(7, 6)):
        said = {"TORCH_WORKER_SERVER_SOCKET": str(tmp_path / "s")}
        with played(tmp_path, 0, pickled(1, 0), **said) as process:
            assert enqueued(ask(process)) == {"0": 7}
    assert not (tmp_path / "dump-0").exists()


def test_the_recorder_of_nccl_goes_before_the_others_when_it_recorded_anything(tmp_path: Path) -> None:
    empty = b'{"entries":[],"version":"2.10","pg_status":{}}'
    for number, (nccl, other, expected) in enumerate(
        [(recorded(7, 6), empty, 7), (empty, recorded(5, 4), 5), (recorded(7, 6), recorded(5, 4), 7)]
    ):
        place = tmp_path / str(number)
        with (
            worker_server(place, dump_nccl_trace_json=nccl, fr_trace_json=other),
            targets.running(targets.WAIT, environ=door(place)) as process,
        ):
            assert enqueued(ask(process)) == {"0": expected}


def test_a_worker_server_that_recorded_nothing_leaves_the_pipe(tmp_path: Path) -> None:
    """PyTorch built with another recorder for NCCL answers for gloo here: the FIFO belongs to the recorder that counts."""
    empty = b'{"entries":[],"version":"2.10","pg_status":{"0":{"last_enqueued_collective":"3"}}}'
    with worker_server(tmp_path / "s", fr_trace_json=empty):
        said = {"TORCH_WORKER_SERVER_SOCKET": str(tmp_path / "s")}
        with played(tmp_path, 0, pickled(7, 6), **said) as process:
            assert enqueued(ask(process)) == {"0": 7}
        (tmp_path / "pipe-0.pipe").unlink()
        with played(tmp_path, 0, pickled(7, 6), "never", **said) as process:
            assert enqueued(ask(process, SHORT)) == {"0": 3}


def test_a_silent_worker_server_leaves_the_pipe(tmp_path: Path) -> None:
    with (
        silent(tmp_path / "s"),
        played(tmp_path, 0, pickled(7, 6), TORCH_WORKER_SERVER_SOCKET=f"{tmp_path}/s") as process,
    ):
        assert enqueued(ask(process, replace(LONG, socket_s=0.2))) == {"0": 7}


def test_why_no_door_opened_is_told_of_each(tmp_path: Path) -> None:
    with silent(tmp_path / "s"):
        said = {"TORCH_WORKER_SERVER_SOCKET": f"{tmp_path}/s"}
        with played(tmp_path, 0, pickled(7, 6), "never", **said) as process:
            reason, told = words(ask(process, SHORT))
    assert reason is Reason.TIMED_OUT
    assert told == "its worker server did not answer within 0.3 s; no new dump within 0.5 s"
    with targets.running(targets.WAIT, environ=door(tmp_path / "none")) as process:
        assert words(ask(process))[1] == "no worker server listens at its socket"


def test_a_socket_at_the_end_of_a_long_path(tmp_path: Path) -> None:
    folder = tmp_path / ("f" * 100)
    folder.mkdir()
    held = os.open(folder, os.O_PATH)
    try:
        with (
            worker_server(Path(f"/proc/self/fd/{held}/s"), fr_trace_json=recorded(7, 6)),
            targets.running(targets.WAIT, environ=door(folder / "s")) as process,
        ):
            assert enqueued(ask(process)) == {"0": 7}
    finally:
        os.close(held)


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
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    group = own_job() | {
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "GLOO_SOCKET_IFNAME": "lo",
    }
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", RANK],
            env=os.environ | group | {"RANK": str(rank), "TORCH_WORKER_SERVER_SOCKET": str(tmp_path / f"s{rank}")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        for rank in range(2)
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
        for rank, process in enumerate(processes):
            told = ask(process)
            assert told.rank == Rank(rank)
            counters = flight_record(told.data, Rank(rank))
            assert counters.completed["0"] == counters.enqueued["0"] >= 2
            assert [entry.operation for entry in counters.entries if "all_reduce" in entry.operation]
        targets.stop(processes[1])
        assert words(ask(processes[1]))[0] is Reason.STOPPED
    finally:
        for process in processes:
            process.kill()
            process.communicate()
