"""Healthy jobs beside real servers and agents, side by side, for hours of real time; and what came of it, as a table."""

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from healthy.table import NAMING, rule_of_three


def play_all(frameworks: Sequence[str], phases: Sequence[str], hours: float, seed: int, log: Path) -> int:
    """One shift a framework, each in a process of its own, for `hours` of real time each; answers how many of them failed."""
    program = [
        sys.executable,
        str(Path(__file__).parent),
        "shift",
        "--hours",
        str(hours),
        "--seed",
        str(seed),
        "--log",
        str(log),
    ]
    chosen = [word for phase in phases for word in ("--phase", phase)]
    shifts = [subprocess.Popen([*program, "--only", name, *chosen]) for name in frameworks]
    return sum(bool(shift.wait()) for shift in shifts)


def read(log: Path) -> list[dict[str, Any]]:
    """What was played, each incident once, as it was told last."""
    rows: dict[str, dict[str, Any]] = {}
    for number, line in enumerate(log.read_text().splitlines()):
        row = json.loads(line)
        incident = row.get("incident")
        key = f"{row['framework']} {incident['id']}" if incident else str(number)
        if incident and key in rows:  # where it began is known best by the first line
            row |= {name: rows[key][name] for name in ("phase", "pace_s", "age_s")}
        rows[key] = row
    return list(rows.values())


def table(rows: Iterable[Mapping[str, Any]]) -> str:
    """Hours by framework and phase with what was opened in each, then each incident, then the sum."""
    seconds: dict[tuple[str, str], float] = defaultdict(float)
    opened: list[Mapping[str, Any]] = []
    notes: list[str] = []
    for row in rows:
        if "incident" in row:
            opened.append(row)
        elif "note" in row:
            notes.append(f"{row['framework']}: {row['note'].splitlines()[0]}")
        else:
            seconds[row["framework"], row["phase"]] += row["seconds"]
    lines = ["| framework | phase | hours | incidents | names a machine | evicts |", "|---|---|---:|---:|---:|---:|"]
    for (framework, phase), spent in sorted(seconds.items()):
        own = [row for row in opened if (row["framework"], row["phase"]) == (framework, phase)]
        lines.append(
            f"| {framework} | {phase} | {spent / 3600.0:.2f} | {len(own)} | {sum(map(_names, own))} | {sum(map(_evicts, own))} |"
        )
    lines += [
        "",
        "| framework | machines | phase | step s | age of the phase s | why | verdicts | evicts | went on after s | because |",
    ]
    lines += ["|---|---:|---|---:|---:|---|---|---|---:|---|"] if opened else []
    for row in opened:
        one = row["incident"]
        lines.append(
            f"| {row['framework']} | {row['machines']} | {row['phase']} | {row['pace_s']} | {row['age_s']:.0f} | {one['why']} "
            f"| {', '.join(one['kinds'])} | {' '.join(one['evict']) or '-'} | {one['went_on_s']:.0f} | {'; '.join(one['because'])} |"
        )
    hours, named = sum(seconds.values()) / 3600.0, sum(map(_names, opened))
    decisions = sum(map(_evicts, opened))
    lines += ["", *(f"- {note}" for note in notes)]
    lines.append(
        f"{hours:.1f} run-hours: {len(opened)} incidents ({100.0 * len(opened) / max(hours, 1e-9):.1f} in 100 h), of which {named} "
        f"name a machine or group; decisions: {decisions}{rule_of_three(hours, decisions)}"
    )
    return "\n".join(lines)


def _names(row: Mapping[str, Any]) -> bool:
    return any(kind in NAMING for kind in row["incident"]["kinds"])


def _evicts(row: Mapping[str, Any]) -> bool:
    return bool(row["incident"]["evict"])
