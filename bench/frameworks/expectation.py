"""What is expected of the verdict on a recording, in the format of the corpus, and what a verdict misses of it."""

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from frameworks.cases import Case
from frameworks.environment import FRAMEWORKS, WORLD, Framework
from hangdog.evidence.open_bundle import open_bundle
from hangdog_models import topology
from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.ranks import format_ranks, parse_ranks
from hangdog_models.snapshot import Snapshot
from hangdog_models.topology import Layout
from hangdog_models.verdict import Verdict

#: A recording is judged as a whole and by its first look alone; where the job's parallel sizes are told, also without them.
LOOKS = ("several", "one")
UNTOLD = ("several-untold", "one-untold")
RECORDINGS = Path(__file__).resolve().parents[2] / "tests" / "recordings" / "frameworks"
MISSES = RECORDINGS / "known_misses.toml"


def ways(recording: Path) -> tuple[str, ...]:
    """How a recording is judged."""
    told = any(framework.sizes for name, framework in FRAMEWORKS.items() if recording.name.startswith(f"{name}-"))
    return (*LOOKS, *UNTOLD) if told else LOOKS


def evidence(recording: Path) -> Path:
    """The bundle of a recording; the older ones are packed by gzip, which takes twice as much."""
    return next(recording.glob("bundle.tar.*"))


def judge(recording: Path, looks: str) -> Verdict:
    bundle = evidence(recording)
    snapshot, layout = _opened(bundle, bundle.stat().st_mtime_ns)
    if looks.startswith("one"):
        snapshot = replace(snapshot, rounds=snapshot.rounds[:1], interval_s=None)
    if looks in UNTOLD:
        layout = replace(layout, sizes={})
    built, _ = topology.build(layout, snapshot.highest_rank())
    return diagnose(snapshot, built)


@lru_cache(maxsize=2)
def _opened(bundle: Path, written_ns: int) -> tuple[Snapshot, Layout]:
    """A recording is judged in up to four ways, one after the other: it is read once for all of them."""
    return open_bundle(bundle)


def expected(recording: Path, looks: str) -> dict[str, Any]:
    """The expectation of a recording; a table `one_look` in it holds what differs for a single look."""
    return _for(looks, (recording / "expected.toml").read_text())


def expected_live(framework: Framework, case: Case) -> dict[str, Any]:
    """The same of a case that is played, recorded or not."""
    return _for("several", written(framework, case, ()))


def _for(looks: str, text: str) -> dict[str, Any]:
    table = tomllib.loads(text)
    other: Mapping[str, Any] = table.pop("one_look", {})
    return {**table, **other} if looks.startswith("one") else table


def missed(verdict: Verdict, want: Mapping[str, Any]) -> list[str]:
    """What a verdict misses; nothing when it is right."""
    found = []
    kind, evicted = str(verdict.kind), set(verdict.evict.machines)
    if kind not in want["verdict"]:
        found.append(f"verdict {kind}, accepted: {'/'.join(want['verdict'])}")
    ranks = set(parse_ranks(want.get("must_include_ranks", "")))
    if ranks and kind != "none":
        named: set[int] = set()
        for suspect in verdict.suspects:
            named |= set(suspect.ranks)
            if ranks <= named:
                break
        if not ranks <= named:
            found.append(f"ranks not among the suspects: {format_ranks(sorted(ranks - named))}")
        elif len(named) > want.get("suspect_ranks_at_most", WORLD):
            found.append(f"suspected before the right one: {format_ranks(sorted(named - ranks))}")
    if wrong := evicted & set(want.get("must_not_evict", [])):
        found.append(f"evicts {' '.join(sorted(wrong))}")
    if len(evicted) > want["evict_at_most"]:
        found.append(f"evicts {len(evicted)} machines, at most {want['evict_at_most']}")
    return found


def known_misses() -> dict[tuple[str, str], str]:
    """Recordings that today's diagnosis gets wrong, by name and looks, with what it does not see."""
    table = tomllib.loads(MISSES.read_text()) if MISSES.exists() else {}
    return {(one["recording"], one["looks"]): one["reason"] for one in table.get("miss", [])}


def written(framework: Framework, case: Case, found: tuple[int, ...]) -> str:
    """The `expected.toml` of a case; `found` are the ranks that the agent found by itself."""
    ranks = case.ranks(framework.name)
    names = [f"node-{rank}" for rank in range(WORLD) if not (case.evict_at_most and rank in ranks)]
    version = " ".join(framework.packages) or framework.script
    lines = [
        f"title = {_text(f'{framework.name}: {case.truth}')}",
        f"source = {_text(f'recorded for this project: {version}, torch 2.13.0 (gloo, CPU), {WORLD} processes')}",
        'fidelity = "V"',
        f"evidence = {_texts(['stacks', 'proc', 'rounds', *([] if case.fault else ['control'])])}",
        f"ground_truth = {_text(f'{case.truth} (rank {format_ranks(ranks)})')}",
        f"verdict = {_texts(case.verdicts)}",
    ]
    if case.named:
        lines += [f'must_include_ranks = "{format_ranks(ranks)}"', "suspect_ranks_at_most = 1"]
    lines += [
        f"must_not_evict = {_texts(names)}",
        f"evict_at_most = {case.evict_at_most}",
        f"note = {_text(f'Each rank is shown as a machine of its own. The agent finds {len(found)} of {WORLD} ranks by itself.')}",
    ]
    if case.one_look:
        lines += ["", "[one_look]", f"verdict = {_texts((*case.verdicts, *case.one_look))}"]
    return "\n".join(lines) + "\n"


def _text(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _texts(texts: object) -> str:
    return "[" + ", ".join(_text(text) for text in texts) + "]"  # type: ignore[attr-defined]
