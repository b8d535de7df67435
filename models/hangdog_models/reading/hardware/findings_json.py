"""Reads and writes findings as hangdog itself keeps them: what agents' checks found, which no log of theirs holds any more."""

import math
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.findings import Finding, Impact
from hangdog_models.ranks import MAX_RANK, Rank
from hangdog_models.reading.json_document import int_of, text_of
from hangdog_models.reading.limits import DEFAULTS, Limits

SCHEMA = "hangdog.findings/1"
#: Findings of one file: the two hundred that are taken of each of 16,384 machines would all be of one cluster-wide event.
_MOST = 1 << 17
#: Ranks and peers that one finding names, and how often it was seen.
_NAMED, _TIMES = 4096, 1 << 31


def recognises(document: object) -> bool:
    """Whether a JSON document holds findings of hangdog."""
    return isinstance(document, dict) and document.get("schema") == SCHEMA


def written(findings: Iterable[Finding]) -> dict[str, Any]:
    """The document that `read` reads."""
    return {"schema": SCHEMA, "findings": [row(finding) for finding in findings]}


def row(finding: Finding) -> dict[str, Any]:
    """One finding as JSON holds it; what it means for the machine is called `bearing` there, as in files of before."""
    fields = asdict(finding)
    return {"bearing" if key == "impact" else key: value for key, value in fields.items()}


def read(document: object, limits: Limits = DEFAULTS) -> tuple[Finding, ...]:
    """The findings of a document; raises UnreadableEvidence where there are none that make sense."""
    stated = document.get("findings") if isinstance(document, dict) else None
    if not isinstance(stated, list) or len(stated) > _MOST or not all(isinstance(one, dict) for one in stated):
        raise UnreadableEvidence(f"not findings of hangdog: no list of up to {_MOST}", code="wrong-schema")
    return tuple(_finding(one, limits) for one in stated)


def _finding(stated: dict[str, Any], limits: Limits) -> Finding:
    try:
        impact = Impact(text_of(stated.get("bearing"), limits))
    except ValueError:
        impact = Impact.TELLS_NOTHING  # a newer hangdog's word
    rank = _rank(stated.get("rank"))
    return Finding(
        source=text_of(stated.get("source"), limits),
        code=text_of(stated.get("code"), limits),
        impact=impact,
        what=text_of(stated.get("what"), limits),
        machine=text_of(stated.get("machine"), limits),
        rank=rank,
        device=text_of(stated.get("device"), limits),
        ranks=tuple(one for one in map(_rank, _listed(stated.get("ranks"))) if one is not None),
        peers=tuple(text_of(peer, limits) for peer in _listed(stated.get("peers"))),
        at_s=_seconds(stated.get("at_s")),
        uptime_s=_seconds(stated.get("uptime_s")),
        age_s=_seconds(stated.get("age_s")),
        times=min(max(int_of(stated.get("times")) or 1, 1), _TIMES),
    )


def _listed(value: object) -> list[object]:
    return value[:_NAMED] if isinstance(value, list) else []


def _rank(value: object) -> Rank | None:
    number = int_of(value)
    return Rank(number) if number is not None and 0 <= number <= MAX_RANK else None


def _seconds(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and value >= 0 else None
