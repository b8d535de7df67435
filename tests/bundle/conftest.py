"""What the bundle tests share: a directory to fill with evidence, the way somebody on call would make it."""

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def fill(tmp_path: Path) -> Callable[[dict[str, bytes]], Path]:
    """Writes files into a fresh bundle directory and returns it; calling it again adds to the same one."""
    root = tmp_path / "bundle"
    root.mkdir()

    def put(files: dict[str, bytes]) -> Path:
        for path, data in files.items():
            file = root / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
        return root

    return put
