"""A disk that is soon full: a file system in memory, which only root may mount."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path, kib: int) -> Iterator[Path]:
    """`folder` with room for `kib` KiB while the block lasts; skips the test where nothing may be mounted."""
    folder.mkdir(exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={kib}k", "tmpfs", str(folder)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip(f"only root may mount a disk of {kib} KiB")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)
