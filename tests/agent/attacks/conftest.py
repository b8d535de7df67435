"""Where the attacks take place: a folder of the attacker's own, one of root's, and a control group that root made."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from attacking.stage import Group, folder


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder of the attacker's own, to which every user finds the way."""
    with folder() as made:
        yield made


@pytest.fixture
def vault() -> Iterator[Path]:
    """A folder that only root may enter."""
    with tempfile.TemporaryDirectory(prefix="vault-") as made:
        yield Path(made)


@pytest.fixture
def group() -> Iterator[Group]:
    """It can be killed by one write to its `cgroup.kill`."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    place = next((Path(mount[1]) for mount in mounts if mount[2] == "cgroup2" and "rw" in mount[3].split(",")), None)
    if place is None:
        pytest.skip("no writable cgroup v2 is mounted")
    folder = place / f"hangdog-test-{os.getpid()}"
    folder.mkdir()
    try:
        if not (folder / "cgroup.kill").exists():
            pytest.skip("this kernel has no cgroup.kill: it came with 5.14")
        with subprocess.Popen(["sleep", "3600"]) as process:
            try:
                (folder / "cgroup.procs").write_text(str(process.pid))
                yield Group(folder, process)
            finally:
                process.kill()
    finally:
        folder.rmdir()
