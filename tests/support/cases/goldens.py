"""What commands tell, held to golden files that a person has read; HANGDOG_REGENERATE=1 writes them anew, then read the diff."""

import asyncio
import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from click.testing import CliRunner
from rich.cells import cell_len

from hangdog.main import main
from hangdog_models.incident import Incident
from hangdog_server.store import actions
from support.servers.cast import Stage


def differing(golden: Path, text: str) -> str:
    """The text where the golden file holds another one; empty where it holds this."""
    if os.environ.get("HANGDOG_REGENERATE"):
        golden.parent.mkdir(parents=True, exist_ok=True)
        golden.write_text(text, encoding="utf-8")
    return "" if golden.exists() and golden.read_text(encoding="utf-8") == text else f"{golden.name}:\n{text}"


def entry(line: str, shown: str, *, wide: bool = False) -> str:
    """What a golden file holds of a command line: as it was typed, and what it told in 80 columns, or in any number (`wide`)."""
    for one in shown.splitlines():
        assert one.isprintable() and (wide or cell_len(one) <= 80), one
    return f"$ hangdog {line}\n" + "".join(f"{one.rstrip()}\n" for one in shown.splitlines())


def typed_here(line: str, status: int = 0) -> str:
    """What a command line prints that asks no server."""
    result = CliRunner().invoke(main, shlex.split(line))
    assert result.exit_code == status, f"{line}: {result.output}"
    return result.stdout


@dataclass
class Desk:
    """Where commands are typed to one server. `made` are words of command lines with the names they stand for, which are
    made at random; `shown` is what golden files have instead, as wide as those. `wide` names files whose lines may be longer.
    """

    on: Stage
    folder: Path
    shown: Mapping[str, str]
    wide: tuple[str, ...] = ()
    made: dict[str, str] = field(default_factory=dict)

    async def typed(self, line: str, status: int = 0) -> str:
        """What a command line prints."""
        words = " ".join(self.made.get(word, word) for word in line.split(" "))
        return await asyncio.to_thread(typed_here, f"{words} --server {self.on.address}", status)

    async def differs(self, asked: str, status: int = 0) -> str:
        """What a command line, which may be `FILE: LINE`, prints where its golden file holds something else; else nothing."""
        name, line = asked.split(": ") if ": " in asked else (asked.partition(" ")[0], asked)
        shown = await self.typed(line, status)
        for word, made in self.made.items():
            shown = shown.replace(made, self.shown.get(word, word))
        shown = re.sub(r"\b\d+ (?:s|min) ago *", lambda found: "0 s ago".ljust(len(found[0])), shown)
        typed = " ".join(self.shown.get(word, word) for word in line.split(" "))
        return differing(self.folder / f"{name}.txt", entry(typed, shown, wide=name in self.wide))

    async def until(self, incident: str, state: str) -> None:
        """Returns once something of the incident is in that state."""
        async with asyncio.timeout(60):
            while f" {state} " not in await self.typed(f"actions {incident}"):
                await asyncio.sleep(0.02)

    async def proposed(self, incident: Incident) -> None:
        """Returns once what its verdict asks for is written down."""
        async with asyncio.timeout(60):
            while incident.evict and not await self.on.store.ask(actions.of, incident.id):
                await asyncio.sleep(0.02)
