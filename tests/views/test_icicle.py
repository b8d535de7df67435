"""The icicle: each call in one box, as wide as its ranks, and what one library does inside itself in one."""

import pytest

from hangdog_models.ranks import Rank, meet, runs_of, size
from hangdog_models.stack import Frame
from hangdog_models.views.collapsed_tree import folded
from hangdog_models.views.pictures.icicle import PYTHON, Box, boxes, library
from hangdog_models.views.stack_tree import Call, merged
from support.cases.stalled import judged, stalled


def of(stacks: dict[tuple[Frame, ...], list[Rank]], *suspected: int) -> tuple[Box, ...]:
    runs = runs_of(suspected)
    return boxes(folded(merged(stacks), runs), runs)


def frames(*named: str) -> tuple[Frame, ...]:
    """`function file` each, outermost first."""
    return tuple(Frame(function, file, 1) for function, file in (one.split() for one in named))


@pytest.mark.parametrize(
    ("file", "native", "whose"),
    [
        ("torch/utils/data/dataloader.py", False, "torch"),
        ("/opt/env/lib/python3.11/site-packages/torch/nn/modules/module.py", False, "torch"),
        ("/opt/env/lib/python3.12/site-packages/einops.py", False, "einops"),
        ("/usr/lib/python3/dist-packages/yaml/loader.py", False, "yaml"),
        ("/usr/lib/python3.11/threading.py", False, PYTHON),
        ("<frozen runpy>", False, PYTHON),
        ("queue.py", False, PYTHON),
        ("multiprocessing/connection.py", False, PYTHON),
        ("/usr/lib/x86_64-linux-gnu/libc.so.6", True, "libc.so.6"),
        ("train.py", False, ""),
        ("/opt/megatron-fork/train.py", False, ""),
        ("torch.py", False, ""),
        ("ourmodel/layers.py", False, ""),
    ],
)
def test_whose_code_a_call_is(file: str, native: bool, whose: str) -> None:
    assert library(Call("f", file, native)) == whose


def test_frames_of_one_library_are_one_box_and_the_own_ones_are_not() -> None:
    stack = frames("main train.py", "step train.py", "get queue.py", "wait threading.py", "all_reduce torch/c10d.py")
    found = of({stack: [Rank(0), Rank(1)]})
    assert [([call.function for call in box.calls], box.library) for box in found] == [
        (["main"], ""), (["step"], ""), (["get", "wait"], PYTHON), (["all_reduce"], "torch"),
    ]  # fmt: skip
    assert [box.parent for box in found] == [-1, 0, 1, 2]


def test_a_box_hangs_below_its_caller_and_shares_its_ranks() -> None:
    one, other = frames("main train.py", "load loader.py"), frames("main train.py", "sync sync.py", "wait sync.py")
    found = of({one: [Rank(3)], other: [Rank(0), Rank(1), Rank(2)]}, 3)
    named = {box.calls[0].function: box for box in found}
    assert found[named["load"].parent] is found[named["sync"].parent] is named["main"]
    assert found[named["wait"].parent] is named["sync"]
    assert [named[name].suspect for name in ("main", "load", "sync")] == [True, True, False]
    assert [named[name].alone for name in ("main", "load", "sync")] == [False, True, False]


def test_a_real_shape_loses_no_call_and_no_rank() -> None:
    verdict, scene = judged(*stalled(64))
    suspected = runs_of(rank for one in verdict.suspects for rank in one.ranks)
    branches = folded(scene.tree, suspected)
    found = boxes(branches, suspected)
    assert [call for box in found for call in box.calls] == [call for one in branches for call in one.calls]
    for at, box in enumerate(found):
        below = [one for one in found if one.parent == at]
        assert sum(size(one.ranks) for one in below) <= size(box.ranks)
        assert box.suspect == meet(suspected, box.ranks)
    (_,) = [box for box in found if box.library == "torch" and box.alone]
