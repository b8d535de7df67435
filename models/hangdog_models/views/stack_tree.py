"""Merges the stacks of all ranks into one prefix tree with rank sets on its edges, as STAT does (Arnold et al., 2007)."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from hangdog_models.ranks import Rank, Runs, runs_of, size, united
from hangdog_models.stack import Frame

#: Frames of one stack that go into the tree: a recursion of thousands says nothing more with each further frame.
DEEPEST = 400


class Call(NamedTuple):
    """A frame as the tree tells it from others: by function (`symbol`) and file; lines of one function are one place."""

    function: str
    file: str
    native: bool


@dataclass(frozen=True, slots=True)
class Node:
    """One call of the tree. `parent` is its caller's place in the tree, -1 of an outermost one.

    `ranks` are all that are inside of this call, `ends` those whose stack ends with it.
    """

    call: Call
    parent: int
    depth: int
    ranks: Runs
    ends: Runs


@dataclass(slots=True)
class _Branch:
    ranks: list[Runs] = field(default_factory=list)
    ends: list[Runs] = field(default_factory=list)
    calls: dict[Call, "_Branch"] = field(default_factory=dict)


def merged(stacks: Mapping[tuple[Frame, ...], Iterable[Rank]]) -> tuple[Node, ...]:
    """The tree of these stacks, callers before what they call, of several callees that with most ranks first.

    Its cost is that of the distinct stacks: their ranks travel as runs.
    """
    root = _Branch()
    for frames, ranks in stacks.items():
        runs = runs_of(ranks)
        branch = root
        for call in path(frames):
            branch = branch.calls.setdefault(call, _Branch())
            branch.ranks.append(runs)
        if branch is not root:
            branch.ends.append(runs)
    return tuple(_nodes(root))


def path(frames: tuple[Frame, ...]) -> tuple[Call, ...]:
    """The calls of one stack as the tree takes them, outermost first.

    Where some ranks were read with native frames and some without, what they share must fall together: so Python frames
    come first, and of native ones only those inside of the innermost Python frame. A stack of native frames keeps all.
    """
    last = max((at for at, frame in enumerate(frames) if not frame.native), default=-1)
    kept = [frame for at, frame in enumerate(frames) if at > last or not frame.native]
    if len(kept) > DEEPEST:
        kept = [*kept[: DEEPEST // 2], *kept[-DEEPEST // 2 :]]
    return tuple(Call(symbol(frame.function), frame.module or frame.file, frame.native) for frame in kept)


def _nodes(root: _Branch) -> Iterator[Node]:
    """The branches in order; a loop of its own, for a recursion in evidence must not become one of ours."""
    count = 0
    waiting: list[tuple[Call, _Branch, int, int]] = []

    def wait(branch: _Branch, parent: int, depth: int) -> None:
        them = sorted(branch.calls.items(), key=lambda one: (-_count(one[1]), _lowest(one[1]), one[0]))
        waiting.extend((call, callee, parent, depth) for call, callee in reversed(them))

    wait(root, -1, 0)
    while waiting:
        call, branch, parent, depth = waiting.pop()
        yield Node(call, parent, depth, united(branch.ranks), united(branch.ends))
        wait(branch, count, depth + 1)
        count += 1


def _count(branch: _Branch) -> int:
    return sum(size(runs) for runs in branch.ranks)


def _lowest(branch: _Branch) -> int:
    return min((runs[0][0] for runs in branch.ranks if runs), default=0)


#: A place in a library that has no symbols, as tools write it. Where a library lies differs from process to process, by
#: whole pages of 4 KiB at least, so that the last three digits are the place's own (address space layout randomisation).
_ADDRESS = re.compile(r"0x[0-9a-fA-F]*([0-9a-fA-F]{3})")


def symbol(function: str) -> str:
    """The name, or of an address what is the same of it wherever its library lies: `0x…f16`."""
    found = _ADDRESS.fullmatch(function)
    return f"0x…{found[1]}" if found else function
