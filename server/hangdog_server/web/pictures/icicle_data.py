"""The boxes of an icicle as the compact JSON that the page's script draws from."""

from collections.abc import Iterable
from typing import Any

from hangdog_models.ranks import size
from hangdog_models.reading.printable import printable
from hangdog_models.views.pictures.icicle import Box
from hangdog_models.views.stack_tree import Call
from hangdog_server.web.render import runs

#: Characters of a name; the longest honest ones are C++ symbols, whose head tells all.
NAME = 200


def icicle_data(boxes: Iterable[Box]) -> dict[str, Any]:
    """Each name once; a box is its caller's, its ranks, whether a suspect is inside (2: alone), its library, its calls and its rank set."""
    names: dict[Call, int] = {}
    drawn = [
        [
            box.parent,
            size(box.ranks),
            box.suspect + box.alone,
            printable(box.library, NAME),
            [names.setdefault(call, len(names)) for call in box.calls],
            runs(box.ranks),
        ]
        for box in boxes
    ]
    return {"names": [_name(call) for call in names], "boxes": drawn}


def _name(call: Call) -> list[Any]:
    stated: list[Any] = [printable(call.function, NAME), printable(call.file, NAME)]
    return [*stated, 1] if call.native else stated
