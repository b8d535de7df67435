"""Reads the files in which operators choose: everything that stands in one must be known, and what is misspelt is refused."""

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from hangdog_models.errors import WrongUse

#: Bytes of a file, and of a secret.
MOST, SECRET = 1 << 20, 4096


def document(path: Path, example: str) -> dict[str, Any]:
    """What a file holds; raises WrongUse, with `example` as the advice."""
    try:
        with path.open("rb") as file:
            text = file.read(MOST).decode("utf-8")
        return tomllib.loads(text)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise WrongUse(f"cannot read {path}: {error}", example) from error


def table(document: Mapping[str, Any], name: str, where: str) -> dict[str, Any]:
    """One table of it, empty where there is none; raises WrongUse where something else is called so."""
    found = document.get(name, {})
    if not isinstance(found, dict):
        raise WrongUse(f"{where}: {name} is no table", f"write [{name}] and a setting a line below it")
    return found


def only(table: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    """Raises WrongUse where something is set that is not known."""
    known = set(known)
    if unknown := sorted(set(table) - known):
        named = ", ".join(sorted(known)) or "nothing"
        raise WrongUse(f"{where}: {', '.join(unknown)} is no setting", f"known: {named}")


class TomlTable:
    """One table, from which everything that was said must be taken; all of it raises WrongUse."""

    def __init__(self, where: str, table: Mapping[str, Any], example: str) -> None:
        self.where = where
        self._table = dict(table)
        self._example = example

    def take(self, key: str, default: str | None = None) -> str:
        """A text."""
        value = self._table.pop(key, default)
        if not isinstance(value, str) or (default is None and not value):
            raise WrongUse(f"{self.where}: {key} needs a text value", self._example)
        return value

    def yes(self, key: str, default: bool) -> bool:
        """Yes or no."""
        value = self._table.pop(key, default)
        if not isinstance(value, bool):
            raise WrongUse(f"{self.where}: {key} = {value!r} is neither true nor false", self._example)
        return value

    def number(self, key: str, default: int) -> int:
        """How many, one at least."""
        value = self._table.pop(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise WrongUse(f"{self.where}: {key} = {value!r} is not a whole number from 1 on", "give one, such as 5")
        return value

    def names(self, key: str, known: Iterable[str]) -> tuple[str, ...]:
        """Some of the known names, all of them without a word."""
        known = tuple(known)
        value = self._table.pop(key, list(known))
        if not isinstance(value, list) or not value or not all(one in known for one in value):
            raise WrongUse(
                f"{self.where}: {key} = {value!r} is not a list of known names", f"give a list of {', '.join(known)}"
            )
        return tuple(dict.fromkeys(value))

    def secret(self, key: str) -> bytes:
        """What a file holds; the settings themselves are no place for it."""
        file = self.take(key)
        try:
            with Path(file).open("rb") as opened:
                return opened.read(SECRET).strip()
        except OSError as error:
            raise WrongUse(
                f"{self.where}: cannot read {file}: {error.strerror}", "give a file that holds it"
            ) from error

    def end(self) -> None:
        """Raises WrongUse where something was said that nobody took."""
        only(self._table, (), self.where)
