"""The names of the usual loggers for a step's loss, gradient norm and number: dated knowledge in TOML."""

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources

from hangdog_models.errors import OurFault
from hangdog_models.numbers.wrong_number import Quantity

_BLANKS = re.compile(r"[\s_-]+")


@dataclass(frozen=True, slots=True)
class NumberNames:
    """What each name stands for; `loggers` names those it is known from."""

    name: str
    quantities: dict[str, Quantity]
    steps: frozenset[str]
    loggers: tuple[str, ...]


def comparable(name: str) -> str:
    """A name as it is compared."""
    return _BLANKS.sub(" ", name).strip().lower()


@cache
def packaged() -> NumberNames:
    """The table of this release."""
    return parse(resources.files(__package__ or "").joinpath("number_names.toml").read_text(encoding="utf-8"))


def parse(text: str) -> NumberNames:
    """Reads the text of a table; raises OurFault where a row says something that cannot be meant."""
    try:
        document = tomllib.loads(text)
        quantities: dict[str, Quantity] = {}
        steps: set[str] = set()
        for row in document["logger"]:
            quantities |= dict.fromkeys(map(comparable, row["loss"]), Quantity.LOSS)
            quantities |= dict.fromkeys(map(comparable, row["grad_norm"]), Quantity.GRAD_NORM)
            steps |= set(map(comparable, row["step"]))
        loggers = tuple(f"{row['name']} ({row['version']}): {row['source']}" for row in document["logger"])
        return NumberNames(document["name"], quantities, frozenset(steps), loggers)
    except (KeyError, TypeError, ValueError) as error:
        raise OurFault(f"the table of names of numbers is wrong: {error}", code="damaged-rules") from error
