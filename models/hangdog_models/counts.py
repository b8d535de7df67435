"""Counts and lists of names as sentences have them."""

from collections.abc import Collection

#: Names one line holds before it says how many more there are.
NAMED = 8


def counted(number: int, what: str, several: str = "") -> str:
    """`1 rank`, `8 ranks`; `several` is the plural of a word that takes more than an s."""
    return f"{number} {what}" if number == 1 else f"{number} {several or f'{what}s'}"


def named(names: Collection[str]) -> str:
    """Names in order, the last ones only counted when there are many."""
    listed = sorted(names)
    more = f" and {len(listed) - NAMED} more" if len(listed) > NAMED else ""
    return ", ".join(listed[:NAMED]) + more
