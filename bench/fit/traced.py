"""Numbers that remember which rows of the table of likelihoods they were made of, and how much each moves them."""

from collections.abc import Mapping
from dataclasses import replace
from math import log
from typing import Self, TypeAlias

from hangdog_models.rules.likelihoods import Likelihood

#: A number of the table: its row, and its cause where the row has several.
Row: TypeAlias = str
_Plain: TypeAlias = float | int
_NONE: Mapping[Row, float] = {}


class Traced(float):
    """A number and, for each row that it was made of, the derivative of its logarithm by the logarithm of the row.

    The diagnosis multiplies, divides, adds and raises to powers; it compares, too. A comparison has no derivative: a row
    that decides where to cut and multiplies nothing leaves no trace.
    """

    moved_by: Mapping[Row, float]

    def __new__(cls, value: float, moved_by: Mapping[Row, float] = _NONE) -> Self:
        made = super().__new__(cls, value)
        made.moved_by = moved_by
        return made

    def __mul__(self, other: _Plain) -> "Traced":
        return Traced(float(self) * float(other), _sum(self, other, 1.0, 1.0))

    __rmul__ = __mul__

    def __truediv__(self, other: _Plain) -> "Traced":
        return Traced(float(self) / float(other), _sum(self, other, 1.0, -1.0))

    def __rtruediv__(self, other: _Plain) -> "Traced":
        return Traced(float(other) / float(self), _sum(other, self, 1.0, -1.0))

    def __add__(self, other: _Plain) -> "Traced":
        return _added(float(self) + float(other), self, other, 1.0)

    __radd__ = __add__

    def __sub__(self, other: _Plain) -> "Traced":
        return _added(float(self) - float(other), self, other, -1.0)

    def __rsub__(self, other: _Plain) -> "Traced":
        return _added(float(other) - float(self), other, self, -1.0)

    def __pow__(self, other: _Plain, modulo: None = None) -> "Traced":
        return _raised(self, other)

    def __rpow__(self, other: _Plain, modulo: None = None) -> "Traced":
        return _raised(other, self)

    def __neg__(self) -> "Traced":
        return Traced(-float(self), self.moved_by)

    def __reduce__(self) -> tuple[type["Traced"], tuple[float, Mapping[Row, float]]]:
        return Traced, (float(self), self.moved_by)


def moved_by(number: float) -> Mapping[Row, float]:
    """The rows that move a number; none, where it was not made of any."""
    return number.moved_by if isinstance(number, Traced) else _NONE


def traced(rows: Mapping[str, Likelihood]) -> Mapping[str, Likelihood]:
    """The same table, of numbers that remember their rows."""
    return {
        name: replace(
            row,
            value={cause: Traced(value, {f"{name}.{cause}": 1.0}) for cause, value in row.value.items()}
            if isinstance(row.value, Mapping)
            else Traced(row.value, {name: 1.0}),
        )
        for name, row in rows.items()
    }


def _sum(left: _Plain, right: _Plain, of_left: float, of_right: float) -> Mapping[Row, float]:
    """The derivatives of two numbers, each times a number, together."""
    a, b = moved_by(left), moved_by(right)
    if not b and of_left == 1.0:
        return a
    if not a and of_right == 1.0:
        return b
    found = {row: of_left * by for row, by in a.items()}
    for row, by in b.items():
        found[row] = found.get(row, 0.0) + of_right * by
    return found


def _added(value: float, left: _Plain, right: _Plain, sign: float) -> Traced:
    if value == 0.0:
        return Traced(value)
    return Traced(value, _sum(left, right, float(left) / value, sign * float(right) / value))


def _raised(base: _Plain, exponent: _Plain) -> Traced:
    value = float(base) ** float(exponent)
    if float(base) <= 0.0:
        return Traced(value)
    return Traced(value, _sum(base, exponent, float(exponent), float(exponent) * log(float(base))))
