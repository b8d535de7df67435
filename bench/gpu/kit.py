"""Runs the parts of the proof one after another within a time, each once: what one measured is on disk the moment it is known."""

import json
import os
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

#: Lines kept of what went wrong inside a part.
TRACE_LINES = 12


@dataclass(frozen=True, slots=True)
class Stand:
    """Where the proof runs. `python` runs trainers and agents, `out` holds what is kept, `scratch` what is not."""

    python: Path
    out: Path
    scratch: Path
    #: Without a GPU: gloo, a fake NVML, and stand-ins for what a device does.
    dry: bool
    #: Whether each hang is kept as a bundle in `out/bundles`.
    record: bool = False

    def folder(self, name: str) -> Path:
        """A new empty folder for a part's own files."""
        base = self.scratch / name.replace("/", "-")
        made, number = base, 1
        while made.exists():
            number += 1
            made = base.with_name(f"{base.name}-{number}")
        made.mkdir(parents=True)
        return made


class NotHere(Exception):
    """This machine does not let a part run; the words say why. Nothing is wrong with hangdog."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What a part measured: figures by name, in the order they are shown, and what ought not to be so."""

    figures: Mapping[str, Any]
    wrong: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Part:
    """One thing that is measured. The name is `family/which`; parts of one family are columns of one table."""

    name: str
    #: It takes so long at most, on a machine that does nothing else. Seconds.
    expected_s: float
    measure: Callable[[Stand], Measured]

    @property
    def family(self) -> str:
        return self.name.partition("/")[0]


class Outcome(StrEnum):
    DONE = "done"
    #: It broke off: to be run again by the next slice.
    FAILED = "failed"
    NOT_HERE = "not here"


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A part that was run, as one line of the journal."""

    part: str
    outcome: Outcome
    seconds: float
    figures: dict[str, Any] = {}
    wrong: list[str] = []
    #: Why it failed or cannot run here.
    why: str = ""


@dataclass(slots=True)
class Journal:
    """The parts that were run: a file of JSON lines that survives a kill at any point."""

    path: Path
    entries: list[Entry] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.path.exists():
            return
        for line in self.path.read_bytes().splitlines():
            try:
                self.entries.append(msgspec.json.decode(line, type=Entry))
            except msgspec.DecodeError:  # the line that a kill cut short
                continue

    def write(self, entry: Entry) -> None:
        self.entries.append(entry)
        line = msgspec.json.encode(entry) + b"\n"
        with self.path.open("ab") as file:
            if file.tell() and not self.path.read_bytes().endswith(b"\n"):
                line = b"\n" + line
            file.write(line)
            file.flush()
            os.fsync(file.fileno())

    def latest(self) -> dict[str, Entry]:
        """The last entry of each part."""
        return {entry.part: entry for entry in self.entries}

    def settled(self) -> frozenset[str]:
        """The parts that need not run again: done, impossible here, or failed twice."""
        failed = [entry.part for entry in self.entries if entry.outcome is Outcome.FAILED]
        twice = {part for part in failed if failed.count(part) > 1}
        return frozenset(part for part, entry in self.latest().items() if entry.outcome is not Outcome.FAILED) | twice


def run(
    parts: Iterable[Part], stand: Stand, journal: Journal, until: float, tell: Callable[[str], None]
) -> tuple[str, ...]:
    """Runs what is not settled yet and fits before `until` (steady clock); answers the names of what is left."""
    left = []
    for part in _fresh_first([part for part in parts if part.name not in journal.settled()], journal):
        if time.monotonic() + part.expected_s > until:
            left.append(part.name)
            continue
        tell(f"{part.name} (up to {part.expected_s:.0f} s)")
        entry = _run(part, stand)
        journal.write(entry)
        tell(f"  {entry.outcome} after {entry.seconds:.1f} s {entry.why or json.dumps(entry.figures)[:300]}")
        for words in entry.wrong:
            tell(f"  WRONG: {words}")
        if part.name not in journal.settled():
            left.append(part.name)
    return tuple(left)


def _fresh_first(parts: Sequence[Part], journal: Journal) -> Iterator[Part]:
    """Those that broke off come last: they must not use up the time of the others again."""
    ran = journal.latest()
    yield from (part for part in parts if part.name not in ran)
    yield from (part for part in parts if part.name in ran)


def _run(part: Part, stand: Stand) -> Entry:
    began = time.monotonic()

    def entry(outcome: Outcome, **more: Any) -> Entry:
        return Entry(part.name, outcome, round(time.monotonic() - began, 1), **more)

    try:
        measured = part.measure(stand)
    except NotHere as error:
        return entry(Outcome.NOT_HERE, why=str(error))
    except Exception as error:  # noqa: BLE001 - whatever one part meets, the others are still worth running
        with (stand.out / "failures.txt").open("a") as log:
            log.write(f"== {part.name}\n{traceback.format_exc()}\n")
        return entry(Outcome.FAILED, why=f"{type(error).__name__}: {error}"[:600])
    return entry(
        Outcome.DONE,
        figures=dict(measured.figures),
        wrong=list(measured.wrong),
    )
