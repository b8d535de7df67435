"""Reports of diagnoses come from sick machines: what is no report is said, what is wrong in one costs that part only."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.reading.hardware.test_report import LIMITS, SCHEMA, Blamed, OneTest, read_diagnosis

RESULT = {
    "test": "gemm",
    "outcome": "fail",
    "says": "wrong\x1b[2J",
    "repetitions": 21,
    "convicts": [{"sort": "device", "names": ["cuda:3"]}],
}


def report(**more: Any) -> str:
    level = {"level": 1, "name": "one device", "skipped": "", "results": [RESULT]}
    return json.dumps({"schema": SCHEMA, "levels": [level], "parts": {"cuda:3": "GPU-1"}, "remarks": ["x"], **more})


def test_a_report_is_read() -> None:
    read = read_diagnosis(report())
    said = "wrong\\x1b[2J"
    assert read.tests == (OneTest(1, "one device", "gemm", "fail", said, (Blamed("device", ("cuda:3",)),), 21),)
    assert (read.parts, read.remarks, read.skipped) == ({"cuda:3": "GPU-1"}, ("x",), {})


def test_what_a_test_says_of_itself_is_believed_only_as_far_as_it_makes_sense() -> None:
    strange = {"outcome": "healthy", "repetitions": 10**30, "says": 7, "test": None, "convicts": "me"}
    passed = {**RESULT, "outcome": "pass", "repetitions": -5}
    level = {"level": "x", "name": ["?"], "results": [strange, 7, passed]}
    first, second = read_diagnosis(report(levels=[level, "no level"])).tests
    assert (first.outcome, first.repetitions, first.says, first.test) == ("inconclusive", 0, "", "")
    assert (second.outcome, second.blamed, second.repetitions) == ("pass", (), 0), "a pass blames nobody"


@pytest.mark.parametrize(
    "text",
    ["", "7", "[]", "{}", '{"schema": "hangdog.verdict/1"}', "[" * 5000, report(x="y" * LIMITS.file_bytes), "\0"],
)
def test_what_is_no_report_is_said(text: str) -> None:
    with pytest.raises(UnreadableEvidence):
        read_diagnosis(text)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    max_leaves=9,
)


@given(levels=JSON, parts=JSON, remarks=JSON, result=JSON)
def test_whatever_stands_in_it_it_is_read_or_refused(levels: Any, parts: Any, remarks: Any, result: Any) -> None:
    read_diagnosis(report(levels=levels, parts=parts, remarks=remarks))
    read_diagnosis(report(levels=[{"results": [result, {**RESULT, "convicts": [result], "outcome": result}]}]))
