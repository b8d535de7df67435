"""Counts as sentences have them."""


def counted(number: int, what: str, several: str = "") -> str:
    """`1 rank`, `8 ranks`; `several` is the plural of a word that takes more than an s."""
    return f"{number} {what}" if number == 1 else f"{number} {several or f'{what}s'}"
