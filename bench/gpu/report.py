"""Writes what was measured: all of it as JSON, and for people a Markdown page with a table for each family of parts."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from gpu.kit import Entry, Journal, Outcome


def write(out: Path, journal: Journal) -> None:
    """Writes report.json and report.md into the folder of results."""
    entries = list(journal.latest().values())
    (out / "report.json").write_bytes(
        msgspec.json.format(msgspec.json.encode({"schema": "hangdog.gpu/1", "parts": entries}), indent=1) + b"\n"
    )
    (out / "report.md").write_text("\n".join(_page(entries)) + "\n")


def _page(entries: Sequence[Entry]) -> Iterator[str]:
    done = [entry for entry in entries if entry.outcome is Outcome.DONE]
    wrong = [(entry.part, words) for entry in entries for words in entry.wrong]
    yield f"{len(done)} of {len(entries)} parts done, {len(wrong)} findings."
    for family in dict.fromkeys(entry.part.partition("/")[0] for entry in entries):
        own = [entry for entry in entries if entry.part.partition("/")[0] == family]
        yield from ("", f"## {family}", "")
        yield from _table([entry for entry in own if entry.outcome is Outcome.DONE])
        for entry in own:
            if entry.rows:
                yield from ("", f"{entry.part}:", "", *_rows(entry.rows))
            if entry.outcome is not Outcome.DONE:
                yield f"- {entry.part}: {entry.outcome}: {entry.why}"
    if wrong:
        yield from ("", "## what is wrong", "")
        yield from (f"- {part}: {words}" for part, words in wrong)


def _table(entries: Sequence[Entry]) -> Iterator[str]:
    """A row a part; a family of one part has a row a figure."""
    if not entries:
        return
    if len(entries) == 1:
        yield from ("| | |", "|---|---|")
        yield from (f"| {name} | {_shown(value)} |" for name, value in entries[0].figures.items())
        yield f"| seconds | {entries[0].seconds:g} |"
        return
    yield from _rows(
        [{"part": entry.part.partition("/")[2], **entry.figures, "seconds": entry.seconds} for entry in entries]
    )


def _rows(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    names = list(dict.fromkeys(name for row in rows for name in row))
    yield f"| {' | '.join(names)} |"
    yield f"|{'---|' * len(names)}"
    for row in rows:
        yield f"| {' | '.join(_shown(row.get(name, '')) for name in names)} |"


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list | tuple):
        return ", ".join(_shown(one) for one in value) or "none"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_shown(one)}" for name, one in value.items()) or "none"
    if value is None:
        return "unknown"
    return str(value).replace("|", "\\|").replace("\n", " ")
