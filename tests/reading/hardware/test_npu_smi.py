"""What npu-smi prints of Ascend NPUs: nothing of a sound machine; one chip's alarm wants a reset, all chips' alarm is a setting.

Tables as in vllm-project/vllm-ascend issues 676 (24.1, one chip a card) and 12980 (26.0, two chips a card); the answers to
`-t ecc` as in Huawei's command reference and to `-t health` as npu-smi's print_diagnosis_info writes them.
"""

import pytest

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.findings import Impact
from hangdog_models.reading.hardware.npu_smi import read, recognises
from hangdog_models.reading.limits import Limits
from support.refused import refused

RULE = "+===========================+===============+====================================================+\n"
HEADER = (
    "+------------------------------------------------------------------------------------------------+\n"
    "| npu-smi 24.1.rc2.2               Version: 24.1.rc2.2                                           |\n"
    "+---------------------------+---------------+----------------------------------------------------+\n"
    "| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|\n"
    "| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |\n"
)
PROCESSES = (
    "| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |\n"
    "| 0       0                 | 71231         | python                   | 29356                   |\n"
    "| No running processes found in NPU 1                                                            |\n"
)
HEALTH = """\tHealth Status                  : {health}
\tError Code                     : 80E01801
\tError Information              : node type=L2BUFF, sensor type=RAM
"""
ECC = """        NPU ID                                   : 1
        Chip Count                               : 1

        HBM Single Bit Error Count               : 9
        HBM Double Bit Error Count               : {now}
        HBM Double Bit Aggregate Total Err Cnt   : 8
        HBM Double Bit Isolated Pages Count      : 3
        HBM Double Bit Next-Isolated Pages Count : {pending}
        Chip ID                                  : 0
"""


def table(*health: str) -> str:
    rows = "".join(
        f"| {number}     910B2C              | {state:<13} | 97.2        46                0    / 0             |\n"
        f"| 0                         | 0000:{number:X}A:00.0  | 0           0    / 0          3373 / 65536         |\n{RULE}"
        for number, state in enumerate(health)
    )
    return HEADER + RULE + rows + PROCESSES


def told(text: str) -> list[tuple[str, Impact, str]]:
    assert recognises(text)
    return [(one.code, one.impact, one.device) for one in read(text)]


def test_a_sound_machine_is_none_to_speak_of() -> None:
    assert told(table(*["OK"] * 8)) == []
    assert told("NPU ID   : 0\n" + ECC.format(now=0, pending=0)) == []


@pytest.mark.parametrize(
    ("health", "impact"),
    [("Warning", Impact.SUSPECTS), ("Alarm", Impact.RESET), ("Critical", Impact.RESET), ("UNKNOWN", Impact.RESET)],
)
def test_one_chip_that_is_not_well(health: str, impact: Impact) -> None:
    assert told(table("OK", health, "OK")) == [(f"health {health.lower()}", impact, "0000:1a:00")]


def test_what_all_chips_say_alike_is_a_setting() -> None:
    assert {impact for _, impact, _ in told(table(*["Alarm"] * 8))} == {Impact.SUSPECTS}


def test_two_chips_of_a_card_have_places_of_their_own() -> None:
    rows = (
        "| 0     Ascend910           | OK            | 162.6       34                      0    / 0                |\n"
        "| 0     0                   | 0000:9D:00.0  | 0           0    / 0                3419 / 65536            |\n"
        "| 0     Ascend910           | Alarm         | -           34                      0    / 0                |\n"
        "| 1     1                   | 0000:9F:00.0  | 0           0    / 0                2874 / 65536            |\n"
    )
    assert told(HEADER.replace("24.1.rc2.2", "26.0.rc2") + rows) == [("health alarm", Impact.RESET, "0000:9f:00")]


def test_the_answers_to_single_questions() -> None:
    alarm = "\tNPU ID                         : 5\n\tChip ID                        : 0\n" + HEALTH
    (one,) = read(alarm.format(health="Alarm"))
    assert (one.impact, one.device) == (Impact.RESET, "NPU 5 chip 0") and "L2BUFF" in one.what
    assert told(ECC.format(now=2, pending=0)) == [("memory errors", Impact.SUSPECTS, "NPU 1 chip 0")]
    assert told(ECC.format(now=0, pending=1)) == [("page retirement pending", Impact.SUSPECTS, "NPU 1 chip 0")]
    assert told("\thccs health status             : NOT OK\n") == [("HCCS unhealthy", Impact.SUSPECTS, "an NPU")]
    assert told("dcmi module initialize failed. ret is -8005\n") == [("no driver", Impact.SUSPECTS, "")]


def test_too_much_is_refused() -> None:
    with refused("too-many", UnreadableEvidence, "256 chips"):
        read(table(*["OK"] * 300))
    with refused("too-large", UnreadableEvidence, "file_bytes"):
        read(table("OK"), Limits(file_bytes=20))
