"""The products of level 1 in every type and regime that a GPU is given: a sound device has none that the host finds wrong."""

from typing import Any

import pytest

from hangdog_agent.machine_tests.torch_engine import Probe

SIZE = 64
torch: Any = None
program: Any = None


@pytest.fixture(scope="module", autouse=True)
def loaded() -> None:
    """Not as this file is collected: it takes seconds, in each worker."""
    global torch, program
    torch = pytest.importorskip("torch")
    program = pytest.importorskip("hangdog_agent.machine_tests.programs.one_device")


@pytest.mark.parametrize("regime", ["exact", "ones", "ordinary", "small", "large"])
@pytest.mark.parametrize("name", ["bfloat16", "float32", "float16"])
def test_a_right_product_is_right_in_every_type(name: str, regime: str) -> None:
    left, right = program.operands(regime, getattr(torch, name), SIZE)
    product = (left.double() @ right.double()).to(getattr(torch, name))
    assert torch.isfinite(product).all()
    assert program.wrong_rows(product, left, right, regime == "exact") == []


def test_the_operands_of_a_full_size_end_below_what_half_precision_holds() -> None:
    """A sum of so many products of mean 0 lies within ten times its deviation; two large operands would be infinite."""
    left, right = program.operands("large", torch.float16, SIZE)
    deviation = float(left.double().std() * right.double().std()) * 8192**0.5
    assert 10 * deviation < torch.finfo(torch.float16).max


def test_operands_of_one_regime_are_the_same_numbers_in_every_type() -> None:
    wide, _ = program.operands("ordinary", torch.float32, SIZE)
    narrow, _ = program.operands("ordinary", torch.bfloat16, SIZE)
    assert torch.equal(wide.to(torch.bfloat16), narrow)


def test_the_host_checks_for_an_accelerator_with_several_threads_and_for_a_process_with_one() -> None:
    assert Probe("2.11", 0).threads() == 1
    assert 1 <= Probe("2.11", 4).threads() <= Probe("2.11", 1).threads() <= 8
