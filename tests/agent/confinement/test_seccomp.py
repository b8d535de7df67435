"""What the agent, its tools and its readers of files may not do: tried for real, in processes that have the filters."""

import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hangdog_agent.confinement import seccomp
from hangdog_agent.confinement.seccomp import AGENT, NUMBERS, READER, ForbiddenCall, program

#: Tries calls by name in a process with a filter, and prints the error of each; 0 where it went through.
TRY = """
import ctypes, errno, json, os, socket, sys
from hangdog_agent.confinement import seccomp, syscalls
which, folder = sys.argv[1], sys.argv[2]
os.chdir(folder)
open("file", "w").close()
syscalls.no_new_privileges()
libc = ctypes.CDLL(None, use_errno=True)
assert seccomp.install(getattr(seccomp, which))
def error(call):
    try:
        call()
    except OSError as failed:
        return failed.errno
    return 0
def raw(name, *given):
    def call():
        if libc.syscall(ctypes.c_long(seccomp.NUMBERS[name][0]), *map(ctypes.c_long, given)) < 0:
            raise OSError(ctypes.get_errno(), name)
    return call
tries = {
    "mount": raw("mount", 0, 0, 0, 0, 0), "unshare": raw("unshare", 0), "bpf": raw("bpf", 99, 0, 0),
    "poke": raw("ptrace", 4, 0, 0, 0), "peek": raw("ptrace", 1, 1 << 22, 0, 0), "setns mount": raw("setns", 0, 0x20000),
    "setns network": raw("setns", -1, 0x40000000), "writev": raw("process_vm_writev", 0, 0, 0, 0, 0, 0),
    "read": lambda: os.close(os.open("file", os.O_RDONLY)), "write": lambda: os.close(os.open("file", os.O_WRONLY)),
    "create": lambda: os.close(os.open("new", os.O_WRONLY | os.O_CREAT)), "rename": lambda: os.rename("file", "file"),
    "unlink": lambda: os.unlink("none"), "chmod": lambda: os.chmod("file", 0o600), "kill": lambda: os.kill(os.getpid(), 0),
    "inet": lambda: socket.socket(socket.AF_INET).close(), "unix": lambda: socket.socket(socket.AF_UNIX).close(),
    "run": lambda: os.execv("/no/such/program", ["none"]),
}
print(json.dumps({name: error(call) for name, call in tries.items()}))
"""
EPERM = 1


def tried(which: str, folder: Path) -> dict[str, int]:
    done = subprocess.run((sys.executable, "-c", TRY, which, str(folder)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answer: dict[str, int] = json.loads(done.stdout)
    return answer


pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers tried are those of x86_64")


def test_the_agent_changes_nothing_of_the_machine_nor_of_a_trainer(tmp_path: Path) -> None:
    errors = tried("AGENT", tmp_path)
    for name in ("mount", "unshare", "bpf", "poke", "setns mount", "writev"):
        assert errors.pop(name) == EPERM, name
    assert EPERM not in errors.values(), errors


def test_a_reader_of_files_reads_and_does_nothing_else(tmp_path: Path) -> None:
    errors = tried("READER", tmp_path)
    allowed = {name: errors.pop(name) for name in ("read", "write", "unix")}
    assert set(allowed.values()) == {0}, "a pipe is written to, and that must be there"
    assert set(errors.values()) == {EPERM}, errors


def test_numbers_are_those_of_the_kernel_s_headers() -> None:
    header = Path("/usr/include/asm-generic/unistd.h")
    if not header.exists():
        pytest.skip("no kernel headers: apt-get install linux-libc-dev")
    native = subprocess.run(
        ("gcc", "-E", "-dM", "-include", "asm/unistd.h", "-x", "c", "/dev/null"),
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for text, column in ((native, 0), (header.read_text(), 1)):
        told = {name: int(number) for name, number in re.findall(r"#define __NR_(\w+) (\d+)\n", text)}
        told |= {name: int(number) for name, number in re.findall(r"#define __NR3264_(\w+) (\d+)\n", text)}
        known = {name: numbers[column] for name, numbers in NUMBERS.items() if name in told}
        assert len(known) > 70
        assert {name: told[name] for name in known} == known


def test_a_machine_without_numbers_has_no_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    there = os.uname()
    monkeypatch.setattr(os, "uname", lambda: os.uname_result((*there[:4], "riscv64")))
    assert not seccomp.install(READER)


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_every_jump_of_a_filter_stays_within_it(machine: str) -> None:
    for forbidden in (AGENT, READER, (ForbiddenCall("openat", 2, bits=2),)):
        made = program(forbidden, machine)
        assert len(made) < 4096, "the kernel takes no more"
        for at, (code, yes, no, _) in enumerate(made):
            assert code & 7 != 5 or max(at + 1 + yes, at + 1 + no) < len(made)
