"""Reads the JSON of `dcgmi diag -j`, three generations of it: what failed, on which GPU, and what that means.

Up to 3.0 the key is `DCGM GPU Diagnostic`, a result names `gpu_ids` and has texts only; 3.1 to 3.3 give `gpu_id` and numbered
warnings; 4.x names entities and their serial numbers. Tests that did not run are absent or skipped and say nothing.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.findings import Finding, Impact
from hangdog_models.reading.json_document import int_of, text_of
from hangdog_models.reading.limits import DEFAULTS, Limits
from hangdog_models.reading.printable import printable
from hangdog_models.rules import policy
from hangdog_models.rules.meaning import Meaning

SOURCE = "DCGM diagnosis"

#: Findings kept of one document; a machine has at most 16 GPUs and some twenty tests.
_MOST = 1_000
#: Characters of a failure's text that are searched for known words, and that a finding quotes.
_SEARCHED, _QUOTED = 2_000, 160
#: Tests that a sentence names.
_NAMED = 8
_DEVICE = re.compile(r"[0-9]{1,4}")


@dataclass(frozen=True, slots=True)
class _Result:
    """One result of one test: the devices it speaks of, and its warnings as (text, error number, severity)."""

    test: str
    status: str
    devices: tuple[str, ...]
    warnings: tuple[tuple[str, int | None, int | None], ...]


def recognises(document: object) -> bool:
    """Whether a JSON document is a diagnosis of DCGM."""
    return isinstance(document, dict) and _key(document) is not None


def read(document: object, limits: Limits = DEFAULTS) -> tuple[Finding, ...]:
    """The findings of a diagnosis; raises UnreadableEvidence where it is none or has no tests where they should stand."""
    key = _key(document) if isinstance(document, dict) else None
    if not isinstance(document, dict) or key is None:
        raise UnreadableEvidence("not a DCGM diagnosis: no key `DCGM … Diagnostic`", code="damaged-gpu-report")
    inside = document[key]
    if not isinstance(inside, dict):
        raise UnreadableEvidence(f"not a DCGM diagnosis: {key!r} holds no table", code="damaged-gpu-report")
    categories = inside.get("test_categories")
    if not isinstance(categories, list):
        if text := _runtime_error(document, inside, limits):
            return (Finding(SOURCE, "DCGM did not run", Impact.TELLS_NOTHING, f"the diagnosis could not run: {text}"),)
        raise UnreadableEvidence("not a DCGM diagnosis: test_categories is no list", code="damaged-gpu-report")
    serials = _serials(document, limits)
    found: dict[tuple[str, str, Impact], Finding] = {}
    for result in _results(categories, limits):
        for finding in _of_result(result, serials):
            if len(found) < _MOST:
                found.setdefault((finding.code, finding.device, finding.impact), finding)
    return tuple(found.values())


def passed(document: object, limits: Limits = DEFAULTS) -> tuple[str, ...]:
    """The tests of a diagnosis that ran and passed, by name: without any, a diagnosis that found nothing tested nothing."""
    inside = document.get(_key(document) or "") if isinstance(document, dict) else None
    categories = inside.get("test_categories") if isinstance(inside, dict) else None
    results = _results(categories, limits) if isinstance(categories, list) else ()
    ran = (one.test for one in results if one.status.strip().lower().startswith("pass"))
    return tuple(name for name, _ in zip(dict.fromkeys(ran), range(_MOST), strict=False))


def sound(document: object, limits: Limits = DEFAULTS) -> tuple[Finding, ...]:
    """What is told of a diagnosis that found nothing: which tests passed."""
    tests = passed(document, limits)
    more = f" and {len(tests) - _NAMED} more" if len(tests) > _NAMED else ""
    what = f"all tests that ran passed: {', '.join(tests[:_NAMED])}{more}" if tests else "no test ran"
    return (Finding(SOURCE, "passed" if tests else "no test ran", Impact.TELLS_NOTHING, what),)


def _key(document: Mapping[object, object]) -> str | None:
    return next((str(k) for k in document if str(k).startswith("DCGM") and "Diagnostic" in str(k)), None)


def _results(categories: Sequence[object], limits: Limits) -> Iterator[_Result]:
    for category in _tables(categories):
        for test in _tables(category.get("tests")):
            name = printable(text_of(test.get("name"), limits), 64) or "a test"
            results = _tables(test.get("results"))
            for result in results:
                warnings = tuple(_warnings(result.get("warnings"), limits)) or tuple(
                    _warnings(result.get("info"), limits)
                )
                yield _Result(name, text_of(result.get("status"), limits), _devices(result, limits), warnings)
            summary = test.get("test_summary")
            if not results and isinstance(summary, dict):
                yield _Result(
                    name, text_of(summary.get("status"), limits), (), tuple(_warnings(summary.get("warnings"), limits))
                )


def _of_result(result: _Result, serials: Mapping[str, str]) -> Iterator[Finding]:
    status = result.status.strip().lower()
    failed = status.startswith("fail")
    if not failed and not status.startswith("warn"):
        return
    rules = policy.dcgm()
    for text, error, severity in result.warnings or (("", None, None),):
        meaning = rules.of(text[:_SEARCHED], error, severity)
        impact = meaning.impact
        if not failed:  # a warning is a remark beside a passed test
            if meaning is rules.failed:
                continue
            impact = Impact.SUSPECTS if impact in (Impact.CONVICTS, Impact.RESET) else impact
        for device in result.devices or ("",):
            yield Finding(
                SOURCE, f"DCGM {result.test}", impact, _sentence(result.test, meaning, text, device, serials), device=device
            )  # fmt: skip


def _sentence(test: str, meaning: Meaning, text: str, device: str, serials: Mapping[str, str]) -> str:
    serial = f", serial {serials[device]}" if device in serials else ""
    subject = f"DCGM {test}, GPU {device}{serial}" if device else f"DCGM {test}"
    quoted = printable(text, _QUOTED)
    advice = f"; {meaning.action}" if meaning.action else ""
    return printable(f"{subject}: {meaning.says}{advice}" + (f' ("{quoted}")' if quoted else ""), 800)


def _devices(result: Mapping[str, object], limits: Limits) -> tuple[str, ...]:
    """Indexes of GPUs, in any generation's way of naming them; other entities (CPU, switch) by their kind and number."""
    group = text_of(result.get("entity_group"), limits)
    entity = int_of(result.get("entity_id"))
    if entity is not None:
        return (str(entity),) if group in ("", "GPU") else (f"{printable(group, 40)} {entity}",)
    named = result.get("gpu_id", result.get("gpu_ids"))
    if (one := int_of(named)) is not None:
        return (str(one),) if one >= 0 else ()
    listed = text_of(named, limits)
    return tuple(dict.fromkeys(_DEVICE.findall(listed)))[:256]


def _warnings(value: object, limits: Limits) -> Iterator[tuple[str, int | None, int | None]]:
    """Texts with error number and severity: one text, a list of texts, or a list of tables."""
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, dict):
            text = text_of(item.get("warning"), limits) or text_of(item.get("info"), limits)
            yield text, int_of(item.get("error_id")), int_of(item.get("error_severity"))
        elif isinstance(item, str) and item.strip():
            yield text_of(item, limits), None, None


def _serials(document: Mapping[str, object], limits: Limits) -> dict[str, str]:
    """Serial number of each GPU by its index: 3.1 and later list them."""
    by_index = document.get("GPU Device Serials")
    found = {str(k): text_of(v, limits) for k, v in by_index.items()} if isinstance(by_index, dict) else {}
    for group in _tables(document.get("entity_groups")):
        if group.get("entity_group") in ("GPU", None):
            for entity in _tables(group.get("entities")):
                serial = text_of(entity.get("serial_num"), limits)
                if serial:
                    found[str(int_of(entity.get("entity_id")))] = serial
    return {index: printable(serial, 40) for index, serial in found.items() if serial}


def _runtime_error(document: Mapping[str, object], inside: Mapping[str, object], limits: Limits) -> str:
    return printable(text_of(inside.get("runtime_error") or document.get("runtime_error"), limits), _QUOTED)


def _tables(value: object) -> list[dict[str, object]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
