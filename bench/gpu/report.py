"""Writes what was measured: all of it as JSON, and for people a Markdown page with a table for each family of parts."""

from collections.abc import Iterator, Sequence
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
    names = list(dict.fromkeys(name for entry in entries for name in entry.figures))
    yield f"| part | {' | '.join(names)} | seconds |"
    yield f"|---|{'---|' * len(names)}---:|"
    for entry in entries:
        which = entry.part.partition("/")[2]
        cells = " | ".join(_shown(entry.figures.get(name, "")) for name in names)
        yield f"| {which} | {cells} | {entry.seconds:g} |"


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list | tuple):
        return ", ".join(_shown(one) for one in value) or "none"
    if value is None:
        return "unknown"
    return str(value).replace("|", "\\|").replace("\n", " ")
