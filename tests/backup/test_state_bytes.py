"""A state dict as bytes and back: every type of tensor bit for bit, and nothing where it does not fit."""

from collections.abc import Callable
from typing import Any

import pytest

from hangdog.backup.state_bytes import fitting, pack
from hangdog.backup.wire import BackupFailed
from hangdog_models.errors import WrongUse
from support.refused import refused

torch: Any = None


@pytest.fixture(scope="module", autouse=True)
def loaded() -> None:
    """Not as this file is collected: it takes seconds, in each worker."""
    global torch
    torch = pytest.importorskip("torch", reason="a state dict holds torch's tensors: `make torch`")


TYPES = ["float32", "bfloat16", "float16", "float64", "int64", "int8", "bool", "complex64", "float8_e4m3fn"]


def state(seed: int) -> dict[str, Any]:
    torch.manual_seed(seed)
    tensors = {name: torch.randint(0, 2, (3, 5)).to(getattr(torch, name)) for name in TYPES}
    tensors |= {"scalar": torch.tensor(seed * 1.5), "empty": torch.zeros(0, 4), "turned": torch.rand(4, 3).T}
    groups = [{"lr": 0.1 * seed, "betas": (0.9, 0.1 * seed), "params": [0, 1], "fused": None}]
    return {
        "model": tensors,
        "optim": {"state": {0: {"step": torch.tensor(seed)}}, "groups": groups},
        "rng": b"r" * seed,
    }


def bits(one: Any) -> Any:
    return one.shape, one.reshape(-1).view(torch.uint8).tolist()


def alike(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(alike(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, torch.Tensor):
        return bool(one.dtype == other.dtype and bits(one) == bits(other))
    return type(one) is type(other) and bool(one == other)


def test_a_state_comes_back_bit_for_bit_into_tensors_that_were_there() -> None:
    before, after = state(3), state(5)
    parameter = after["model"]["float32"]
    fitting(pack(before, bytearray), after)()
    assert alike(before, after) and after["model"]["float32"] is parameter


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("float32", lambda: torch.zeros(5, 3)),
        ("float32", lambda: torch.zeros(3, 5).double()),
        ("more", lambda: torch.zeros(1)),
    ],
)
def test_a_state_of_another_form_is_left_as_it_is(name: str, other: Callable[[], Any]) -> None:
    before, after = state(3), state(5)
    after["model"][name] = other()
    with refused("different-state", BackupFailed):
        fitting(pack(before, bytearray), after)


@pytest.mark.parametrize("cut", [0, 4, 40, -64])
def test_half_a_copy_is_none(cut: int) -> None:
    body = pack(state(3), bytearray)
    with pytest.raises(BackupFailed):
        fitting(body[:cut], state(5))


def test_what_is_no_tensor_and_no_plain_value_is_refused_by_its_name() -> None:
    with refused("unsupported-state", WrongUse, "optim.hook"):
        pack({"optim": {"hook": object()}}, bytearray)
