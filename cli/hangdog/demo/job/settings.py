"""Settings that may be changed while the job runs: each rank reads its own small file before every step."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar


@dataclass(frozen=True, slots=True)
class LiveSettings:
    """`report_every`, `save_every` in steps; `journal_backlog` in entries; `keep_samples` in past samples kept in memory."""

    report_every: int = 2
    save_every: int = 5
    journal_backlog: int = 1000
    keep_samples: int = 0


Known = TypeVar("Known", bound=LiveSettings)


def read_settings(path: Path, kind: type[Known]) -> Known:
    """The settings in `path`, which are those of `kind`; the defaults where there is no such file."""
    try:
        changed: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        changed = {}
    return kind(**changed)


def write_settings(path: Path, settings: dict[str, int]) -> None:
    """Replaces the file in one move, so that a rank never reads half of it."""
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(settings))
    fresh.replace(path)
