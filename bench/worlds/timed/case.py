"""A case of the world: a folder with the bundle of an incident, and beside it what is expected of a verdict."""

from collections.abc import Iterator
from pathlib import Path

from hangdog_models.ranks import format_ranks
from worlds.timed.evidence.bundle import write
from worlds.timed.expected.expectation import expected, lines
from worlds.timed.expected.visible import Visible
from worlds.timed.incident import Incident, incident
from worlds.timed.scenarios.kinds import Kind, deal

#: What the verdict of each class of incidents is called.
_KINDS = {"healthy": "none"}


def cases(folder: Path, count: int, seed: int, *, first: bool = False) -> Iterator[Path]:
    """Writes so many cases; the same for the same arguments."""
    for at, (kind, job) in enumerate(deal(count, seed, first=first)):
        yield case(folder / f"{at:03}-{kind.name}", kind, job, f"{seed}-{at}")


def case(folder: Path, kind: Kind, job: str, seed: str) -> Path:
    """Writes one case."""
    made = incident(kind, job, seed)
    visible = Visible(made, write(made, folder / "bundle"))
    text = "\n".join((*_head(made, seed), *lines(expected(visible)))) + "\n"
    (folder / "expected.toml").write_text(text, encoding="utf-8")
    return folder


def _head(made: Incident, seed: str) -> Iterator[str]:
    scene, kind = made.scene, made.kind
    yield f'title = "{made.job.name}, {made.layout.world_size} ranks: {kind.name}"'
    yield f'source = "bench/worlds/timed, {seed}"'
    yield 'fidelity = "S"'
    who = f"ranks {format_ranks(scene.ranks)} on {', '.join(scene.machines)}" if scene.ranks else "nobody"
    yield f'ground_truth = "{_KINDS.get(kind.family, kind.family)}: {kind.name}; {who}"'
    if kind.family == "healthy":
        yield "control = true"
