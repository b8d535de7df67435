"""Kernel logs of real incidents, as the reader tells them."""

from pathlib import Path

import pytest

from hangdog_models.findings import Finding, Impact
from hangdog_models.reading.hardware import kernel_log

CORPUS = Path(__file__).parents[4] / "shared" / "corpus" / "public"


def corpus(case: str) -> dict[str, tuple[Finding, ...]]:
    """What each machine's kernel log of a case tells."""
    folders = sorted(CORPUS.glob(f"{case}*/machine-*"))
    if not folders:
        pytest.skip(f"no corpus beside this repository: {case}")
    return {
        folder.name.removeprefix("machine-"): tuple(
            finding
            for name in ("kern.log", "kmsg.log", "dmesg.log")
            if (folder / name).exists()
            for finding in kernel_log.read((folder / name).read_text(encoding="utf-8"))
        )
        for folder in folders
    }


def test_corpus_gsp_timeout_is_one_event_of_one_gpu() -> None:
    (found,) = corpus("015")["xe9680-a"]
    assert (found.code, found.impact, found.device, found.times) == ("Xid 119", Impact.RESET, "0000:9b:00", 5)


def test_corpus_fatal_links_convict_and_non_fatal_ones_do_not() -> None:
    machines = corpus("016")
    fatal = [f for f in machines["tray-1"] if f.impact is Impact.CONVICTS]
    assert {f.device for f in fatal} == {"0009:01:00", "0008:01:00"} and sum(f.times for f in fatal) == 5
    assert sum(f.impact is Impact.RESET for f in machines["tray-1"]) == 4
    assert {f.impact for f in machines["tray-2"]} == {Impact.SUSPECTS}


def test_corpus_switch_note_and_row_remap() -> None:
    assert [f.impact for f in corpus("023")["sw-a"]] == [Impact.TELLS_NOTHING]
    (remap,) = corpus("026")["a100-a"]
    assert (remap.code, remap.impact, remap.device) == ("Xid 63", Impact.SUSPECTS, "0000:10:1c")


def test_corpus_seventeen_spellings() -> None:
    found = {name: [f.impact for f in findings] for name, findings in corpus("079").items()}
    for name in ("m03", "m04", "m11", "m12"):
        assert found[name] == [Impact.CONVICTS], name
    assert found["m05"] == [Impact.RESET]
    for name in ("m01", "m02", "m09", "m10", "m15"):
        assert found[name] == [Impact.SUSPECTS], name
    for name in ("m06", "m07", "m08", "m14"):
        assert found[name] == [Impact.PROGRAM], name
    assert (found["m16"], found["m17"]) == ([Impact.TELLS_NOTHING], [])
