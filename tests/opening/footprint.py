"""The table of what the agent opens, as patterns that an event either matches or not."""

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from opening.trace import Event

#: What stands in braces, beside the names of places.
_PARTS = {"n": r"\d+", "pid": r"(?:\d+|self|thread-self)", "name": r"[^/]+", "rest": r"(?:.*)"}
#: The tables of a feature that hold what is opened.
KINDS = ("reads", "writes", "links", "programs", "sockets", "calls")


@dataclass(frozen=True, slots=True)
class Feature:
    """One thing the agent does, and all it needs for it."""

    name: str
    why: str
    switch: str = ""
    rights: str = "agent"
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    sockets: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()


def features() -> tuple[Feature, ...]:
    text = resources.files("hangdog_agent").joinpath("footprint.toml").read_text("utf-8")
    tables: list[dict[str, Any]] = tomllib.loads(text)["feature"]
    return tuple(Feature(**{name: _frozen(value) for name, value in one.items()}) for one in tables)


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


class Footprint:
    """The features at certain places: for each name in braces the paths (or ports) it stands for."""

    def __init__(self, listed: Iterable[Feature], places: Mapping[str, Iterable[str]]) -> None:
        self._places = {name: tuple(paths) for name, paths in places.items()}
        self._patterns = {
            kind: [(self._pattern(text), one) for one in listed for text in getattr(one, kind)] for kind in KINDS
        }

    def of(self, event: Event) -> set[str]:
        """The features an event belongs to. What only a trainer's rights may open is no other's."""
        return {
            one.name
            for pattern, one in self._patterns[event.kind]
            if pattern.fullmatch(event.what) and (one.rights == "agent" or event.as_trainer)
        }

    def _pattern(self, text: str) -> re.Pattern[str]:
        def part(found: re.Match[str]) -> str:
            name = found[1]
            if name in _PARTS:
                return _PARTS[name]
            return "(?:" + ("|".join(re.escape(path) for path in self._places.get(name, ())) or r"(?!)") + ")"

        return re.compile("".join(
            part(found) if (found := re.fullmatch(r"\{(\w+)\}", piece)) else re.escape(piece)
            for piece in re.split(r"(\{\w+\})", text)
        ))  # fmt: skip
