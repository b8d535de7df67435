"""The table of log lines that say something: dated knowledge in TOML, matched against one line at a time."""

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources

from hangdog_models.errors import OurFault
from hangdog_models.findings import Impact


@dataclass(frozen=True, slots=True)
class LogRow:
    """One row: `match` finds the line's meaning where one of the `hints` stands in it. `source` says where we know it from."""

    code: str
    match: re.Pattern[str]
    hints: tuple[str, ...]
    impact: Impact
    what: str
    source: str


@dataclass(frozen=True, slots=True)
class Table:
    """All rows in their order; `hints` are those of all."""

    name: str
    rows: tuple[LogRow, ...]
    hints: tuple[str, ...]

    def find(self, line: str) -> tuple[LogRow, re.Match[str]] | None:
        """The first row that matches a line, with its match."""
        found = {hint for hint in self.hints if hint in line}
        if not found:
            return None
        for row in self.rows:
            if not found.isdisjoint(row.hints) and (match := row.match.search(line)):
                return row, match
        return None


@cache
def packaged() -> Table:
    """The table of what stands in logs of jobs."""
    return _packaged("log_table.toml")


@cache
def cluster() -> Table:
    """The table of what schedulers say."""
    return _packaged("cluster_table.toml")


def _packaged(name: str) -> Table:
    return parse(resources.files(__package__ or "").joinpath(name).read_text(encoding="utf-8"))


def parse(text: str) -> Table:
    """Reads the text of a table; raises OurFault where a row says something that cannot be meant."""
    try:
        document = tomllib.loads(text)
        rows = tuple(
            LogRow(
                row["code"], re.compile(row["match"]), tuple(row["hints"]), Impact(row["bearing"]), row["what"],
                row["source"],
            )
            for row in document["line"]
        )  # fmt: skip
        return Table(document["name"], rows, tuple(dict.fromkeys(hint for row in rows for hint in row.hints)))
    except (KeyError, TypeError, ValueError, re.error) as error:
        raise OurFault(f"the table of log lines is wrong: {error}", code="damaged-rules") from error
