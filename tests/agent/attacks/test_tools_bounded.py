"""The tools that look into a trainer are bounded: in memory, CPU time and what they write, with no new rights, under a filter."""

import contextlib
import os
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from attacking.stage import BRIEF
from attacking.tools_seen import Tools as Seen
from hangdog_agent.capture import native_stacks
from hangdog_agent.capture.flight_recorder.recorder import record
from hangdog_agent.capture.process_capture import Tools, look
from hangdog_models.stack import Missing
from support.fakes import targets
from support.fakes.dumper import pickled, played
from support.fakes.recorder_asked import trainer

#: More address space than any tool needs: a native py-spy of a process with libtorch takes some GiB.
MOST_BYTES = 64 << 30
#: Far beyond it, and nothing on the disk: the file is sparse.
HUGE = 1 << 40
#: A symbol is so many bytes in a section header table's SHT_SYMTAB.
SYMBOL, SYMTAB = 24, 2
WAIT = """
import mmap, os, sys
if len(sys.argv) > 1:
    file = os.open(sys.argv[1], os.O_RDONLY)
    kept = mmap.mmap(file, 1 << 16, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC)
os.write(1, b"ready\\n")
os.read(0, 1)
"""


def until() -> float:
    return time.monotonic() + 15.0


#: So often at most a tool is started until it is seen.
LOOKS = 10


@contextlib.contextmanager
def running(*command: str | Path) -> Iterator["subprocess.Popen[bytes]"]:
    environ = os.environ | {"PYTHONHOME": sys.base_prefix}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            yield process
        finally:
            process.kill()


def swollen(program: Path) -> None:
    """Makes a program of this Python whose table of symbols is longer than any memory, and lies in a hole of the file."""
    shutil.copy(os.path.realpath(sys.executable), program)
    content = program.read_bytes()
    (table,) = struct.unpack_from("<Q", content, 0x28)
    size, count, names = struct.unpack_from("<HHH", content, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", content, table + size * number) for number in range(count)]

    def called(number: int) -> bytes:
        start = sections[names][4] + sections[number][0]
        return content[start : content.index(b"\0", start)]

    numbers = {called(number): number for number in range(count)}
    spare = numbers.get(b".comment", numbers.get(b".gnu_debuglink"))
    assert spare is not None, "a section that nobody needs"
    start = -(-len(content) // 4096) * 4096
    header = (sections[spare][0], SYMTAB, 0, 0, start, HUGE // SYMBOL * SYMBOL, numbers[b".dynstr"], 0, 8, SYMBOL)
    with program.open("r+b") as file:
        file.seek(table + size * spare)
        file.write(struct.pack("<IIQQQQIIQQ", *header))
        file.truncate(start + HUGE)


def test_py_spy_is_bounded(tools: Tools) -> None:
    with targets.running(targets.WAIT) as process, Seen(process.pid) as seen:
        assert seen.sampled("dump", lambda: look(targets.row(process), tools, until())).threads
    assert seen.named("dump")
    for tool in seen.named("dump"):
        assert tool.bounded(), tool


def test_a_native_py_spy_is_bounded(tools: Tools) -> None:
    with targets.running(targets.WAIT) as process, Seen(process.pid) as seen:
        for _ in range(LOOKS):  # it lasts for milliseconds, and on a busy machine whoever watches may miss one
            native_stacks.look(targets.row(process), tools)
            if seen.named("--native"):
                break
    assert seen.named("--native")
    for tool in seen.named("--native"):
        assert tool.bounded(), tool


def asking(tools: Tools, folder: Path) -> Seen:
    """What runs while a trainer's flight record is asked for.

    The trainer is found before: to find one, processes in uninterruptible sleep are read by a tool of its own, and tests
    that run beside this one have such.
    """
    with played(folder, 0, pickled(7, 6), "late") as process:
        member = trainer(process)
        with Seen(process.pid) as seen:
            assert record(member, tools, replace(BRIEF, dump_s=8.0)).data
    return seen


def test_whoever_asks_for_a_flight_record_is_bounded(tools: Tools, tmp_path: Path) -> None:
    seen = asking(tools, tmp_path)
    assert seen.all()
    for tool in seen.all():
        assert tool.bounded(), tool


@pytest.mark.skipif(not Path("/proc/sys/kernel/seccomp").exists(), reason="this kernel has no seccomp")
def test_a_filter_of_system_calls_stands_before_what_reads_a_trainer_s_bytes(tools: Tools, tmp_path: Path) -> None:
    """2: seccomp's filter mode. Tools may have theirs from the agent itself."""
    seen = asking(tools, tmp_path)
    environ = {"HANGDOG_TEST_FILTER": str(os.getpid()), "RANK": "0"}
    match = "=".join(next(iter(environ.items())))
    command = [sys.executable, "-m", "hangdog_agent.main", "--once", "--match-env", match]
    with targets.running(targets.WAIT, environ=environ) as process, Seen(process.pid) as below:
        below.sampled("dump", lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=60))
    dumps = below.named("dump")
    assert seen.all() and dumps
    assert {tool.seccomp for tool in (*seen.all(), *dumps)} == {2}, (seen.all(), dumps)


@pytest.mark.skipif(
    sys.maxsize < 1 << 32 or sys.byteorder != "little", reason="the program is made as ELF64, little endian"
)
def test_a_program_with_more_symbols_than_memory(tools: Tools, tmp_path: Path) -> None:
    program = tmp_path / "python"
    swollen(program)
    with running(program, "-c", WAIT) as process, Seen(process.pid) as seen:
        told = seen.sampled("dump", lambda: look(targets.row(process), tools, until()))
    assert told.threads or told.missing is not None
    assert seen.named("dump")
    assert max(tool.most_bytes for tool in seen.named("dump")) < MOST_BYTES


@pytest.mark.parametrize("content", [b"", b"\x7fELF\x02\x01\x01" + b"\xff" * 4000])
def test_a_library_that_is_huge_and_no_library(tools: Tools, tmp_path: Path, content: bytes) -> None:
    library = tmp_path / "libpython3.11.so.1.0"
    library.write_bytes(content)
    os.truncate(library, HUGE)
    with running(os.path.realpath(sys.executable), "-c", WAIT, library) as process, Seen(process.pid) as seen:
        told = seen.sampled("dump", lambda: look(targets.row(process), tools, until()))
        deep = native_stacks.look(targets.row(process), tools)
    assert told.missing is not None or told.threads
    assert deep.missing is not None or deep.threads
    assert max(tool.most_bytes for tool in seen.named("dump")) < MOST_BYTES


def test_a_program_that_is_gone_and_one_that_is_another_s(tools: Tools, tmp_path: Path) -> None:
    """Its file is unlinked and another of that name takes its place: py-spy reads that, and says that it is none."""
    program = tmp_path / "python"
    shutil.copy(os.path.realpath(sys.executable), program)
    with running(program, "-c", WAIT) as process:
        program.unlink()
        program.write_bytes(b"\x7fELF" + b"\0" * 100)
        told = look(targets.row(process), tools, until())
    assert isinstance(told.missing, Missing) or told.threads
