"""The nouns of a job's numbers: one that was logged, and one that went wrong."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Self

from hangdog_models.ranks import Rank

#: Numbers of a line that are shown.
_SHOWN = 8


class Quantity(StrEnum):
    """What a number measures."""

    LOSS = "loss"
    GRAD_NORM = "gradient norm"


@dataclass(frozen=True, slots=True)
class LoggedNumber:
    """One number of a log line, under the `name` that its logger gives it."""

    quantity: Quantity
    name: str
    value: float


@dataclass(frozen=True, slots=True)
class NumberLine:
    """What one log line tells of a step. `rank` and `step` are None where the line does not say.

    `skipped`: a dynamic loss scaler left this step out, which is its usual work. `scaled`: such a scaler is there.
    """

    numbers: tuple[LoggedNumber, ...] = ()
    step: int | None = None
    rank: Rank | None = None
    skipped: bool = False
    scaled: bool = False

    @property
    def text(self) -> str:
        """What was read of it, which is shown in its place: a log's own lines may hold what is nobody else's business."""
        step = [f"step {self.step}"] if self.step is not None else []
        return ", ".join([*step, *(f"{one.name} {one.value:.6g}" for one in self.numbers[:_SHOWN])])


@dataclass(frozen=True, slots=True)
class WrongNumber:
    """A number that went wrong and stayed so: `value` where about `median` is usual. `at_s` is when, on one clock for all.

    `rank` is None where a log has lines of several ranks and this one does not say whose it is. `step` is the first wrong one;
    None: not told. `sound` are ranks whose own logs had a sound number at that very step, or at a later one.
    """

    rank: Rank | None
    quantity: Quantity
    value: float
    median: float
    at_s: float
    step: int | None = None
    line: str = ""
    sound: tuple[Rank, ...] = ()

    @property
    def message(self) -> str:
        """What is wrong, for people: `the loss is NaN since step 120, where 2.31 is usual`."""
        since = f" since step {self.step}" if self.step is not None else ""
        return f"the {self.quantity} is {self.worded}{since}, where {self.median:.3g} is usual"

    @property
    def worded(self) -> str:
        """The value as people write it."""
        if math.isnan(self.value):
            return "NaN"
        return f"{self.value:.4g}" if math.isfinite(self.value) else "infinite"


@dataclass(frozen=True, slots=True)
class WrongNumbers:
    """What a job logged that is wrong, in a verdict: `what` is `value` since `step`, where `usual` is usual.

    `rank` is the one whose number was wrong before those of others; None where none was. `step`: None where no line says it.
    """

    what: str
    value: str
    usual: float
    step: int | None = None
    rank: Rank | None = None

    def to_json(self) -> dict[str, Any]:
        """As it stands in a verdict's JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """What `to_json` wrote."""
        step, rank = document["step"], document["rank"]
        return cls(
            str(document["what"]),
            str(document["value"]),
            float(document["usual"]),
            None if step is None else int(step),
            None if rank is None else Rank(int(rank)),
        )
