"""What a user's options and files say: the ladder's limits, who holds checkpoint copies, and what falling back costs."""

import re
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from hangdog_models.errors import UnreadableEvidence, WrongUse
from hangdog_models.planning.checkpoint import MOST, Copies, Price, read_copies
from hangdog_models.recovery.settings import LadderSettings


def ladder_settings(assignments: Sequence[str]) -> LadderSettings:
    """The ladder's settings with each NAME=NUMBER in the place of its default; raises WrongUse.

    For single options msgspec is no help: its errors name neither the option nor the limits that there are.
    """
    kinds = {setting.name: type(getattr(LadderSettings(), setting.name)) for setting in fields(LadderSettings)}
    changed: dict[str, Any] = {}
    for assignment in assignments:
        name, _, value = assignment.partition("=")
        if name not in kinds or not re.fullmatch(r"\d{1,9}(\.\d{1,3})?", value):
            raise WrongUse(
                f"--ladder {assignment} is not a limit",
                f"limits are {', '.join(kinds)}; write evictions=1",
                code="wrong-setting",
            )
        changed[name] = kinds[name](float(value))
    return replace(LadderSettings(), **changed)


def read_copies_file(path: Path | None, tell: Callable[[str], None]) -> Copies | None:
    """Who holds copies of each shard, as the file says now; nobody knows where it cannot be read."""
    if path is None:
        return None
    try:
        with path.open(encoding="utf-8") as file:
            return read_copies(file.read(MOST + 1))
    except (OSError, UnicodeDecodeError, UnreadableEvidence) as error:
        tell(f"who holds copies is not known: cannot read {path}: {error}")
        return None


def checkpoint_price(path: Path | None, now: float) -> Price:
    """What falling back to the checkpoint at `path` costs, by its date; nobody knows where it is not there."""
    try:
        return Price() if path is None else Price(max(0.0, now - path.stat().st_mtime))
    except OSError:
        return Price()
