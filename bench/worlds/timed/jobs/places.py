"""Where the ranks of a framework can be seen, as places.toml has it, with what was drawn for one job filled in."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).resolve().parents[1] / "places.toml"

_NAMED = re.compile(r"\{(\w+)\}")


@cache
def tables() -> Mapping[str, Mapping[str, Any]]:
    """All of places.toml."""
    return tomllib.loads(FILE.read_text(encoding="utf-8"))


class Places(Mapping[str, str]):
    """The places of one job. `drawn` are the rows that no table has: the loader, the team, the schedule's frames."""

    def __init__(self, framework: str, drawn: Mapping[str, str], schedule: str = "") -> None:
        own = tables()[framework]
        self._rows = {**tables()["common"], **drawn, **{key: row for key, row in own.items() if key != "schedules"}}
        self._schedule: Mapping[str, str] = own["schedules"][schedule] if schedule else {}
        self._found: dict[tuple[str, str], str] = {}

    def __getitem__(self, name: str) -> str:
        return self._frames(name, self._rows["loader"])

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def inner(self) -> tuple[str, ...]:
        """The layers that a forward pass is seen in."""
        return tuple(self.fill(one) for one in self._rows.get("inner", ()))

    def schedule(self, name: str) -> str:
        """Frames of the pipeline's schedule."""
        return self._schedule[name]

    def point(self, point: str) -> str:
        """Where user code runs: within a step, while data is loaded, while it logs, after a step, or before the first one."""
        match point:
            case "forward":
                return self["layer"]
            case "data":
                return self._frames("data", "")
            case "log":
                return self["log"]
            case "after":
                return self["train"]
            case "init":
                return self["setup"]
        return self["step"]

    def fill(self, frames: str) -> str:
        """Frames in which rows are named, with the rows in their stead."""
        return self._fill(frames, self._rows["loader"])

    def _frames(self, name: str, loader: str) -> str:
        if (name, loader) not in self._found:
            self._found[name, loader] = self._fill(self._rows[name], loader)
        return self._found[name, loader]

    def _fill(self, frames: str, loader: str) -> str:
        rows = {**self._rows, "loader": loader, "schedule": self._schedule.get("forward", "")}
        while _NAMED.search(frames):
            frames = _NAMED.sub(lambda found: rows[found[1]], frames)
        return " ".join(frames.split())
