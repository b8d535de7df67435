"""The analysers: each its own command line, and which ranks its output names as those that hold the job up."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hangdog_models.ranks import parse_ranks
from peers.environment import NVRX_HOME, NVRX_MODULE
from peers.recordings import Recording

#: What starts an analyser and measures it.
MEASURED = (sys.executable, "-I", "-S", str(Path(__file__).with_name("measured.py")))
#: After so many seconds an analyser is stopped.
PATIENCE_S = 300
#: From this probability a suspect of hangdog counts as named: below it, hangdog says that it does not know.
NAMED_FROM = 0.5

#: The ranks that each report names, in the order in which they are printed.
Reports = list[frozenset[int]]


@dataclass(frozen=True, slots=True)
class Answer:
    """What an analyser says of a recording, in how many seconds and MiB; `failed` is why it says nothing."""

    reports: Reports
    seconds: float
    mib: int
    failed: str = ""

    @property
    def named(self) -> frozenset[int]:
        return frozenset[int]().union(*self.reports)


@dataclass(frozen=True, slots=True)
class Analyser:
    """`reports` reads what it printed to its output and its error output. `well` are the exit statuses of an answer."""

    name: str
    command: Callable[[Recording], list[str]]
    reports: Callable[[str, str], Reports]
    environ: Mapping[str, str] = field(default_factory=dict)
    well: tuple[int, ...] = (0,)

    def asked(self, recording: Recording, scratch: Path) -> Answer:
        printed, complained, measured = (scratch / name for name in ("printed", "complained", "measured"))
        command = [*MEASURED, str(measured), "timeout", str(PATIENCE_S), *self.command(recording)]
        with printed.open("wb") as out, complained.open("wb") as err:
            subprocess.run(command, stdout=out, stderr=err, env={**os.environ, **self.environ}, check=True)
        used = json.loads(measured.read_bytes())
        said, errors = (path.read_text(errors="replace").replace(f"{scratch}/", "") for path in (printed, complained))
        if used["status"] not in self.well:
            why = "no answer in time" if used["status"] == 124 else (errors.strip().splitlines() or ["?"])[-1][:60]
            return Answer([], used["seconds"], used["mib"], why)
        return Answer(self.reports(said, errors), used["seconds"], used["mib"])


def analysers(torchfrtrace: Path) -> tuple[Analyser, ...]:
    return (
        Analyser(
            "hangdog",
            lambda recording: [sys.executable, "-m", "hangdog", "triage", str(recording.bundle), "--format", "json"],
            lambda printed, _: of_hangdog(printed), well=(0, 1, 2),
        ),
        Analyser(
            "torchfrtrace", lambda recording: [str(torchfrtrace), str(recording.folder)],
            lambda printed, errors: of_torchfrtrace(printed + errors),
        ),
        Analyser(
            "fr_attribution",
            lambda recording: [sys.executable, "-m", NVRX_MODULE, "--fr-path", str(recording.folder), "--emit-stdout"],
            lambda printed, _: of_fr_attribution(printed), {"PYTHONPATH": str(NVRX_HOME)},
        ),
    )  # fmt: skip


def of_hangdog(printed: str) -> Reports:
    """The suspects that it is sure enough of; none where it says that it does not know, or that the job moves."""
    verdict = json.loads(printed)
    return [frozenset(parse_ranks(one["ranks"])) for one in verdict["suspects"] if one["probability"] >= NAMED_FROM]


def of_torchfrtrace(printed: str) -> Reports:
    """The ranks that it misses in an operation, or calls culprits; what it says of other operations names nobody."""
    found = re.finditer(r"missing ranks: \{([\d, ]+)\}|Culprit rank (\d+)", printed)
    return [frozenset(int(number) for number in re.findall(r"\d+", one[1] or one[2])) for one in found]


def of_fr_attribution(printed: str) -> Reports:
    """The column of missing ranks of the table that it ends with, as its own code takes the hanging ranks from it."""
    _, _, table = printed.rpartition("Missing Ranks")
    rows = (line.split("|") for line in table.splitlines() if line.count("|") >= 5)
    return [ranks for row in rows if (ranks := frozenset(int(one) for one in re.findall(r"\d+", row[-1])))]
