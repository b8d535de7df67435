"""Counts and lists of names for sentences."""

from collections.abc import Collection

#: Names in one line; more are only counted.
NAMED = 8


def counted(number: int, what: str, several: str = "") -> str:
    """`1 rank`, `8 ranks`; `several` is an irregular plural."""
    return f"{number} {what}" if number == 1 else f"{number} {several or f'{what}s'}"


def named(names: Collection[str]) -> str:
    """Names in order; if they are many, the last ones are only counted."""
    listed = sorted(names)
    more = f" and {len(listed) - NAMED} more" if len(listed) > NAMED else ""
    return ", ".join(listed[:NAMED]) + more
