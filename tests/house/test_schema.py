"""The verdict's JSON schema: it ships, it fits what we write, and it refuses what the contract does not allow."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner
from hypothesis import given

from hangdog.main import main
from hangdog_models.verdict import Activity, Kind, Verdict, from_json, to_json
from support.cases.strategies import verdicts

#: The example of the contract, as the outside world was shown it.
EXAMPLE: dict[str, Any] = {
    "schema": "hangdog.verdict/1",
    "job": {"id": "llama-70b-run7", "world_size": 1024},
    "verdict": "machine",
    "confidence": 0.97,
    "because": ["rank 517 is in gc_collect, outside any collective"],
    "suspects": [{"ranks": "517", "machines": ["node-64"], "probability": 0.97, "because": ["no other rank is"]}],
    "evict": {"machines": ["node-64"], "coverage": 0.97},
    "groups": [{"dim": "pp", "ranks": "5,133,261,389,517", "why": "stuck together"}],
    "clusters": [
        {
            "id": 0,
            "size": 960,
            "ranks": "0-959",
            "activity": "collective",
            "dim": "mp",
            "label": "get_grad_norm_fp32",
            "stack": ["outermost", "innermost"],
        }
    ],
    "coverage": {
        "expected": 1024,
        "captured": 1023,
        "missing": "17",
        "failed": {"17": "py-spy: Permission denied"},
    },
    "evidence": {"files_read": 1031, "ignored": [], "unreadable": {"x.json": "not JSON"}},
    "rules": "torch@2026-11",
}


def schema() -> dict[str, Any]:
    return json.loads(files("hangdog_models").joinpath("verdict.schema.json").read_text("utf-8"))  # type: ignore[no-any-return]


def valid(document: dict[str, Any], against: dict[str, Any] | None = None) -> bool:
    return jsonschema.Draft202012Validator(against or schema()).is_valid(document)


def objects(node: Any) -> Iterator[dict[str, Any]]:
    """Every sub-schema that lists the properties of an object."""
    if isinstance(node, dict):
        if "properties" in node and node.get("type") == "object":
            yield node
        for child in node.values():
            yield from objects(child)
    elif isinstance(node, list):
        for child in node:
            yield from objects(child)


def rounded(verdict: Verdict) -> Verdict:
    found = verdict.culprit
    parts = {cause: round(p, 3) for cause, p in found.causes.items()} if found else {}
    return replace(
        verdict,
        confidence=round(verdict.confidence, 3),
        suspects=tuple(replace(suspect, probability=round(suspect.probability, 3)) for suspect in verdict.suspects),
        evict=replace(verdict.evict, coverage=round(verdict.evict.coverage, 3)),
        causes={cause: round(p, 3) for cause, p in verdict.causes.items()},
        culprit=found and replace(found, probability=round(found.probability, 3), causes=parts),
    )


def test_the_schema_is_itself_valid_and_is_what_the_command_prints() -> None:
    jsonschema.Draft202012Validator.check_schema(schema())
    printed = CliRunner().invoke(main, ["schema", "verdict"])
    assert printed.exit_code == 0
    assert json.loads(printed.stdout) == schema()


@given(verdicts())
def test_whatever_we_write_fits_and_no_property_is_left_undescribed(verdict: Verdict) -> None:
    closed = schema()
    for description in objects(closed):
        description.setdefault("additionalProperties", False)
    document = json.loads(json.dumps(to_json(verdict)))
    jsonschema.validate(document, closed)
    assert from_json(document) == rounded(verdict)


def test_the_words_of_the_schema_are_the_words_of_the_code() -> None:
    properties = schema()["properties"]
    assert properties["verdict"]["enum"] == [str(kind) for kind in Kind]
    activities = properties["clusters"]["items"]["properties"]["activity"]["enum"]
    assert activities == [str(activity) for activity in Activity]


def test_the_example_of_the_contract_fits_also_with_what_a_later_version_adds() -> None:
    assert valid(EXAMPLE)
    assert valid(EXAMPLE | {"timeline": []})
    assert valid(EXAMPLE | {"coverage": EXAMPLE["coverage"] | {"rounds": 5}})


@pytest.mark.parametrize(
    "wrong",
    [
        {"verdict": "node"},
        {"schema": "hangdog.verdict/2"},
        {"confidence": 1.5},
        {"confidence": "high"},
        {"evict": {"machines": ["node-64"], "coverage": 0.97, "unless": "node-64 is healthy"}},
        {"evict": {"machines": [""], "coverage": 0.97}},
        {"verdict": "software"},
        {"verdict": "undetermined"},
        {"suspects": [{"ranks": "0-", "machines": [], "probability": 0.5, "because": []}]},
        {"suspects": [{"ranks": [517], "machines": [], "probability": 0.5, "because": []}]},
        {"groups": [{"dim": None, "ranks": "0", "why": ""}]},
        {"coverage": EXAMPLE["coverage"] | {"failed": {"17": 13}}},
        {"job": {"id": "x"}},
    ],
    ids=lambda wrong: json.dumps(wrong)[:50],
)
def test_what_the_contract_forbids_does_not_fit(wrong: dict[str, Any]) -> None:
    assert not valid(EXAMPLE | wrong)


@pytest.mark.parametrize("name", sorted(EXAMPLE))
def test_nothing_may_be_left_out(name: str) -> None:
    assert not valid({key: value for key, value in EXAMPLE.items() if key != name})


def test_documents_are_named_by_one_word_and_a_version() -> None:
    """Programs recognise a document by it: a name that follows a module's would change when that moves."""
    root = Path(__file__).resolve().parents[2]
    rooms = ("agent", "server", "models", "proto", "cli")
    texts = [path.read_text(encoding="utf-8") for room in rooms for path in (root / room).rglob("*.py")]
    names = {name for text in texts for name in re.findall(r"[\"'`](hangdog\.[\w.-]+/\d+)[\"'`]", text)}
    assert "hangdog.verdict/1" in names
    assert [name for name in sorted(names) if not re.fullmatch(r"hangdog\.[a-z]+(-[a-z]+)*/\d+", name)] == []


def test_a_verdict_of_before_the_codes_is_read_with_empty_ones() -> None:
    old = from_json(EXAMPLE)
    assert [(one.code, one.text) for one in old.because] == [("", EXAMPLE["because"][0])]
    assert to_json(old)["because_codes"] == [""] and valid(to_json(old))
    with pytest.raises(ValueError):
        from_json({**EXAMPLE, "because_codes": []})
