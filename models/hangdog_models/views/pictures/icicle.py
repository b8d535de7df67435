"""The merged stacks as boxes, one below the other: as wide as their ranks, and what a library does inside itself as one box."""

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from hangdog_models.ranks import Runs, size
from hangdog_models.views.collapsed_tree import Branch
from hangdog_models.views.stack_tree import Call

#: Packages that train or run what others wrote, where a tool shortens paths so that nothing says that they are installed.
LIBRARIES = frozenset({
    "accelerate", "apex", "colossalai", "deepspeed", "fairscale", "fairseq", "flash_attn", "flax", "horovod",
    "jax", "jaxlib", "lightning", "lightning_fabric", "megatron", "mpi4py", "nemo", "numpy", "optax", "orbax", "paddle", "peft",
    "pytorch_lightning", "ray", "safetensors", "sglang", "tensorflow", "torch", "torch_npu", "torch_xla", "torchtitan", "torchvision",
    "transformer_engine", "transformers", "triton", "trl", "vllm", "xformers",
})  # fmt: skip
#: What the boxes of Python's own modules are of.
PYTHON = "python"
_INSTALLED = re.compile(r"/(?:site|dist)-packages/(?P<package>[^/]+)")
_OWN = re.compile(r"/lib/python3(?:\.\d+)?/|^<frozen ")


@dataclass(frozen=True, slots=True)
class Box:
    """Calls one below the other with the same ranks: one of the job's own code, or all that `library` does there by itself.

    `parent` is the box of its caller, -1 of an outermost one. `suspect`: a suspected rank is inside; `alone`: nobody else is.
    """

    calls: tuple[Call, ...]
    library: str
    parent: int
    ranks: Runs
    suspect: bool
    alone: bool


def boxes(branches: Iterable[Branch], suspected: Runs = ()) -> tuple[Box, ...]:
    """The boxes of a folded tree in its order, callers first."""
    found: list[Box] = []
    last: list[int] = []  # the innermost box of each fork on the way down to here
    for branch in branches:
        del last[branch.depth :]
        parent = last[-1] if last else -1
        alone = branch.suspect and size(branch.ranks) <= size(suspected)
        for library, calls in _blocks(branch.calls):
            found.append(Box(calls, library, parent, branch.ranks, branch.suspect, alone))
            parent = len(found) - 1
        last.append(parent)
    return tuple(found)


def library(call: Call) -> str:
    """Whose code a call is: a package that is installed, Python's own, a native library; empty for the job's own."""
    if call.native:
        return call.file.rpartition("/")[2] or "native"
    installed = _INSTALLED.search(call.file)
    if installed is not None:
        return installed["package"].removesuffix(".py")
    first = call.file.partition("/")[0].removesuffix(".py")
    if _OWN.search(call.file) or first in sys.stdlib_module_names:
        return PYTHON
    return first if first in LIBRARIES and "/" in call.file else ""


def _blocks(calls: Sequence[Call]) -> Iterator[tuple[str, tuple[Call, ...]]]:
    for name, inside in groupby(calls, library):
        if name:
            yield name, tuple(inside)
        else:
            yield from (("", (call,)) for call in inside)
