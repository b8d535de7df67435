"""A scene as the compact JSON that a page's script draws from: each name, stack and rank set is told once."""

from collections.abc import Mapping
from typing import Any

from hangdog_models.ranks import Rank, format_ranks
from hangdog_models.reading.printable import printable
from hangdog_models.stack import Frame
from hangdog_models.verdict import Verdict
from hangdog_models.views.grid import Axis, run_lengths
from hangdog_models.views.incident_view import IncidentView
from hangdog_models.views.unique_stacks import ProcessView, shown

#: Characters of one name on the page; the longest honest ones are C++ symbols, whose head tells all.
NAME = 300
#: Frames and threads of raw stacks on one page: some 4 MiB. The stacks of suspects come first, then the commonest.
FRAMES = 60_000
#: Frames of one stack, and threads of one process, that are shown.
DEEPEST, THREADS = 300, 200


def document(verdict: Verdict, scene: IncidentView) -> dict[str, Any]:
    """What the map, the raw stacks and the comparison are drawn from; all text in it is one line and printable."""
    suspected = frozenset(rank for suspect in verdict.suspects for rank in suspect.ranks)
    reported = shown(scene.kinds.kinds, suspected, scene.kinds.stacks, FRAMES)
    frames: dict[Frame, int] = {}
    stacks: dict[int, list[int]] = {}
    for at in dict.fromkeys(
        thread.stack for kind in reported for process in kind.processes for thread in process.threads
    ):
        stack = scene.kinds.stacks[at]
        kept = stack if len(stack) <= DEEPEST else (*stack[: DEEPEST // 2], *stack[-DEEPEST // 2 :])
        stacks[at] = [frames.setdefault(frame, len(frames)) for frame in kept]
    place = {at: number for number, at in enumerate(stacks)}
    return {
        "world": verdict.world_size,
        "axes": [_axis(axis) for axis in scene.grid.axes],
        "usual": list(scene.grid.usual),
        "switches": [printable(name, NAME) for name in scene.grid.switches],
        "clusters": run_lengths(scene.grid.clusters),
        "alike": run_lengths(scene.grid.alike),
        "suspects": [format_ranks(suspect.ranks) for suspect in verdict.suspects],
        "evict": format_ranks(_evicted(verdict, scene.machines)),
        "machines": [[printable(name, NAME), format_ranks(ranks)] for name, ranks in scene.machines.items()],
        "frames": [_frame(frame) for frame in frames],
        "stacks": list(stacks.values()),
        "kinds": [[format_ranks(kind.ranks), [_process(one, place) for one in kind.processes]] for kind in reported],
        "kinds_in_all": len(scene.kinds.kinds),
    }


def _evicted(verdict: Verdict, machines: Mapping[str, tuple[Rank, ...]]) -> list[Rank]:
    return [rank for name in verdict.evict.machines for rank in machines.get(name, ())]


def _axis(axis: Axis) -> dict[str, Any]:
    where = {"places": run_lengths(axis.places)} if axis.places else {"stride": axis.stride}
    return {"dim": printable(axis.dim, NAME), "size": axis.size, **where}


def _frame(frame: Frame) -> list[Any]:
    """Function, file or library, line, 1 of a native one."""
    stated = [printable(frame.function, NAME), printable(frame.module or frame.file, NAME), frame.line]
    return [*stated, 1] if frame.native else stated


def _process(process: ProcessView, place: Mapping[int, int]) -> dict[str, Any]:
    threads = [
        [printable(one.name, NAME), place[one.stack], _flags(one.active, one.gil, one.main)]
        for one in process.threads[:THREADS]
    ]
    stated = {"role": printable(process.role, NAME), "threads": threads}
    if process.state:
        stated["state"] = printable(process.state, NAME)
    if process.missing:
        stated["missing"] = printable(process.missing, NAME)
    return stated


def _flags(active: bool | None, gil: bool | None, main: bool) -> str:
    words = {"main": main, "running": active, "asleep": active is False, "holds the GIL": gil}
    return ", ".join(word for word, true in words.items() if true)
