"""Reads settings from TOML files: a wrong value or an unknown key is refused, with its path in the file and what is allowed."""

import re
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import inspect

from hangdog_models.errors import WrongUse

#: Bytes of a file, and of a secret.
MOST, SECRET = 1 << 20, 4096
#: A text that is not empty.
Text = Annotated[str, msgspec.Meta(min_length=1)]

_UNKNOWN = "Object contains unknown field"
#: A key of a path, or the place of an element: `.actors[0]`.
_STEP = re.compile(r"\[[^\]]*\]|[^.\[]+")
_Table = TypeVar("_Table", bound="SettingsTable")


class SettingsTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table of settings. An unknown key is an error: a misspelt bound must not be ignored."""


def document(path: Path, hint: str) -> dict[str, Any]:
    """The tables of a file; raises WrongUse if it cannot be read."""
    try:
        with path.open("rb") as file:
            return msgspec.toml.decode(file.read(MOST), type=dict[str, Any])
    except (OSError, UnicodeDecodeError, msgspec.DecodeError) as error:
        what = error.strerror if isinstance(error, OSError) else error
        raise WrongUse(f"cannot read {path}: {what}", hint, code="unreadable-file") from error


def table(found: object, kind: type[_Table], hint: str, file: Path, name: str = "") -> _Table:
    """A table of a file as a struct, the whole document if it has no name; raises WrongUse."""
    try:
        return msgspec.convert(found, kind)
    except msgspec.ValidationError as error:
        what, _, inside = str(error).partition(" - at `$")
        inside = inside.removesuffix("`")
        where, known = (name + inside).removeprefix("."), ", ".join(_allowed(kind, inside))
        what, hint = f"{file}: {f'{where}: ' if where else ''}{what}", f"known: {known}" if known else hint
        if _UNKNOWN in what:
            raise WrongUse(what, hint, code="unknown-setting") from error
        raise WrongUse(what, hint, code="wrong-setting") from error


def secret(file: str, where: str) -> bytes:
    """The content of the file that a setting names: a secret is not written into the settings. Raises WrongUse."""
    try:
        with Path(file).open("rb") as opened:
            return opened.read(SECRET).strip()
    except OSError as error:
        what = f"{where}: cannot read {file}: {error.strerror}"
        raise WrongUse(what, "give a file that contains the secret", code="unreadable-file") from error


def _allowed(kind: type, path: str) -> list[str]:
    """The keys of the table at this path, or the values of the setting there; none if any value is allowed."""
    at: Any = inspect.type_info(kind)
    for step in _STEP.findall(path):
        fields = {one.encode_name: one.type for one in getattr(at, "fields", ())}
        at = getattr(at, "item_type", None) if step.startswith("[") else fields.get(step)
    if isinstance(at, inspect.StructType):
        return [one.encode_name for one in at.fields]
    if isinstance(at, inspect.EnumType):
        return [str(one.value) for one in at.cls]
    return [str(one) for one in at.values] if isinstance(at, inspect.LiteralType) else []
