"""Reads what one line of a training log tells of a step: its loss, the norm of its gradients, and its number.

Loggers agree on little but that a name stands before each number. So a line is taken apart at its numbers, and the name before
each is looked up. Work is linear in the length of the line.
"""

import re
from collections.abc import Iterator
from functools import lru_cache

from hangdog_models.numbers.wrong_number import LoggedNumber, NumberLine
from hangdog_models.ranks import MAX_RANK, Rank
from hangdog_models.reading.limits import DEFAULTS, Limits
from hangdog_models.reading.logs.log_lines import LogLine, lines_of_log
from hangdog_models.reading.numbers.number_names import comparable, packaged

#: Numbers looked at of one line: the longest metrics lines seen (verl) hold about 90.
_NUMBERS = 256
#: Characters before a number in which its name stands.
_NAME = 64
#: Names that are remembered: a log has tens, and any text that has none.
_REMEMBERED = 4096
#: Characters before the first number of a step in which the line may say whose it is.
_WHOSE = 200
#: Nothing is tried again: each part is taken whole or not at all. Lightning's bar fills numbers up to five characters: `nan.0`.
_NUMBER = re.compile(
    r"(?<![A-Za-z0-9_.])([-+]?(?:\d{1,32}+(?:\.\d{0,32}+)?+(?:[eE][-+]?\d{1,4}+)?+|nan|inf(?:inity)?+))"
    r"(?:(?<=[A-Za-z])\.0{0,2}+)?+(?!\.?[A-Za-z0-9_])",
    re.ASCII | re.IGNORECASE,
)
#: What ends the name of one number and begins the next.
_BETWEEN = re.compile(r"[|,;{}\[\]()<>]| - |\t")
#: Words of a line or a name that make it one of an evaluation.
_EVALUATION = re.compile(
    r"(?<![A-Za-z])(?:val|valid|validate|validation|validating|eval|evaluation|evaluating|test|testing|dev)(?![A-Za-z])",
    re.IGNORECASE,
)
#: The same where it stands alone, not as a part of another number's name.
_EVALUATES = re.compile(
    r"(?<![A-Za-z_/'\"-])(?:val|valid|validate|validation|validating|eval|evaluation|evaluating|test|testing|dev)(?![A-Za-z_/'\"=-])",
    re.IGNORECASE,
)
#: As `rank-7/8` of Primus, `Rank 3`, `rank=3`.
_RANK = re.compile(r"(?<![A-Za-z_])rank[ :=-]{0,2}(\d{1,7})(?!\d)", re.IGNORECASE | re.ASCII)
#: What a dynamic loss scaler says when it leaves out a step: DeepSpeed, Apex, fairseq, Megatron.
_SKIPS = ("skipping step", "ignoring gradient", "overflow")
_SCALE, _SKIPPED = "loss scale", "number of skipped iterations"
#: Any of these is in a line that says something here.
_HINTS = ("loss", "norm", "overflow")


def lines(text: str, limits: Limits = DEFAULTS) -> Iterator[NumberLine]:
    """The lines of a log that tell of numbers, in their order. Raises nothing."""
    for line in lines_of_log(text):
        if (found := read(line, limits)) is not None:
            yield found


def read(line: LogLine, limits: Limits = DEFAULTS) -> NumberLine | None:
    """What one line tells; None where it tells of no number and no scaler."""
    text = line.text[: limits.text]
    lower = text.lower()
    if not any(hint in lower for hint in _HINTS):
        return None
    names = packaged()
    suspect = any(word in lower for word in ("val", "test", "dev"))
    numbers: list[LoggedNumber] = []
    step: int | None = None
    skipped, scaled, begin, first = any(mark in lower for mark in _SKIPS) and "scal" in lower, False, 0, len(text)
    for found, _ in zip(_NUMBER.finditer(text), range(_NUMBERS), strict=False):
        known = _known(text[max(begin, found.start() - _NAME) : found.start()])
        begin = found.end()
        if not known:
            continue
        value = float(found[1])
        if known in names.quantities:
            if suspect and _EVALUATES.search(text, 0, found.start()):
                return None
            numbers.append(LoggedNumber(names.quantities[known], known, value))
            first = min(first, found.start())
        elif known in names.steps and step is None and value.is_integer():
            step = int(value)
        elif known == _SCALE:
            scaled |= value not in (0.0, 1.0)
        elif known == _SKIPPED:
            skipped |= value > 0
    if not numbers and not skipped:
        return None
    rank = line.rank if line.rank is not None else _rank(text[: min(first, _WHOSE)])
    return NumberLine(tuple(_once(numbers)), step, rank, skipped, scaled or skipped)


@lru_cache(maxsize=_REMEMBERED)
def _known(before: str) -> str:
    """The name at the end of what stands between two numbers, as the table has it; empty where it has none.

    What stands there recurs from line to line, so it is looked up once.
    """
    name = _BETWEEN.split(before.replace("tensor(", " "))[-1].strip(" \t:='\"")
    if not name or _EVALUATION.search(name):
        return ""
    names, whole = packaged(), comparable(name)
    if whole in names.quantities or whole in names.steps or whole in (_SCALE, _SKIPPED):
        return whole
    return comparable(name.rpartition(":")[2].strip(" '\"="))


def _once(numbers: list[LoggedNumber]) -> Iterator[LoggedNumber]:
    """Each name once: the first number is the step's, what follows under the same name an average or a unit."""
    seen = set()
    for one in numbers:
        if one.name not in seen:
            seen.add(one.name)
            yield one


def _rank(text: str) -> Rank | None:
    found = _RANK.search(text)
    return Rank(int(found[1])) if found and int(found[1]) <= MAX_RANK else None
