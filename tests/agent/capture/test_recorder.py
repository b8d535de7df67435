"""A trainer's flight record: poked for, waited for, never an old one, and always either the record or a reason."""

import os
import shutil
import time
from pathlib import Path

import pytest

from hangdog_agent.capture.flight_recorder.recorder import record
from hangdog_agent.confinement import syscalls
from hangdog_models.stack import Reason
from support.fakes import targets
from support.fakes.dumper import DUMPER, own_job, pickled, played
from support.fakes.recorder_asked import SHORT, TOOLS, ask, enqueued, trainer, words


@pytest.mark.parametrize("how", ["at once", "late", "in halves"])
def test_a_dump_is_awaited_until_it_is_whole(tmp_path: Path, how: str) -> None:
    with played(tmp_path, 3, pickled(7, 6), how) as process:
        told = ask(process)
    assert (told.rank, enqueued(told)) == (3, {"0": 7})
    assert told.data == pickled(7, 6)


def test_an_old_dump_is_not_taken_for_a_new_one(tmp_path: Path) -> None:
    (tmp_path / "dump-0").write_bytes(pickled(99, 98))
    with played(tmp_path, 0, pickled(7, 6), "never") as process:
        reason, said = words(ask(process, SHORT))
    assert reason is Reason.TIMED_OUT and " 0.5 s; " in said and "no time in" in said
    assert (tmp_path / "dump-0").read_bytes() == pickled(99, 98)


def test_a_new_dump_in_the_place_of_an_old_one_is(tmp_path: Path) -> None:
    (tmp_path / "dump-0").write_bytes(pickled(99, 98))
    with played(tmp_path, 0, pickled(7, 6), "late") as process:
        assert enqueued(ask(process)) == {"0": 7}


def test_half_a_dump_is_none(tmp_path: Path) -> None:
    with played(tmp_path, 0, pickled(7, 6), "half") as process:
        reason, said = words(ask(process, SHORT))
    assert reason is Reason.TIMED_OUT and "incomplete" in said and said.endswith(" 0.5 s")


def test_nobody_listens_at_a_pipe_that_was_left_behind(tmp_path: Path) -> None:
    with played(tmp_path, 0, b"") as process:
        target = trainer(process)
        door = tmp_path / "pipe-0.pipe"
        door.unlink()
        os.mkfifo(door)
        assert "not listen" in words(record(target, TOOLS, SHORT))[1]
        door.unlink()
        assert "not exist" in words(record(target, TOOLS, SHORT))[1]
        door.write_text("")
        assert "not a pipe" in words(record(target, TOOLS, SHORT))[1]
        assert door.read_text() == ""


def test_the_pipe_of_another_process_is_not_poked(tmp_path: Path) -> None:
    with played(tmp_path, 0, pickled(7, 6)) as other:
        says = own_job() | {"RANK": "0", "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": f"{tmp_path}/pipe-"}
        with targets.running(targets.WAIT, environ=says) as process:
            reason, said = words(ask(process, SHORT))
            assert reason is Reason.TOOL_FAILED and "not listen" in said
        assert other.poll() is None
    assert not (tmp_path / "dump-0").exists()


def test_a_stopped_rank_is_not_poked(tmp_path: Path) -> None:
    with played(tmp_path, 0, pickled(7, 6)) as process:
        target = trainer(process)
        targets.stop(process)
        began = time.monotonic()
        assert words(record(target, TOOLS))[0] is Reason.STOPPED
        assert time.monotonic() - began < 3.0


def test_a_rank_that_has_ended(tmp_path: Path) -> None:
    with played(tmp_path, 0, b"") as process:
        target = trainer(process)
        targets.end(process)
        assert words(record(target, TOOLS))[0] is Reason.EXITED


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
    monkeypatch.setattr("hangdog_agent.capture.flight_recorder.recorder.MOST_BYTES", 100)
    with played(tmp_path, 0, pickled(7, 6)) as process:
        reason, said = words(ask(process))
    assert reason is Reason.TOOL_FAILED and said.endswith("longer than 100")


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
    (root / "a" / "b").mkdir()
    (root / "etc").mkdir()
    (root / "etc" / "passwd").touch()
    (root / "a" / "magic").symlink_to("/proc/self/root")
    (root / "proc").mkdir()
    handle = os.open(root, os.O_PATH)
    try:
        for path, leads_to in (("/a/up", "etc/passwd"), ("/a/absolute", "a/b"), ("../a/./b", "a/b")):
            found = syscalls.open_inside(handle, path, os.O_PATH)
            assert os.path.samestat(os.fstat(found), (root / leads_to).stat())
            os.close(found)
        for path in ("/none/such", "/a/loop", "/a/magic"):
            with pytest.raises(OSError, match=r"No such file|Too many levels"):
                syscalls.open_inside(handle, path, os.O_PATH)
    finally:
        os.close(handle)


def test_links_of_proc_to_other_processes_are_not_followed() -> None:
    handle = os.open("/", os.O_PATH)
    try:
        with pytest.raises(OSError, match="Too many levels"):
            syscalls.open_inside(handle, f"/proc/{os.getpid()}/root/etc/passwd", os.O_PATH)
    finally:
        os.close(handle)
