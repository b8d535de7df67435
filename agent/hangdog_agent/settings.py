"""What may be tuned in the agent, with the reason of each default.

The options are single NAME=VALUE pairs. msgspec could only read their numbers, and would suggest no similar name.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from typing import Any

from hangdog_agent.capture.settings import CaptureSettings
from hangdog_agent.checks.settings import CheckSettings
from hangdog_agent.connection.settings import LinkSettings, SpoolSettings
from hangdog_agent.machine_tests.settings import LevelSettings, RemoteTestSettings
from hangdog_agent.stalls.settings import StallSettings
from hangdog_models.errors import WrongUse
from hangdog_models.numbers.number_watch import NumberThresholds

#: How a setting of the levels themselves is named, which are those of `hangdog test`: `diagnose.memory_bytes`.
LEVELS = "diagnose."


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """All of them; their names are unique among all parts but `levels`, whose names begin with LEVELS."""

    capture: CaptureSettings = field(default_factory=CaptureSettings)
    link: LinkSettings = field(default_factory=LinkSettings)
    stalls: StallSettings = field(default_factory=StallSettings)
    numbers: NumberThresholds = field(default_factory=NumberThresholds)
    spool: SpoolSettings = field(default_factory=SpoolSettings)
    checks: CheckSettings = field(default_factory=CheckSettings)
    remote_tests: RemoteTestSettings = field(default_factory=RemoteTestSettings)
    levels: LevelSettings = field(default_factory=LevelSettings)


def chosen(assignments: Iterable[str]) -> AgentSettings:
    """The settings with each `NAME=VALUE` in the place of its default; raises WrongUse. Values are numbers, 0 or more."""
    settings = AgentSettings()
    parts = {
        (LEVELS if part.name == "levels" else "") + setting.name: (part.name, setting.name)
        for part in fields(settings)
        for setting in fields(getattr(settings, part.name))
    }
    for assignment in assignments:
        name, _, value = assignment.partition("=")
        if name not in parts:
            near = " or ".join(get_close_matches(name, parts))
            raise WrongUse(
                f"{name!r} is no setting",
                f"{f'is it {near}? ' if near else ''}docs/agent.md has all of them",
                code="unknown-setting",
            )
        of, own = parts[name]
        part = getattr(settings, of)
        whole = not isinstance(getattr(part, own), float)
        number = _number(value, whole=whole)
        if number is None:
            raise WrongUse(
                f"{assignment!r} needs a number, 0 or more", f"write it as {name}=NUMBER", code="wrong-setting"
            )
        change: dict[str, Any] = {own: number}
        settings = replace(settings, **{of: replace(part, **change)})
    return settings


def _number(text: str, whole: bool) -> float | None:
    try:
        number = int(text) if whole else float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None
