"""Which operator a host is in while it launches a stretch of kernels: `any operator` of real-stacks.md section 2."""

from functools import lru_cache

from accuracy.simulator.program import frames
from hangdog_models.stack import Frame

_CALL = frames("_wrapped_call_impl torch/nn/modules/module.py:1553", "_call_impl torch/nn/modules/module.py:1562")
#: The operators of a layer in the order in which it calls them; attention itself is C, so that nothing is added.
_LAYER = (
    (*_CALL, *frames("forward torch/nn/modules/normalization.py:217", "layer_norm torch/nn/functional.py:2900")),
    (*_CALL, *frames("forward torch/nn/modules/linear.py:125")),
    (),
    (*_CALL, *frames("forward torch/nn/modules/dropout.py:70", "dropout torch/nn/functional.py:1425")),
    (*_CALL, *frames("forward torch/nn/modules/activation.py:432", "silu torch/nn/functional.py:2101")),
    (*_CALL, *frames("forward torch/nn/modules/linear.py:126")),
)  # fmt: skip
#: Functions in which C++ launches all kernels: Python stays at one line.
_OPAQUE = ("_engine_run_backward", "custom_backward")


@lru_cache(maxsize=1 << 12)
def _at(calls: tuple[Frame, ...], step: int) -> tuple[Frame, ...]:
    last = calls[-1]
    if last.function in _OPAQUE:
        return calls
    if last.function == "forward" and not last.file.startswith("torch/"):
        return (*calls, *_LAYER[step])
    return (*calls[:-1], Frame(last.function, last.file, last.line + 2 * step))


def among_operators(calls: tuple[Frame, ...], through: float) -> tuple[Frame, ...]:
    """The frames of a host that is `through` (0 to 1) the launches it makes under `calls`."""
    return _at(calls, int(through * len(_LAYER))) if calls else calls
