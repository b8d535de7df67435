"""Reads policy files, dated and with a source in every row, and refuses rows that are not valid."""

import re
import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources
from typing import Any

from hangdog_models.errors import OurFault
from hangdog_models.findings import Impact
from hangdog_models.rules.meaning import DcgmPolicy, HardwareEvent, HardwarePart, KernelPolicy, Meaning, XidPolicy

#: The files used; readers do not choose, so one line means the same everywhere.
XID, KERNEL, DCGM = "xid@2026-11", "kernel@2026-11", "dcgm@2026-11"
#: Seconds: what happened so much earlier than the newest event of its clock is another story. The longest patience between
#: a fault and what follows it is NCCL's watchdog with 30 minutes, twice that is room for a job that sets it higher.
OLD_S = 3600.0
#: Seconds after which an event is another story whatever follows. Evidence of a hang is taken within a working day of it,
#: while ring buffers and files hold weeks.
STALE_S = 86_400.0
#: Seconds that a kernel log's dates, which are its machine's local ones, may be earlier than Unix time and what containers write.
ZONES_S = 12 * 3600.0
#: How a PCI address is written in `pattern`: domain of 4 to 8 digits, with or without the function.
_ADDRESS = r"(?P<device>[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}(?:\.[0-9a-f])?)"


def parse_xid(text: str) -> XidPolicy:
    """Reads a policy for Xid and SXid lines; raises OurFault if a row is not valid."""
    with _Strict(text) as document:
        codes: dict[int, list[Meaning]] = {}
        for row in document["xid"]:
            meaning = _meaning(row, {"codes", "when", "defers"})
            for code in _numbers(row["codes"]):
                codes.setdefault(code, []).append(meaning)
        rows = {code: _closed(meanings, f"Xid {code}") for code, meanings in codes.items()}
        switch = _closed([_meaning(row, {"when"}) for row in document["sxid"]], "SXid")
        return XidPolicy(document["name"], rows, switch, _meaning(document["unlisted"]))


def parse_kernel(text: str) -> KernelPolicy:
    """Reads a policy for other kernel lines; raises OurFault if a row is not valid."""
    with _Strict(text) as document:
        events = tuple(_event(row) for row in document["event"])
        codes = {event.code for event in events if event.meaning}
        if unknown := {code for event in events for code in event.clears} - codes:
            raise ValueError(f"clears what no row finds: {sorted(unknown)}")
        places = tuple(
            HardwarePart(_text(row, "code"), tuple(row["functions"]), _meaning(row, {"code", "functions", "reads"}))
            for row in document["frame"]
        )
        return KernelPolicy(document["name"], events, places)


def parse_dcgm(text: str) -> DcgmPolicy:
    """Reads a policy for failed DCGM tests; raises OurFault if a row is not valid."""
    with _Strict(text) as document:
        words = tuple(_meaning(row, {"when"}) for row in document["words"])
        if any(meaning.when is None for meaning in words):
            raise ValueError("a row of words has no words")
        errors = _unique((n, _meaning(row, {"ids"})) for row in document["error"] for n in _numbers(row["ids"]))
        severities = _unique((int(row["level"]), _meaning(row, {"level"})) for row in document["severity"])
        return DcgmPolicy(document["name"], words, errors, severities, _meaning(document["failed"]))


@cache
def xid(name: str = XID) -> XidPolicy:
    """The packaged policy for Xid and SXid lines."""
    return parse_xid(_packaged(name))


@cache
def kernel(name: str = KERNEL) -> KernelPolicy:
    """The packaged policy for other kernel lines."""
    return parse_kernel(_packaged(name))


@cache
def dcgm(name: str = DCGM) -> DcgmPolicy:
    """The packaged policy for failed DCGM tests."""
    return parse_dcgm(_packaged(name))


def _packaged(name: str) -> str:
    return resources.files(__package__).joinpath(f"{name}.toml").read_text(encoding="utf-8")


class _Strict:
    """Turns everything that can be wrong with a policy file into OurFault that names the file."""

    def __init__(self, text: str) -> None:
        try:
            self._document = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise OurFault(f"policy file: {error}", code="damaged-rules") from error

    def __enter__(self) -> Mapping[str, Any]:
        return self._document

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, KeyError | ValueError | TypeError | re.error):
            raise OurFault(f"policy file {self._document.get('name')!r}: {error}", code="damaged-rules") from error


def _event(row: Mapping[str, Any]) -> HardwareEvent:
    own = {"code", "needle", "pattern", "reads", "clears", "echo", "names_gpu", "of_named_gpu", "trace"}
    if not re.search(r"\d", _text(row, "reads")):
        raise ValueError(f"{row['code']!r} does not say which versions it was read off")
    needle = _text(row, "needle")
    if needle != needle.lower():
        raise ValueError(f"needle {needle!r} is not in lower case")
    meaning = None
    if "bearing" in row:
        meaning = _meaning(row, own)
    elif not row.get("clears") and not row.get("names_gpu"):
        raise ValueError(f"{row['code']!r} has no bearing, clears nothing and remembers nothing")
    elif unknown := set(row) - own - {"source"}:
        raise ValueError(f"{row['code']!r} has unknown keys {sorted(unknown)}")
    pattern = re.compile(_text(row, "pattern").replace("%PCI%", _ADDRESS), re.IGNORECASE)
    flags = {key: row[key] is True for key in ("echo", "names_gpu", "of_named_gpu", "trace") if key in row}
    return HardwareEvent(
        _text(row, "code"), needle, pattern, row["reads"], meaning, tuple(row.get("clears", ())), **flags
    )


def _meaning(row: Mapping[str, Any], own: Iterable[str] = ()) -> Meaning:
    if unknown := set(row) - {"bearing", "says", "source", "action", "disputed"} - set(own):
        raise ValueError(f"row {row.get('says')!r} has unknown keys {sorted(unknown)}")
    when = re.compile(row["when"], re.IGNORECASE) if "when" in row else None
    defers = row.get("defers", False) is True
    if defers and (when is None or "other" not in when.groupindex):
        raise ValueError(f"row {row.get('says')!r} defers to an <other> that it does not name")
    return Meaning(
        Impact(row["bearing"]), _text(row, "says"), _text(row, "source"), row["action"], row.get("disputed", ""), when, defers
    )  # fmt: skip


def _text(row: Mapping[str, Any], key: str) -> str:
    value = row[key]
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{key} = {value!r} says nothing")
    return value


def _numbers(value: object) -> list[int]:
    if not isinstance(value, list) or not value or not all(type(n) is int and 0 < n < 100_000 for n in value):
        raise ValueError(f"{value!r} is no list of codes")
    return value


def _closed(meanings: list[Meaning], what: str) -> tuple[Meaning, ...]:
    """The rows of one code: conditions first, and one without a condition at the end."""
    if meanings[-1].when is not None or any(meaning.when is None for meaning in meanings[:-1]):
        raise ValueError(f"{what}: exactly the last row has no `when`")
    return tuple(meanings)


def _unique(rows: Iterable[tuple[int, Meaning]]) -> dict[int, Meaning]:
    found: dict[int, Meaning] = {}
    for number, meaning in rows:
        if number in found:
            raise ValueError(f"{number} stands in two rows")
        found[number] = meaning
    return found
