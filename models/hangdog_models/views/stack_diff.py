"""Two stacks side by side: which calls both have, and where they part."""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from enum import StrEnum

from hangdog_models.stack import Frame
from hangdog_models.views.stack_tree import symbol

#: Frames of one stack that are compared: the cost grows with their product, and a recursion tells nothing more.
DEEPEST = 400


class Alike(StrEnum):
    """What two frames beside each other have in common."""

    SAME = "same"
    LINE = "other line"  # the same call, at another line of it
    LEFT = "left only"
    RIGHT = "right only"


@dataclass(frozen=True, slots=True)
class DiffRow:
    """Frames beside each other; one of them is None where the other stack has no such call."""

    left: Frame | None
    right: Frame | None

    @property
    def alike(self) -> Alike:
        if self.right is None:
            return Alike.LEFT
        if self.left is None:
            return Alike.RIGHT
        return Alike.SAME if self.left.line == self.right.line else Alike.LINE


def side_by_side(left: Sequence[Frame], right: Sequence[Frame]) -> tuple[DiffRow, ...]:
    """The rows from the outermost call inwards; calls are the same by function (`symbol`) and file, whatever their lines.

    Where the stacks part, those of the left come before those of the right. Both are bounded to their ends.
    """
    one, other = _ends(left), _ends(right)
    matcher = SequenceMatcher(None, [_call(frame) for frame in one], [_call(frame) for frame in other], autojunk=False)
    rows: list[DiffRow] = []
    for tag, i, to_i, j, to_j in matcher.get_opcodes():
        if tag == "equal":
            rows += [DiffRow(a, b) for a, b in zip(one[i:to_i], other[j:to_j], strict=True)]
        else:
            rows += [DiffRow(a, None) for a in one[i:to_i]] + [DiffRow(None, b) for b in other[j:to_j]]
    return tuple(rows)


def _ends(frames: Sequence[Frame]) -> Sequence[Frame]:
    if len(frames) <= DEEPEST:
        return frames
    return (*frames[: DEEPEST // 2], *frames[-DEEPEST // 2 :])


def _call(frame: Frame) -> tuple[str, str, bool]:
    return symbol(frame.function), frame.module or frame.file, frame.native
