"""The stacks of all ranks for other tools: collapsed stacks (Gregg's FlameGraph, any flame graph viewer) and speedscope."""

from collections.abc import Iterator

from hangdog_models.ranks import Rank
from hangdog_models.reading.printable import printable
from hangdog_models.stack import Frame
from hangdog_models.views.unique_stacks import Kinds

#: Characters of a frame's name; C++ symbols reach thousands and tell nothing beyond their head.
NAME = 200
#: Frames of all stacks together that are written; what these viewers show of more is no picture.
MOST = 200_000


def collapsed(kinds: Kinds, most: int = MOST) -> str:
    """One line for each stack of a trainer's main thread, outermost first, with how many ranks stand there."""
    lines: dict[str, int] = {}
    for frames, ranks in _weighty(kinds, most):
        line = ";".join(_written(frame) for frame in frames)
        lines[line] = lines.get(line, 0) + len(ranks)
    return "".join(f"{line} {count}\n" for line, count in lines.items())


def speedscope(kinds: Kinds, name: str, most: int = MOST) -> dict[str, object]:
    """The same as a file of speedscope: each stack a sample as heavy as its ranks are many."""
    numbers: dict[Frame, int] = {}
    samples: list[list[int]] = []
    weights: list[int] = []
    for frames, ranks in _weighty(kinds, most):
        samples.append([numbers.setdefault(frame, len(numbers)) for frame in frames])
        weights.append(len(ranks))
    frames_stated = [
        {"name": printable(frame.function, NAME), "file": printable(frame.module or frame.file, NAME)}
        | ({"line": frame.line} if frame.line else {})
        for frame in numbers
    ]
    profile = {
        "type": "sampled",
        "name": f"{printable(name, NAME) or 'job'}: ranks by where they stand",
        "unit": "none",
        "startValue": 0,
        "endValue": sum(weights),
        "samples": samples,
        "weights": weights,
    }
    schema = "https://www.speedscope.app/file-format-schema.json"
    return {"$schema": schema, "shared": {"frames": frames_stated}, "profiles": [profile], "exporter": "hangdog"}


def _weighty(kinds: Kinds, most: int) -> Iterator[tuple[tuple[Frame, ...], list[Rank]]]:
    """The stacks with most ranks first, as many as hold `most` frames."""
    left = most
    for frames, ranks in sorted(kinds.trainers().items(), key=lambda one: (-len(one[1]), min(one[1]))):
        left -= len(frames)
        if left < 0:
            return
        yield frames, ranks


def _written(frame: Frame) -> str:
    """A frame in one line without what parts frames: the format has no escape for a semicolon."""
    return f"{printable(frame.function, NAME)} ({printable(frame.module or frame.file, NAME)})".replace(";", ",")
