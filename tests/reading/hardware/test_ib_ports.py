"""Ports of InfiniBand cards, as three tools list them: one that is down, or slower, counts beside others of its kind."""

import pytest

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.findings import Impact
from hangdog_models.reading.hardware import ib_ports
from support.refused import refused


def ibstat(
    name: str, state: str = "Active", physical: str = "LinkUp", rate: int = 400, layer: str = "InfiniBand"
) -> str:
    return (
        f"CA '{name}'\n\tCA type: MT4129\n\tNumber of ports: 1\n\tPort 1:\n\t\tState: {state}\n\t\tPhysical state: {physical}\n"
        f"\t\tRate: {rate}\n\t\tBase lid: 7\n\t\tLink layer: {layer}\n"
    )


def ibstatus(
    name: str, state: str = "4: ACTIVE", physical: str = "5: LinkUp", rate: str = "400 Gb/sec (4X NDR)"
) -> str:
    return (
        f"Infiniband device '{name}' port 1 status:\n\tdefault gid:\t fe80:0000:0000:0000:5e25:73ff:fe84:2223\n\tbase lid:\t 0x0\n"
        f"\tstate:\t\t {state}\n\tphys state:\t {physical}\n\trate:\t\t {rate}\n\tlink_layer:\t InfiniBand\n\n"
    )


def devinfo(name: str, state: str = "PORT_ACTIVE (4)") -> str:
    return (
        f"hca_id: {name}\n\ttransport:\t\t\tInfiniBand (0)\n\tvendor_part_id:\t\t\t4129\n\tphys_port_cnt:\t\t\t1\n"
        f"\t\tport:\t1\n\t\t\tstate:\t\t\t{state}\n\t\t\tlink_layer:\t\tInfiniBand\n\n"
    )


SOUND = "".join(ibstat(f"mlx5_{at}") for at in range(3))

#: https://github.com/kvcache-ai/Mooncake/issues/1999: two ports are up, one is switched off
OF_MOONCAKE = """$ ibstat
CA 'mlx5_0'
        CA type: MT4129
        Port 1:
                State: Active
                Physical state: LinkUp
                Rate: 200
                Link layer: Ethernet
CA 'mlx5_1'
        CA type: MT4129
        Port 1:
                State: Active
                Physical state: LinkUp
                Rate: 200
                Link layer: Ethernet
CA 'mlx5_10'
        CA type: MT4125
        Port 1:
                State: Down
                Physical state: Disabled
"""
#: https://github.com/leptonai/gpud/pull/482: what gpud calls a fault
OF_GPUD = """CA 'mlx5_10'
    CA type: MT4129
    Number of ports: 1
    Firmware version: 28.39.1002
    Port 1:
        State: Down
        Physical state: Polling
        Rate: 10
        Base lid: 868
        Link layer: InfiniBand
"""
#: https://github.com/NVIDIA/nccl/issues/1935
OF_NCCL = """Infiniband device 'mlx5_11' port 1 status:
\tdefault gid:\t fe80:0000:0000:0000:58a2:e103:0022:ce5c
\tbase lid:\t 0xffff
\tsm lid:\t\t 0x0
\tstate:\t\t 1: DOWN
\tphys state:\t 3: Disabled
\trate:\t\t 10 Gb/sec (4X SDR)
\tlink_layer:\t InfiniBand
"""
#: https://github.com/deepseek-ai/DeepEP/issues/60
OF_DEEPEP = """hca_id: mlx5_0
        transport:                      InfiniBand (0)
        vendor_part_id:                 4129
                port:   1
                        state:                  PORT_DOWN (1)
                        max_mtu:                4096 (5)
                        link_layer:             InfiniBand
"""


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (SOUND + ibstat("mlx5_7", "Down", "Polling", 10), "not active (down, polling) while 3 others"),
        (
            "".join(map(ibstatus, ("mlx5_0", "mlx5_1"))) + ibstatus("mlx5_7", "2: INIT"),
            "not active (init, linkup) while 2 others",
        ),
        (
            "".join(map(devinfo, ("mlx5_0", "mlx5_1"))) + devinfo("mlx5_7", "PORT_DOWN (1)"),
            "not active (down) while 2 others",
        ),
    ],
)
def test_a_port_that_is_down_beside_others_makes_its_machine_suspect(text: str, says: str) -> None:
    assert ib_ports.recognises(text)
    (found,) = ib_ports.read(text)
    assert (found.code, found.impact, found.device) == ("link down", Impact.SUSPECTS, "mlx5_7/1") and says in found.what


@pytest.mark.parametrize(
    ("text", "impacts"),
    [
        (SOUND, []),
        (OF_MOONCAKE, []),
        (OF_NCCL, []),
        (OF_GPUD, [Impact.TELLS_NOTHING]),
        (OF_DEEPEP, [Impact.TELLS_NOTHING]),
        # the second port of a card for the machine's own network, as in most machines
        (
            SOUND + ibstat("mlx5_8", layer="Ethernet") + ibstat("mlx5_9", "Down", "Polling", 40, "Ethernet"),
            [Impact.TELLS_NOTHING],
        ),
        # a machine whose ports are all down has no cables, or no subnet manager
        (ibstat("mlx5_0", "Initializing") + ibstat("mlx5_1", "Initializing"), [Impact.TELLS_NOTHING] * 2),
    ],
)
def test_ports_that_nobody_uses_say_nothing(text: str, impacts: list[Impact]) -> None:
    assert ib_ports.recognises(text)
    assert [found.impact for found in ib_ports.read(text)] == impacts


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (SOUND + ibstat("mlx5_7", rate=200), "runs at 200 Gb/s, others of its kind at 400"),
        (
            "".join(map(ibstatus, ("a_0", "a_1", "a_2"))) + ibstatus("mlx5_7", rate="100 Gb/sec (1X NDR)"),
            "runs at 1 lanes, others of its kind at 4",
        ),
    ],
)
def test_a_port_that_runs_slower_than_others_of_its_kind_slows(text: str, says: str) -> None:
    (found,) = ib_ports.read(text)
    assert (found.code, found.impact, found.device) == ("link rate", Impact.SLOWS, "mlx5_7/1") and says in found.what


def test_a_card_of_another_model_may_be_slower() -> None:
    assert ib_ports.read(SOUND + ibstat("mlx5_7", rate=200).replace("MT4129", "MT4123")) == ()


@pytest.mark.parametrize("text", ["", "State: Active\n", "CA 'mlx5_0'\n\tCA type: MT4129\n"])
def test_any_other_text_is_none(text: str) -> None:
    assert not ib_ports.recognises(text)
    with refused("damaged-report", UnreadableEvidence):
        ib_ports.read(text)
