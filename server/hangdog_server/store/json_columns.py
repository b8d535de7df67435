"""Writes and reads the JSON columns of the store: what is remembered of a large incident is megabytes.

msgspec does so in a fifth of the time of the standard library, which is left what the former refuses: lone surrogates, which
come from foreign evidence, and texts of older stores with numbers that are none.
"""

import json
import math
from typing import Any

import msgspec
import sqlalchemy as sa

from hangdog_models.errors import OurFault


class NoNumber(sa.exc.DontWrapMixin, OurFault):
    """A number is none, and no engine would give it back as it was; whatever was to be stored is not."""


def write(value: object) -> str:
    """The JSON text of a value; raises NoNumber, saying where, on a float that JSON has no word for: what we take in has none."""
    try:
        text = msgspec.json.encode(value).decode()
    except (UnicodeEncodeError, msgspec.MsgspecError, TypeError):
        text = json.dumps(value)
    # msgspec writes null for such a number, and the standard library what is no JSON: most texts need not be looked through
    if ("null" in text or "NaN" in text or "Infinity" in text) and (odd := _odd(value, "")):
        raise NoNumber(
            f"the store takes only finite numbers: {odd}", "this is a bug in hangdog: it was let in", code="bug"
        )
    return text


def read(text: str | bytes) -> Any:
    """The value of a JSON text; raises ValueError when it is none."""
    try:
        return msgspec.json.decode(text)
    except msgspec.MsgspecError:
        return json.loads(text)


def _odd(value: object, where: str) -> str:
    """The first float of a value that is no number, as `patience_s is nan`; empty where all are."""
    if isinstance(value, float):
        return "" if math.isfinite(value) else f"{where.removeprefix('.') or 'it'} is {value}"
    if isinstance(value, dict):
        return next(filter(None, (_odd(part, f"{where}.{key}") for key, part in value.items())), "")
    if isinstance(value, list | tuple):
        return next(filter(None, (_odd(part, f"{where}.{at}") for at, part in enumerate(value))), "")
    return ""
