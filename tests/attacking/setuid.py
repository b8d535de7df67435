"""Programs that run as root whoever starts them, for an attacker to turn into: as sudo is, which waits for a password."""

import os
import shutil
from pathlib import Path

import pytest

from attacking.stage import UID, Attacker
from support.fakes import targets

#: Becomes root for good before it asks whether it may, as sudo does.
_WHOLLY = """
#define _GNU_SOURCE
#include <unistd.h>
int main(void) { setresuid(0, 0, 0); for (;;) pause(); }
"""


def setuid(home: Path, scratch: Path, *, wholly: bool) -> Path:
    """A setuid program of root's that never ends, in the attacker's folder; `wholly` has it leave no other user id."""
    if os.statvfs(home).f_flag & os.ST_NOSUID:
        pytest.skip("no setuid programs on this file system")
    given = targets.program(scratch, "waits", _WHOLLY) if wholly else Path("/bin/sleep")
    if given is None:
        pytest.skip("no C compiler: apt-get install gcc")
    program = home / "waits"
    shutil.copy(given, program)
    program.chmod(0o4755)
    return program


def become_setuid(attacker: Attacker, *, wholly: bool) -> None:
    """Tells an attacker to become that program, and returns once it has."""
    assert attacker.process.stdin is not None
    attacker.process.stdin.write(b"x")
    attacker.process.stdin.flush()
    uids = "0\t0\t0\t0" if wholly else f"{UID}\t0\t0\t0"
    status = Path(f"/proc/{attacker.process.pid}/status")
    targets.until(lambda: f"\nUid:\t{uids}\n" in status.read_text())
