"""The cases of a world: the simulator of the benchmark, recordings of real frameworks, and any folder of cases."""

import argparse
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from accuracy.simulator.incident import Truth
from accuracy.simulator.make import default_set, incident
from accuracy.trial import quick
from frameworks import expectation
from hangdog.evidence.open_bundle import open_bundle
from hangdog_models import topology
from hangdog_models.ranks import format_ranks
from hangdog_models.snapshot import Snapshot
from hangdog_models.topology import Topology

#: Where the evidence of a case of a folder is, if it is not beside `expected.toml`.
EVIDENCE = ("bundle", "bundle.tar.gz")


@dataclass(frozen=True, slots=True)
class Case:
    """One piece of evidence of a world, and what is wanted of the verdict, by the keys of `expected.toml`."""

    world: str
    name: str
    snapshot: Snapshot
    topology: Topology
    want: Mapping[str, Any]


def named(text: str) -> tuple[str, Path]:
    """A world and one of its folders, as an option of a command names them."""
    world, _, folder = text.partition("=")
    if not folder or not Path(folder).is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is not WORLD=FOLDER with a folder that is there")
    return world, Path(folder)


def of_folder(folder: Path, world: str) -> Iterator[Case]:
    """The cases of a folder: each a folder with `expected.toml` and the evidence beside it, in `bundle/` or in `bundle.tar.gz`."""
    for path in sorted(folder.rglob("expected.toml")):
        want = tomllib.loads(path.read_text(encoding="utf-8"))
        evidence = next((path.parent / name for name in EVIDENCE if (path.parent / name).exists()), path.parent)
        snapshot, layout = open_bundle(evidence)
        shape, _ = topology.build(layout, snapshot.highest_rank())
        yield Case(world, str(path.parent.relative_to(folder)), snapshot, shape, want)


def simulated(incidents: int) -> Iterator[Case]:
    """Some incidents of the benchmark's simulator, every fault as often as every other, at each level of evidence."""
    for seed, ranks, fault in quick(default_set(), incidents):
        made = incident(seed, ranks, fault)
        for evidence, snapshot in made.snapshots.items():
            name = f"{fault} ({seed} {ranks}, {evidence})"
            yield Case("simulator", name, snapshot, made.topology, _wanted(made.truth, made.topology))


def recorded() -> Iterator[Case]:
    """Recordings of real trainers, each as a whole and by its first look alone."""
    for recording in sorted(path for path in expectation.RECORDINGS.iterdir() if path.is_dir()):
        snapshot, layout = open_bundle(expectation.evidence(recording))
        shape, _ = topology.build(layout, snapshot.highest_rank())
        for looks in expectation.LOOKS:
            seen = replace(snapshot, rounds=snapshot.rounds[:1], interval_s=None) if looks == "one" else snapshot
            want = expectation.expected(recording, looks)
            yield Case("frameworks", f"{recording.name} ({looks})", seen, shape, want)


def _wanted(truth: Truth, shape: Topology) -> Mapping[str, Any]:
    link = truth.family == "link"
    return {
        "verdict": [str(kind) for kind in truth.kinds],
        "ground_truth": f"{truth.fault}; ranks {format_ranks(truth.at_work)}" if truth.at_work else truth.fault,
        "must_include_machines": truth.sought,
        # of a link that fails nobody can tell which end it is
        "must_not_evict": () if link else sorted(set(shape.machines).difference(truth.machines)),
        "evict_at_most": 2 if link else len(truth.machines),
    }
