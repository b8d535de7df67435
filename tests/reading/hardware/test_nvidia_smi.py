"""The nvidia-smi reader: text and XML say the same, cut outputs are no fault, and only what concerns this incident counts."""

import time
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.findings import Finding, Impact
from hangdog_models.reading.hardware import nvidia_smi
from hangdog_models.reading.limits import Limits
from support.refused import refused

CORPUS = Path(__file__).parents[4] / "shared" / "corpus" / "public"

#: A sound GPU: (section, name, value); names as the text writes them.
SOUND: list[tuple[str, str, str]] = [
    ("", "Product Name", "NVIDIA H100 80GB HBM3"),
    ("GPU Reset Status", "Reset Required", "No"),
    ("GPU Reset Status", "Drain and Reset Recommended", "No"),
    ("", "GPU Recovery Action", "None"),
    ("PCI/GPU Link Info/PCIe Generation", "Max", "4"),
    ("PCI/GPU Link Info/PCIe Generation", "Current", "4"),
    ("PCI/GPU Link Info/PCIe Generation", "Host Max", "5"),
    ("PCI/GPU Link Info/Link Width", "Max", "16x"),
    ("PCI/GPU Link Info/Link Width", "Current", "16x"),
    ("Clocks Event Reasons", "SW Power Cap", "Active"),
    ("Clocks Event Reasons", "HW Slowdown", "Not Active"),
    ("Clocks Event Reasons/HW Slowdown", "HW Thermal Slowdown", "Not Active"),
    ("Clocks Event Reasons/HW Slowdown", "HW Power Brake Slowdown", "Not Active"),
    ("Utilization", "Gpu", "100 %"),
    ("ECC Errors/Volatile", "SRAM Correctable", "3"),
    ("ECC Errors/Volatile", "SRAM Uncorrectable Parity", "0"),
    ("ECC Errors/Volatile", "SRAM Uncorrectable SEC-DED", "0"),
    ("ECC Errors/Volatile", "DRAM Uncorrectable", "0"),
    ("ECC Errors/Aggregate", "SRAM Uncorrectable Parity", "2"),
    ("ECC Errors/Aggregate", "SRAM Uncorrectable SEC-DED", "0"),
    ("ECC Errors/Aggregate", "DRAM Uncorrectable", "9"),
    ("ECC Errors/Aggregate", "SRAM Threshold Exceeded", "No"),
    ("Retired Pages", "Pending Page Blacklist", "N/A"),
    ("Remapped Rows", "Uncorrectable Error", "0"),
    ("Remapped Rows", "Pending", "No"),
    ("Remapped Rows", "Remapping Failure Occurred", "No"),
    ("GPU Power Readings", "Power Draw", "640.00 W"),
    ("GPU Power Readings", "Current Power Limit", "700.00 W"),
    ("Fabric", "State", "Completed"),
    ("Fabric", "Status", "Success"),
]
ADDRESSES = ["00000000:19:00.0", "00000000:3B:00.0"]


def changed(**values: str) -> list[tuple[str, str, str]]:
    """The sound GPU with values changed: `section__name="value"`, spaces written as underscores."""
    wanted = {key.replace("__", "|").replace("_", " "): value for key, value in values.items()}
    rows = [(s, n, wanted.pop(f"{s.rpartition('/')[2]}|{n}", v)) for s, n, v in SOUND]
    assert not wanted, wanted
    return rows


def as_text(*gpus: list[tuple[str, str, str]], attached: int | None = None) -> str:
    lines = ["==============NVSMI LOG==============", "", "Timestamp                                 : Wed Jul 31 11:22:39 2024",
             "Driver Version                            : 570.86.15", f"Attached GPUs                             : {attached or len(gpus)}"]  # fmt: skip
    for address, rows in zip(ADDRESSES, gpus, strict=False):
        lines.append(f"GPU {address}")
        before: list[str] = []
        for section, name, value in rows:
            path = section.split("/") if section else []
            for depth, part in enumerate(path):
                if before[: depth + 1] != path[: depth + 1] and not lines[-1].strip().startswith(part):
                    lines.append("    " * (depth + 1) + part)
            lines.append("    " * (len(path) + 1) + f"{name:<38}: {value}")
            before = path
        lines.append("")
    return "\n".join(lines)


XML_NAMES = {
    "Max": {"PCIe Generation": "max_link_gen", "Link Width": "max_link_width"},
    "Current": {"PCIe Generation": "current_link_gen", "Link Width": "current_link_width"},
    "Host Max": {"PCIe Generation": "max_host_link_gen"},
    "Pending": {"Remapped Rows": "remapped_row_pending"},
    "Remapping Failure Occurred": {"Remapped Rows": "remapped_row_failure"},
    "Uncorrectable Error": {"Remapped Rows": "remapped_row_unc"},
    "Gpu": {"Utilization": "gpu_util"},
    "HW Slowdown": {"Clocks Event Reasons": "clocks_event_reason_hw_slowdown"},
    "HW Thermal Slowdown": {"HW Slowdown": "clocks_event_reason_hw_thermal_slowdown"},
    "HW Power Brake Slowdown": {"HW Slowdown": "clocks_event_reason_hw_power_brake_slowdown"},
    "Pending Page Blacklist": {"Retired Pages": "pending_blacklist"},
}
XML_SECTIONS = {
    "GPU Link Info": "pci_gpu_link_info", "PCIe Generation": "pcie_gen", "Link Width": "link_widths", "HW Slowdown": "",
}  # fmt: skip


def as_xml(*gpus: list[tuple[str, str, str]]) -> str:
    parts = ['<?xml version="1.0" ?>', '<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">', "<nvidia_smi_log>",
             "<timestamp>Wed Jul 31 11:22:39 2024</timestamp>", f"<attached_gpus>{len(gpus)}</attached_gpus>"]  # fmt: skip
    for address, rows in zip(ADDRESSES, gpus, strict=False):
        parts.append(f'<gpu id="{address}">')
        for section, name, value in rows:
            path = section.split("/") if section else []
            tags = [XML_SECTIONS.get(part, part.lower().replace(" ", "_")) for part in path]
            leaf = XML_NAMES.get(name, {}).get(
                path[-1] if path else "", name.lower().replace(" ", "_").replace("-", "")
            )
            opened = [tag for tag in tags if tag]
            parts.append(
                "".join(f"<{tag}>" for tag in opened)
                + f"<{leaf}>{value}</{leaf}>"
                + "".join(f"</{tag}>" for tag in reversed(opened))
            )
        parts.append("</gpu>")
    return "\n".join([*parts, "</nvidia_smi_log>"])


def told(findings: tuple[Finding, ...]) -> list[tuple[str, Impact]]:
    return [(finding.code, finding.impact) for finding in findings]


@pytest.mark.parametrize("write", [as_text, as_xml])
def test_sound_gpus_tell_nothing(write) -> None:  # type: ignore[no-untyped-def]
    assert nvidia_smi.recognises(write(SOUND, SOUND)[:4096])
    assert nvidia_smi.read(write(SOUND, SOUND)) == ()


@pytest.mark.parametrize("write", [as_text, as_xml])
@pytest.mark.parametrize(
    ("values", "code", "bearing"),
    [
        ({"HW_Slowdown__HW_Power_Brake_Slowdown": "Active", "Clocks_Event_Reasons__HW_Slowdown": "Active"}, "HW power brake", Impact.SLOWS),
        ({"HW_Slowdown__HW_Thermal_Slowdown": "Active", "Clocks_Event_Reasons__HW_Slowdown": "Active"}, "HW thermal slowdown", Impact.SLOWS),
        ({"Clocks_Event_Reasons__HW_Slowdown": "Active"}, "HW slowdown", Impact.SLOWS),
        ({"Volatile__SRAM_Uncorrectable_Parity": "1"}, "SRAM errors", Impact.RESET),
        ({"Volatile__SRAM_Uncorrectable_SEC-DED": "1", "Aggregate__SRAM_Uncorrectable_SEC-DED": "3"}, "SRAM errors", Impact.CONVICTS),
        ({"Aggregate__SRAM_Threshold_Exceeded": "Yes"}, "SRAM threshold", Impact.CONVICTS),
        ({"Aggregate__SRAM_Uncorrectable_Parity": "5"}, "SRAM lifetime", Impact.TELLS_NOTHING),
        ({"Volatile__DRAM_Uncorrectable": "2"}, "DRAM errors", Impact.SUSPECTS),
        ({"Remapped_Rows__Remapping_Failure_Occurred": "Yes"}, "row remap failure", Impact.CONVICTS),
        ({"Remapped_Rows__Pending": "Yes"}, "row remap pending", Impact.SUSPECTS),
        ({"Remapped_Rows__Pending": "Yes", "Remapped_Rows__Uncorrectable_Error": "1"}, "row remap pending", Impact.RESET),
        ({"Retired_Pages__Pending_Page_Blacklist": "Yes"}, "page retirement pending", Impact.SUSPECTS),
        ({"GPU_Reset_Status__Reset_Required": "Yes"}, "reset required", Impact.RESET),
        ({"|GPU_Recovery_Action": "Drain and Reset"}, "recovery action", Impact.RESET),
        ({"Link_Width__Current": "8x"}, "PCIe lanes", Impact.SLOWS),
        ({"PCIe_Generation__Current": "1"}, "PCIe generation", Impact.SLOWS),
        ({"Fabric__State": "In Progress"}, "fabric", Impact.CONVICTS),
        ({"Fabric__Status": "Insufficient Resources"}, "fabric", Impact.CONVICTS),
        ({"GPU_Power_Readings__Power_Draw": "170.10 W"}, "spinning", Impact.TELLS_NOTHING),
    ],
)  # fmt: skip
def test_each_fault_of_one_gpu_is_told_alike_by_text_and_xml(write, values: dict[str, str], code: str, bearing: Impact) -> None:  # type: ignore[no-untyped-def]  # fmt: skip
    values = {("__" + key[1:] if key.startswith("|") else key): value for key, value in values.items()}
    (found,) = nvidia_smi.read(write(SOUND, changed(**values)))
    assert (found.source, found.code, found.impact, found.device) == ("nvidia-smi", code, bearing, "0000:3b:00")
    assert found.at_s == 1722424959.0


def test_one_report_does_not_tell_a_kernel_that_spins_from_a_load_that_begins() -> None:
    (found,) = nvidia_smi.read(as_text(SOUND, changed(GPU_Power_Readings__Power_Draw="221.44 W")))
    assert "spins, or " in found.what and "just begun" in found.what


def test_older_section_names_mean_the_same() -> None:
    rows = [
        (s.replace("Event", "Throttle"), n, v) for s, n, v in changed(HW_Slowdown__HW_Power_Brake_Slowdown="Active")
    ]
    assert told(nvidia_smi.read(as_text(SOUND, rows))) == [("HW power brake", Impact.SLOWS)]


def test_gpus_before_ampere_count_double_bit_errors() -> None:
    rows = [*SOUND, ("ECC Errors/Volatile/Double Bit", "Total", "2"), ("ECC Errors/Aggregate/Double Bit", "Total", "7")]
    assert told(nvidia_smi.read(as_text(SOUND, rows))) == [("DRAM errors", Impact.SUSPECTS)]
    assert nvidia_smi.read(as_text(SOUND, [*SOUND, ("ECC Errors/Aggregate/Double Bit", "Total", "7")])) == ()


def test_a_generation_counts_under_load_only() -> None:
    assert nvidia_smi.read(as_text(SOUND, changed(PCIe_Generation__Current="1", Utilization__Gpu="0 %"))) == ()


def test_what_all_gpus_share_is_the_hosts_build_or_setting() -> None:
    narrow, down = changed(Link_Width__Current="8x"), changed(Fabric__State="In Progress")
    assert nvidia_smi.read(as_text(narrow, narrow)) == ()
    (found,) = nvidia_smi.read(as_text(down, down))
    assert (found.code, found.impact) == ("fabric manager", Impact.SUSPECTS) and "do not replace" in found.what


def test_lanes_of_a_gpu_that_is_alone_tell_nothing() -> None:
    narrow = changed(Link_Width__Current="8x")
    assert told(nvidia_smi.read(as_text(narrow))) == [("PCIe lanes", Impact.TELLS_NOTHING)]
    assert told(nvidia_smi.read(as_text(narrow, attached=8))) == [("PCIe lanes", Impact.SLOWS)]  # the rest was cut off


def test_a_single_field_without_an_answer_is_nothing_and_all_of_them_a_lost_gpu() -> None:
    assert nvidia_smi.read(as_text(SOUND, changed(Retired_Pages__Pending_Page_Blacklist="Unknown Error"))) == ()
    lost = [(s, n, "GPU is lost") for s, n, _ in SOUND]
    assert ("GPU lost", Impact.CONVICTS) in told(nvidia_smi.read(as_text(SOUND, lost)))
    mute = [(s, n, "Unknown Error") for s, n, _ in SOUND]
    assert told(nvidia_smi.read(as_text(SOUND, mute))) == [("GPU lost", Impact.CONVICTS)]


@pytest.mark.parametrize(
    ("text", "code", "bearing", "device"),
    [
        ("Unable to determine the device handle for GPU 0000:4B:00.0: GPU is lost.  Reboot the system to recover this GPU",
         "GPU lost", Impact.CONVICTS, "0000:4b:00"),
        ("Unable to determine the device handle for GPU0000:4B:00.0: Unknown Error", "GPU lost", Impact.CONVICTS, "0000:4b:00"),
        ("Unable to determine the device handle for GPU 0000:4B:00.0: GPU requires reset", "reset required", Impact.RESET, "0000:4b:00"),
        ("No devices were found", "no GPU", Impact.CONVICTS, ""),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure", "no driver", Impact.CONVICTS, ""),
        ("Failed to initialize NVML: Driver/library version mismatch", "driver mismatch", Impact.SUSPECTS, ""),
        ("Failed to initialize NVML: Unknown Error", "no driver", Impact.SUSPECTS, ""),
    ],
)  # fmt: skip
def test_what_the_tool_says_instead_of_an_answer(text: str, code: str, bearing: Impact, device: str) -> None:
    assert nvidia_smi.recognises(text)
    (found,) = nvidia_smi.read(text + "\n")
    assert (found.code, found.impact, found.device) == (code, bearing, device)
    assert told(nvidia_smi.read(as_text(SOUND) + "\n" + text)) == [(code, bearing)]


def test_a_board_that_lacks_a_gpu_is_suspect_and_a_listing_that_is_cut_is_not() -> None:
    assert told(nvidia_smi.read(as_text(SOUND, SOUND, attached=7))) == [("GPU missing", Impact.SUSPECTS)]
    assert nvidia_smi.read(as_text(SOUND, attached=8)) == ()


@pytest.mark.parametrize("write", [as_text, as_xml])
def test_an_output_cut_anywhere_is_read_as_far_as_it_goes(write) -> None:  # type: ignore[no-untyped-def]
    whole = write(changed(Remapped_Rows__Remapping_Failure_Occurred="Yes"), SOUND)
    seen = set()
    for end in range(60, len(whole), 7):
        try:
            seen.update(told(nvidia_smi.read(whole[:end])))
        except UnreadableEvidence:
            assert "<nvidia_smi_log>" not in whole[:end]
    assert seen == {("row remap failure", Impact.CONVICTS)}


@pytest.mark.parametrize(
    ("text", "code", "value"),
    [
        (
            '<!DOCTYPE x [<!ENTITY a "b"><!ENTITY c "&a;&a;">]><nvidia_smi_log>&c;</nvidia_smi_log>',
            "unsafe-content",
            "entity",
        ),
        (
            '<!DOCTYPE x [<!ENTITY % a SYSTEM "file:///etc/passwd"> %a;]><nvidia_smi_log></nvidia_smi_log>',
            "unsafe-content",
            "entity",
        ),
        (
            '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]><nvidia_smi_log>&a;</nvidia_smi_log>',
            "unsafe-content",
            "entity",
        ),
        ("<nvidia_smi_log>" + "<a>" * 100, "too-deep", "depth"),
        ("<nvidia_smi_log>" + "<a/>" * 300, "too-many", "containers"),
        ("<nvidia_smi_log>" + '<gpu id="1"></gpu>' * 257, "too-many", "256 GPUs"),
        ("<nvidia_smi_log></wrong>", "damaged-gpu-report", "XML"),
        ("<html></html>", "damaged-gpu-report", "nvidia_smi_log"),
        ("<", "damaged-gpu-report", "nvidia_smi_log"),
        ("<nvidia_smi_log>\ud800</nvidia_smi_log>", "damaged-gpu-report", "XML"),
        ("plain words\n", "damaged-gpu-report", "nvidia-smi"),
        ("", "damaged-gpu-report", "nvidia-smi"),
        ("x" * 20_001, "too-large", "file_bytes"),
    ],
)
def test_hostile_and_foreign_documents_are_refused_by_name(text: str, code: str, value: str) -> None:
    limits = Limits(file_bytes=20_000, depth=20, containers=1_000 if "256" in value else 200)
    with refused(code, UnreadableEvidence, value):
        nvidia_smi.read(text, limits)


LINES = st.sampled_from(
    [
        "==============NVSMI LOG==============", "Attached GPUs   : 7", "GPU 00000000:19:00.0", "    Remapped Rows", "        Pending : Yes",
        "    Product Name : H100 SXM", "    Fabric", "        State : In Progress", "Timestamp : Wed Jul 31 11:22:39 2024", "GPU is lost", " : ", ":",
        "        Power Draw : 9" * 3, "    Clocks Event Reasons", "        HW Slowdown : Active", "<nvidia_smi_log>", '<gpu id="0:1:0">', "</gpu>",
        "<fabric><state>In Progress</state></fabric>", "<a>", "</a>",
    ]
)  # fmt: skip


@given(st.lists(LINES | st.text(max_size=20), max_size=40).map("\n".join))
def test_any_text_is_read_or_refused_and_what_is_kept_can_be_shown(text: str) -> None:
    assert nvidia_smi.recognises(text) in (True, False)
    try:
        for found in nvidia_smi.read(text):
            assert found.what.isprintable() and found.device.isprintable() and len(found.what) < 10_000
    except UnreadableEvidence as error:
        assert str(error)


@pytest.mark.parametrize(
    "unit", ["  a : b\n", "      " * 40 + "x\n", "GPU 00000000:19:00.0 is\n", ":" * 200 + "\n", "<a>b</a>"]
)
def test_reading_takes_time_in_proportion_to_the_text(unit: str) -> None:
    head = "<nvidia_smi_log>" if unit.startswith("<") else "NVSMI LOG\n"

    def seconds(size: int) -> float:
        start = time.thread_time()
        with suppress(UnreadableEvidence):  # too many values is an answer too
            nvidia_smi.read(head + unit * (size // len(unit)))
        return time.thread_time() - start

    seconds(10_000)
    small, large = min(seconds(50_000) for _ in range(3)), min(seconds(400_000) for _ in range(3))
    assert large < 8 * 4 * small + 0.05


def corpus(case: str) -> dict[str, tuple[Finding, ...]]:
    files = sorted(CORPUS.glob(f"{case}*/machine-*/nvidia-smi*"))
    if not files:
        pytest.skip(f"no corpus beside this repository: {case}")
    return {p.parent.name.removeprefix("machine-"): nvidia_smi.read(p.read_text(encoding="utf-8")) for p in files}


def test_corpus_all_eight_gpus_are_held_by_the_power_brake() -> None:
    found = corpus("019")["h100-a"]
    assert {*told(found)} == {("HW power brake", Impact.SLOWS)} and len({f.device for f in found}) == 8


def test_corpus_queries_without_fault_tell_nothing() -> None:
    assert corpus("020") == {"ws-a": (), "ws-b": ()}


def test_corpus_a_pending_remap_of_correctable_errors_is_a_weak_sign() -> None:
    assert told(corpus("026")["a100-a"]) == [("row remap pending", Impact.SUSPECTS)]


def test_corpus_a_volatile_sram_error_convicts_and_a_lifetime_count_does_not() -> None:
    found = corpus("027")
    assert told(found["a100-c"]) == [("SRAM errors", Impact.CONVICTS)] and found["a100-d"] == ()
