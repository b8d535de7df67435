"""Devices that `lspci` finds off the bus: a fault beside others of their model, and maybe a card that sleeps where there is none."""

import pytest

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.findings import Impact
from hangdog_models.reading.hardware import pci_devices

CARD = "VGA compatible controller: NVIDIA Corporation TU102GL [Quadro RTX 6000/8000]"
#: https://github.com/lyulyul/shine-cluster/issues/171: three cards of one machine, and what was asked
OF_A_MACHINE = f"""$ lspci| grep -i nvidia
1a:00.0 {CARD} (rev a1)
1a:00.1 Audio device: NVIDIA Corporation TU102 High Definition Audio Controller (rev a1)
1c:00.0 {CARD} (rev ff)
1c:00.1 Audio device: NVIDIA Corporation TU102 High Definition Audio Controller (rev ff)
1d:00.0 {CARD} (rev a1)
"""


def test_a_card_off_the_bus_beside_others_of_its_model_wants_a_reset() -> None:
    assert pci_devices.recognises(OF_A_MACHINE)
    (found,) = pci_devices.read(OF_A_MACHINE)
    assert (found.impact, found.device, found.code) == (Impact.RESET, "0000:1c:00", "PCI device lost")


@pytest.mark.parametrize("form", ["{}", "0000:{}", "{} (prog-if ff [])\n\t!!! Unknown header type 7f"])
def test_the_only_card_of_its_model_may_sleep(form: str) -> None:
    alone = form.format(
        "01:00.0 3D controller [0302]: NVIDIA Corporation GA107M [GeForce RTX 3050] [10de:25a2] (rev ff)"
    )
    text = f"00:02.0 VGA compatible controller: Intel Corporation Alder Lake-P (rev 0c)\n{alone}\n"
    (found,) = pci_devices.read(text)
    assert (found.impact, found.device) == (Impact.SUSPECTS, "0000:01:00")


#: https://github.com/NVIDIA/nvtrust/issues/51, `lspci -vvv` of a card that answers
THAT_ANSWERS = """61:00.0 3D controller: NVIDIA Corporation Device 2331 (rev a1)
        Subsystem: NVIDIA Corporation Device 1626
        Control: I/O- Mem+ BusMaster- SpecCycle- MemWINV- VGASnoop- ParErr- Stepping- SERR- FastB2B- DisINTx-
        Region 0: Memory at 1e042000000 (64-bit, prefetchable) [size=16M]
"""


def test_where_all_answer_there_is_nothing_to_say_and_no_list_is_no_evidence() -> None:
    sound = OF_A_MACHINE.replace("(rev ff)", "(rev a1)")
    for text in (sound, THAT_ANSWERS):
        assert not pci_devices.recognises(text) and pci_devices.read(text) == ()
    with pytest.raises(UnreadableEvidence):
        pci_devices.read("nothing of that kind")
