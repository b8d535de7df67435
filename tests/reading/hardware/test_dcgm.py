"""The DCGM reader: three generations of one document, what failed and what could not run, and shapes that are none."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.findings import Finding, Impact
from hangdog_models.reading.hardware import dcgm
from hangdog_models.reading.json_document import read_json
from support.refused import refused

CORPUS = Path(__file__).parents[4] / "shared" / "corpus" / "public"


def document(
    *results: dict[str, Any], key: str = "DCGM Diagnostic", test: str = "Memory", **more: Any
) -> dict[str, Any]:
    tests = [{"name": test, "results": list(results)}]
    return {key: {"test_categories": [{"category": "Hardware", "tests": tests}]}, **more}


def first(gpus: str, status: str, warning: str = "") -> dict[str, Any]:
    """A result as up to DCGM 3.0."""
    return document({"gpu_ids": gpus, "status": status, "warnings": warning}, key="DCGM GPU Diagnostic")


def second(gpu: str, status: str, warning: str = "", number: int = 0, severity: int = 0) -> dict[str, Any]:
    """A result as of DCGM 3.1 to 3.3."""
    warnings = [{"warning": warning, "error_id": number, "error_category": 10, "error_severity": severity}]
    result = {"gpu_id": gpu, "status": status, "info": "ok", "warnings": warnings}
    return {**document(result), "GPU Device Serials": {"0": "165001"}, "version": "3.3.8"}


def third(gpu: int, status: str, warning: str = "", number: int = 0, severity: int = 0) -> dict[str, Any]:
    """A result as of DCGM 4.x."""
    warnings = [{"warning": warning, "error_id": number, "error_category": 10, "error_severity": severity}]
    result = {
        "entity_group": "GPU",
        "entity_group_id": 1,
        "entity_id": gpu,
        "status": status,
        "info": [],
        "warnings": warnings,
    }
    entities = [{"entity_group": "GPU", "entity_group_id": 1, "entities": [{"entity_id": 0, "serial_num": "165001"}]}]
    return document(result, entity_groups=entities, metadata={"version": "4.6.0"})


def told(document: object) -> list[tuple[Impact, str]]:
    assert dcgm.recognises(document)
    return [(finding.impact, finding.device) for finding in dcgm.read(document)]


@pytest.mark.parametrize("status", ["Pass", "PASS", "Skip", "SKIP", ""])
def test_what_passed_or_did_not_run_tells_nothing(status: str) -> None:
    for made in (first("0,1", status, "GPU 0 is hot"), second("0", status, "x", 95, 2), third(0, status, "x", 95, 2)):
        assert told(made) == []


def test_a_failure_names_its_gpus_in_every_generation() -> None:
    hot = "Thermal violations totaling 13.3 seconds started at 9.7 seconds into the test"
    assert told(first("0,3", "FAIL", hot)) == [(Impact.SLOWS, "0"), (Impact.SLOWS, "3")]
    assert told(second("3", "Fail", hot, 41, 1)) == [(Impact.SLOWS, "3")]
    assert told(third(3, "Fail", hot, 41, 1)) == [(Impact.SLOWS, "3")]


@pytest.mark.parametrize("make", [second, third])
@pytest.mark.parametrize(
    ("number", "severity", "bearing"),
    [(95, 2, Impact.CONVICTS), (94, 2, Impact.TELLS_NOTHING), (13, 2, Impact.CONVICTS), (85, 6, Impact.RESET), (30, 4, Impact.SUSPECTS),
     (999, 2, Impact.CONVICTS), (999, 3, Impact.SUSPECTS), (29, 5, Impact.TELLS_NOTHING)],
)  # fmt: skip
def test_numbers_come_before_severities(make: Any, number: int, severity: int, bearing: Impact) -> None:
    assert told(make(0, "Fail", "words of no rule", number, severity)) == [(bearing, "0")]


@pytest.mark.parametrize("make", [second, third])
def test_the_serial_number_stands_beside_the_index(make: Any) -> None:
    (found,) = dcgm.read(make(0, "Fail", "x", 52, 2))
    assert "GPU 0, serial 165001" in found.what and found.code == "DCGM Memory"


def test_a_warning_never_convicts() -> None:
    assert told(third(0, "Warn", "x", 95, 2)) == [(Impact.SUSPECTS, "0")]
    assert told(first("0", "Warn", "words of no rule")) == []


def test_cuda_that_does_not_start_anywhere_is_a_setting_of_the_host() -> None:
    made = first("0,1,2,3,4,5,6,7", "Fail - All", "Error using CUDA API cuInit: system not yet initialized")
    found = dcgm.read(made)
    assert {f.impact for f in found} == {Impact.SUSPECTS} and all("not replace GPUs" in f.what for f in found)


def test_what_could_not_run_accuses_nobody() -> None:
    assert told(first("0", "Fail", "The EUD is not running as root")) == [(Impact.TELLS_NOTHING, "0")]
    assert told({"DCGM Diagnostic": {"runtime_error": "host engine gone"}}) == [(Impact.TELLS_NOTHING, "")]


def test_a_summary_speaks_for_a_test_without_results() -> None:
    made = {"DCGM Diagnostic": {"test_categories": [{"tests": [{"name": "eud", "test_summary": {"status": "Fail"}}]}]}}
    assert told(made) == [(Impact.SUSPECTS, "")]


def test_the_text_of_a_failure_may_stand_in_any_shape() -> None:
    for warnings in ("GPU 3 has uncorrectable memory errors and row remappings are pending", ["row remapping is pending"],
                     [{"warning": "pending row remap"}]):  # fmt: skip
        made = document({"gpu_ids": "3", "status": "Fail", "warnings": warnings}, key="DCGM GPU Diagnostic")
        assert told(made) == [(Impact.RESET, "3")]


@pytest.mark.parametrize(
    "made",
    [None, [], {}, {"a": 1}, {"DCGM Diagnostic": []}, {"DCGM Diagnostic": {}}, {"DCGM GPU Diagnostic": {"test_categories": "Pass"}}],
)  # fmt: skip
def test_other_shapes_are_refused_by_name(made: object) -> None:
    with refused("damaged-gpu-report", UnreadableEvidence, "DCGM"):
        dcgm.read(made)


def test_half_a_document_is_refused_by_name() -> None:
    text = json.dumps(third(0, "Fail"))
    with refused("damaged-json", UnreadableEvidence):
        read_json(text[: len(text) // 2])


KEYS = st.sampled_from(
    ["DCGM Diagnostic", "DCGM GPU Diagnostic", "test_categories", "tests", "results", "status", "gpu_id", "gpu_ids", "warnings", "warning",
     "error_id", "error_severity", "entity_id", "entity_group", "entity_groups", "entities", "serial_num", "name", "test_summary", "info"]
)  # fmt: skip
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["Fail", "Warn", "0,1", "cuInit"]),
    lambda inside: st.lists(inside, max_size=4) | st.dictionaries(KEYS, inside, max_size=6),
    max_leaves=30,
)
RESULTS = st.dictionaries(KEYS, VALUES, max_size=6)
SHAPED = st.lists(RESULTS, max_size=4).map(lambda results: document(*results))


@given(VALUES | SHAPED | RESULTS.flatmap(lambda r: st.just(document({**r, "status": "Fail"}))))
def test_any_document_is_read_or_refused_and_what_is_kept_can_be_shown(made: object) -> None:
    assert dcgm.recognises(made) in (True, False)
    try:
        for found in dcgm.read(made):
            assert found.what.isprintable() and found.device.isprintable() and len(found.what) <= 800
    except UnreadableEvidence as error:
        assert str(error)


def corpus(case: str) -> dict[str, tuple[Finding, ...]]:
    files = sorted(CORPUS.glob(f"{case}*/machine-*/dcgm-diag.json"))
    if not files:
        pytest.skip(f"no corpus beside this repository: {case}")
    return {p.parent.name.removeprefix("machine-"): dcgm.read(json.loads(p.read_text())) for p in files}


def test_corpus_passes_fails_for_heat_and_fails_for_memory() -> None:
    assert set(corpus("024").values()) == {()}
    assert [(f.impact, f.device) for f in corpus("025a")["dgx-a"]] == [(Impact.SLOWS, "0")]
    assert [(f.impact, f.device) for f in corpus("025b")["dgx-c"]] == [(Impact.RESET, "3")]
