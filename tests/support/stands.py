"""Where parts of the proof on a GPU run in tests: without one."""

import sys
from pathlib import Path

from gpu.kit import Stand


def dry_stand(folder: Path) -> Stand:
    for name in ("out", "scratch"):
        (folder / name).mkdir()
    return Stand(Path(sys.executable), folder / "out", folder / "scratch", dry=True)
