"""Writes what was measured: all of it as JSON, and for people a Markdown page with a table for each family of parts."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from gpu.kit import Entry, Journal, Outcome

#: Figures longer than this stand below the table, not in it. Characters.
LONGEST = 60


def write(out: Path, journal: Journal) -> None:
    """Writes report.json and report.md into the folder of results."""
    entries = list(journal.latest().values())
    document = msgspec.json.encode({"schema": "hangdog.gpu/1", "parts": entries})
    (out / "report.json").write_bytes(msgspec.json.format(document, indent=1) + b"\n")
    (out / "report.md").write_text("\n".join(page(entries)) + "\n")


def page(entries: Sequence[Entry]) -> Iterator[str]:
    """The lines of the page."""
    done = [entry for entry in entries if entry.outcome is Outcome.DONE]
    wrong = [(entry.part, words) for entry in entries for words in entry.wrong]
    yield f"{len(done)} of {len(entries)} parts done, {len(wrong)} findings."
    for family in dict.fromkeys(entry.part.partition("/")[0] for entry in entries):
        own = [entry for entry in entries if entry.part.partition("/")[0] == family]
        yield from ("", f"## {family}", "")
        yield from _family([entry for entry in own if entry.outcome is Outcome.DONE])
        yield from (
            f"- {entry.part}: {entry.outcome}: {entry.why}" for entry in own if entry.outcome is not Outcome.DONE
        )
    if wrong:
        yield from ("", "## what is wrong", "")
        yield from (f"- {part}: {words}" for part, words in wrong)


def _family(entries: Sequence[Entry]) -> Iterator[str]:
    """A column a part, a row a figure; what is too long for a cell stands below, a line each."""
    if not entries:
        return
    names = list(dict.fromkeys(name for entry in entries for name in entry.figures))
    cells = {name: [_shown(entry.figures.get(name, "")) for entry in entries] for name in names}
    short = [name for name in names if max(map(len, cells[name])) <= LONGEST]
    yield f"| | {' | '.join(entry.part.partition('/')[2] for entry in entries)} |"
    yield f"|---|{'---|' * len(entries)}"
    yield from (f"| {name} | {' | '.join(cells[name])} |" for name in short)
    yield f"| seconds | {' | '.join(f'{entry.seconds:g}' for entry in entries)} |"
    for entry in entries:
        own = [name for name in entry.figures if name not in short]
        if own:
            yield from ("", f"**{entry.part}**", "")
            for name in own:
                yield from _told(name, entry.figures[name])


def _told(name: str, value: Any) -> Iterator[str]:
    if isinstance(value, Mapping) and len(_shown(value)) > LONGEST:
        yield f"- {name}"
        yield from (f"  - {key}: {_shown(one)}" for key, one in value.items())
    else:
        yield f"- {name}: {_shown(value)}"


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list | tuple):
        return ", ".join(_shown(one) for one in value) or "none"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_shown(one)}" for name, one in value.items()) or "none"
    if value is None:
        return "unknown"
    return str(value).replace("|", "\\|").replace("\n", " ")
