"""Reads and writes findings as hangdog itself keeps them: what agents' checks found, which no log of theirs holds any more."""

import math
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.findings import Bearing, Finding
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
    return {"schema": SCHEMA, "findings": [asdict(finding) for finding in findings]}


def read(document: object, limits: Limits = DEFAULTS) -> tuple[Finding, ...]:
    """The findings of a document; raises UnreadableEvidence where there are none that make sense."""
    said = document.get("findings") if isinstance(document, dict) else None
    if not isinstance(said, list) or len(said) > _MOST or not all(isinstance(one, dict) for one in said):
        raise UnreadableEvidence(f"not findings of hangdog: no list of up to {_MOST}")
    return tuple(_finding(one, limits) for one in said)


def _finding(said: dict[str, Any], limits: Limits) -> Finding:
    try:
        bearing = Bearing(text_of(said.get("bearing"), limits))
    except ValueError:
        bearing = Bearing.TELLS_NOTHING  # a newer hangdog's word
    rank = _rank(said.get("rank"))
    return Finding(
        source=text_of(said.get("source"), limits),
        code=text_of(said.get("code"), limits),
        bearing=bearing,
        what=text_of(said.get("what"), limits),
        machine=text_of(said.get("machine"), limits),
        rank=rank,
        device=text_of(said.get("device"), limits),
        ranks=tuple(one for one in map(_rank, _listed(said.get("ranks"))) if one is not None),
        peers=tuple(text_of(peer, limits) for peer in _listed(said.get("peers"))),
        at_s=_seconds(said.get("at_s")),
        uptime_s=_seconds(said.get("uptime_s")),
        age_s=_seconds(said.get("age_s")),
        times=min(max(int_of(said.get("times")) or 1, 1), _TIMES),
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
