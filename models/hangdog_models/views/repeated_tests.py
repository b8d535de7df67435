"""Tests of a machine that say the same at the same time, told once."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Protocol, TypeVar


class Dated(Protocol):
    """A frozen dataclass of something that was at `at` (Unix seconds)."""

    @property
    def at(self) -> float: ...


One = TypeVar("One", bound=Dated)


def alike(tests: Iterable[One]) -> list[tuple[One, int]]:
    """Each test once, with how many of the same second say the same: a campaign launches a test that failed once more."""
    return list(Counter(replace(one, at=float(int(one.at))) for one in tests).items())  # type: ignore[type-var]  # no protocol tells dataclasses


def times(many: int) -> str:
    """What stands before something that is told once; nothing where it came but once."""
    return f"{many} x " if many > 1 else ""
