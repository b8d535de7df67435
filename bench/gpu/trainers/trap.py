"""A trainer that ends its own CUDA context once it is told to: `python -m gpu.trainers.trap KIND`, KIND `trap`, `stray`, `assert` or `sound`.

It prints `{"ready": T}` when torch is up, waits for a line, and prints `{"broke": T}` when torch has raised. Then it ends as an
exception that nobody catches ends a trainer. `sound` multiplies instead, and says whether the product is right.
With `dry` before KIND a stand-in raises what torch would.
"""

import json
import sys
import time
from collections.abc import Mapping
from typing import Any

import torch

from gpu.trainers.device import Gpu

#: What torch 2.11 says of each on a GPU, for the stand-in.
WORDS: Mapping[str, tuple[str, str]] = {
    "trap": ("unspecified launch failure", "cudaErrorLaunchFailure"),
    "stray": ("an illegal memory access was encountered", "cudaErrorIllegalAddress"),
    "assert": ("device-side assert triggered", "cudaErrorAssert"),
}
_MESSAGE = """CUDA error: {0}
Search for `{1}' in https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html for more information.
CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.
For debugging consider passing CUDA_LAUNCH_BLOCKING=1
Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.
"""


def train_step(kind: str, device: Any) -> None:
    """The step in which it happens."""
    if device is None:
        raise getattr(torch, "AcceleratorError", RuntimeError)(_MESSAGE.format(*WORDS[kind]))
    if kind == "trap":
        device.trap()
    elif kind == "stray":
        device.stray()
    else:
        table, index = torch.zeros(8, 8, device=device.name), torch.full((4,), 1 << 20, device=device.name)
        table[index].sum().item()


def sound(name: str) -> bool:
    """Whether this process's context still computes what it should."""
    ones = torch.ones(512, 512, device=name)
    return bool((ones @ ones == 512.0).all())


def main() -> None:
    *dry, kind = sys.argv[1:]
    device = None if dry else Gpu()
    name = "cpu" if device is None else device.name
    assert sound(name)
    print(json.dumps({"ready": time.monotonic()}), flush=True)
    sys.stdin.readline()
    if kind == "sound":
        print(json.dumps({"sound": sound(name)}), flush=True)
        return
    try:
        train_step(kind, device)
    except RuntimeError:
        print(json.dumps({"broke": time.monotonic()}), flush=True)
        raise
    print(json.dumps({"survived": time.monotonic()}), flush=True)


if __name__ == "__main__":
    main()
