"""What `rdma link` prints: a port that is down counts beside ports that are up."""

import pytest

from hangdog_models.findings import Impact
from hangdog_models.reading.hardware import rdma_link

UP = "link mlx5_0/1 subnet_prefix fe80:0000:0000:0000 lid 7 sm_lid 1 lmc 0 state ACTIVE physical_state LINK_UP\n"
DOWN = "link mlx5_7/1 subnet_prefix fe80:0000:0000:0000 lid 9 sm_lid 1 lmc 0 state DOWN physical_state POLLING\n"


@pytest.mark.parametrize(("text", "impact"), [(UP + DOWN, Impact.SUSPECTS), (DOWN, Impact.TELLS_NOTHING)])
def test_a_port_that_is_down_counts_beside_ports_that_are_up(text: str, impact: Impact) -> None:
    assert rdma_link.recognises(text)
    (found,) = rdma_link.read(text)
    assert (found.code, found.impact, found.device) == ("link down", impact, "mlx5_7/1")


@pytest.mark.parametrize("text", [UP, UP + DOWN.replace("POLLING", "DISABLED"), "link to the docs\n"])
def test_what_is_up_or_switched_off_is_no_fault(text: str) -> None:
    assert rdma_link.read(text) == ()


def test_older_versions_begin_with_a_number() -> None:
    old = UP.replace("link ", "1/1: ").replace("mlx5_0/1 ", "mlx5_0/1: ") + DOWN.replace("link ", "8/1: ")
    assert [one.device for one in rdma_link.read(old)] == ["mlx5_7/1"]


def test_any_other_text_is_none() -> None:
    assert not rdma_link.recognises("state DOWN physical_state POLLING\n") and not rdma_link.recognises("")
