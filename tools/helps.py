"""Checks that the help texts in the README and the docs are what the commands print; with `--fix`, rewrites them.

A help text stands below a mark, `<!-- help: hangdog triage -->`, in the next fenced block.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"(<!-- help: (?P<command>[^\n]+?) -->\n+```[a-z]*\n)(?:[^\n]*\n)*?(?P<end>```)")
#: How each command of ours is started without relying on PATH.
MODULES = {"hangdog": "hangdog", "hangdog-agent": "hangdog_agent.main"}


def main() -> None:
    if sys.argv[1:] not in ([], ["--fix"]):
        sys.exit("usage: helps.py [--fix]")
    wrong = []
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        old = page.read_text(encoding="utf-8")
        new = BLOCK.sub(lambda block: f"{block[1]}{printed(block['command'])}\n{block['end']}", old)
        if new != old:
            wrong.append(str(page.relative_to(ROOT)))
            if sys.argv[1:]:
                page.write_text(new, encoding="utf-8")
    if wrong and not sys.argv[1:]:
        sys.exit(f"help texts differ from what the commands print: {', '.join(wrong)}; run `make docs FIX=1`")


def printed(command: str) -> str:
    """What the command prints for `--help`, 80 columns wide."""
    name, *rest = command.split()
    asked = [sys.executable, "-m", MODULES[name], *rest, "--help"]
    plain = {name: value for name, value in os.environ.items() if not name.startswith("HANGDOG_")} | {"COLUMNS": "80"}
    answer = subprocess.run(asked, capture_output=True, text=True, env=plain, check=False)
    if answer.returncode != 0:
        sys.exit(f"`{command} --help` failed:\n{answer.stderr}")
    return answer.stdout.rstrip()


if __name__ == "__main__":
    main()
