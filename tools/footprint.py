"""Checks that docs/footprint.md shows the table of what the agent opens; with `--fix`, rewrites it."""

import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "agent" / "hangdog_agent" / "footprint.toml"
PAGE = ROOT / "docs" / "footprint.md"
#: What stands between these lines of the page is made.
BEGIN, END = "<!-- footprint: made by `make docs FIX=1` -->\n", "<!-- end of footprint -->\n"
#: What a feature may open, and how the page calls it.
KINDS = {
    "reads": "reads",
    "writes": "writes",
    "links": "follows, or asks where it leads",
    "programs": "runs",
    "sockets": "connections",
    "calls": "system calls",
}


def main() -> None:
    if sys.argv[1:] not in ([], ["--fix"]):
        sys.exit("usage: footprint.py [--fix]")
    old = PAGE.read_text(encoding="utf-8")
    new = renewed(old, TABLE.read_text(encoding="utf-8"))
    if sys.argv[1:]:
        PAGE.write_text(new, encoding="utf-8")
    elif new != old:
        sys.exit("docs/footprint.md differs from agent/hangdog_agent/footprint.toml; run `make docs FIX=1`")


def renewed(page: str, table: str) -> str:
    """The page with the features of the table, which is TOML."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + BEGIN + shown(tomllib.loads(table)["feature"]) + END + after


def shown(features: list[dict[str, Any]]) -> str:
    lines = ["", "| feature | for | turned off by | capabilities | files opened as |", "|---|---|---|---|---|"]
    for one in features:
        switch = f"`{one['switch']}`" if one.get("switch") else ""
        capabilities = ", ".join(f"`{name}`" for name in one.get("capabilities", ()))
        whose = "the trainer's user" if one.get("rights") == "trainer" else "the agent"
        lines.append(f"| {one['name']} | {one['why']} | {switch} | {capabilities} | {whose} |")
    for one in features:
        lines += ["", f"**{one['name']}**", ""]
        for kind, called in KINDS.items():
            if one.get(kind):
                lines.append(f"- {called}: {', '.join(f'`{each}`' for each in one[kind])}")
    return "\n".join([*lines, "", ""])


if __name__ == "__main__":
    main()
