"""Every command that a page or a hint tells people to type is there, with the options it is given."""

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from hangdog.main import LINES, main
from hangdog_agent.main import _parser

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("agent", "server", "models", "proto", "cli", "deploy", "tools")
KINDS = (".py", ".html", ".sh", ".yaml", ".service")
PAGES = [ROOT / "README.md", ROOT / "AGENTS.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
SOURCES = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*")) if path.suffix in KINDS]
#: A command goes on as long as there are words of a command line; prose around it ends it.
HANGDOG = re.compile(rf"\bhangdog ({'|'.join(LINES)})\b([^`\n#|;,)]*)")
OPTION = re.compile(r"(?:^|\s)(--[a-z][a-z-]*)")


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def given(rest: str) -> set[str]:
    """The options of a command line that are its own: not those of what is quoted, or stands behind `--`."""
    return set(OPTION.findall(re.sub(r"'[^']*'", "", rest).partition(" -- ")[0]))


def commands(command: click.Command, name: str) -> Iterator[tuple[str, set[str]]]:
    """All commands below one, each with the options it takes."""
    yield name, {option for one in command.params for option in (*one.opts, *one.secondary_opts)} | {"--help"}
    if isinstance(command, click.Group):
        for below in command.list_commands(click.Context(command)):
            found = command.get_command(click.Context(command), below)
            assert found is not None
            yield from commands(found, f"{name} {below}".strip())


def takes(parser: argparse.ArgumentParser) -> set[str]:
    return {option for action in parser._actions for option in action.option_strings}


KNOWN = dict(commands(main, ""))


@pytest.mark.parametrize("paths", [PAGES, SOURCES], ids=["pages", "hints"])
def test_a_command_that_people_are_told_is_there(paths: list[Path]) -> None:
    told = 0
    for path in paths:
        for name, rest in HANGDOG.findall(read(path)):
            below = f"{name} {rest.split()[0]}" if rest.split() else name
            known = takes(_parser()) if name == "agent" else KNOWN[below if below in KNOWN else name]
            assert given(rest) <= known, f"{path}: hangdog {name}{rest}"
            told += 1
        for rest in re.findall(r"\bhangdog-agent ([^`\n#|;,)]*)", read(path)):
            assert given(rest) <= takes(_parser()), f"{path}: hangdog-agent {rest}"
    assert told > 100


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_benchmark_or_a_target_that_a_page_names_is_there(page: Path) -> None:
    makefile = read(ROOT / "Makefile")
    for script, rest in re.findall(r"python (bench/[\w/.]*\w)([^`\n#|]*)", read(page)):
        where = ROOT / script
        source = read(where) if where.is_file() else "".join(map(read, (where / "__main__.py", *where.rglob("*.py"))))
        assert not [option for option in given(rest) if f'"{option}"' not in source], script
    for target, variable in re.findall(r"(?:`|^)make ([a-z-]+)(?: ([A-Z]+)=)?", read(page), re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
        assert not variable or re.search(rf"\$\((or \$\()?{variable}\b", makefile), variable
