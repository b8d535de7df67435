"""Findings as hangdog keeps them: written and read back alike, and read suspiciously."""

import json

import pytest

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.findings import Finding, Impact
from hangdog_models.ranks import MAX_RANK, Rank
from hangdog_models.reading.hardware import findings_json
from support.refused import refused

FULL = Finding(
    "kernel log", "Xid 79", Impact.CONVICTS, "GPU fell off the bus", "a", Rank(3), "0000:1", (Rank(1),), ("10.0.0.2:5",),
    1.5, 2.5, 7,
)  # fmt: skip
PLAIN = Finding("NVML", "hot", Impact.SLOWS, "hot")


def test_what_is_written_is_read_back() -> None:
    document = json.loads(json.dumps(findings_json.written([FULL, PLAIN])))
    assert findings_json.recognises(document) and findings_json.read(document) == (FULL, PLAIN)


def test_nonsense_in_a_finding_costs_only_itself() -> None:
    odd = {
        "source": 7, "code": "x" * 9999, "bearing": "damns", "what": "a\x1b[2Jb", "rank": MAX_RANK + 1, "ranks": [-1, "2", None, 4],
        "peers": "all", "at_s": float("inf"), "uptime_s": True, "times": -5,
    }  # fmt: skip
    (found,) = findings_json.read({"schema": findings_json.SCHEMA, "findings": [odd]})
    assert (found.impact, found.rank, found.ranks, found.peers) == (Impact.TELLS_NOTHING, None, (2, 4), ())
    assert (found.at_s, found.uptime_s, found.times, found.machine) == (None, None, 1, "")
    assert found.what == "a\\x1b[2Jb" and len(found.code) == 4096


@pytest.mark.parametrize(
    "document", [None, [], {}, {"findings": 3}, {"findings": [3]}, {"findings": [{}] * ((1 << 17) + 1)}]
)
def test_what_holds_no_findings_is_refused(document: object) -> None:
    assert not findings_json.recognises(document)
    with refused("wrong-schema", UnreadableEvidence):
        findings_json.read(document)
