"""Which numbers are fitted at all: those whose fit to some worlds is worth something in another one."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fit.scene import Scene
from fit.solve import Problem, fit, loss, problem
from fit.traced import Row

#: A number is fitted where that lessens the mean loss of a scene in a world left out by this much at least, over all worlds.
WORTH = 0.002
#: No world may lose more by it.
HARM = 0.0005
#: How far a number may go from the one set by judgement: a normal of its logarithm with this standard deviation.
SPREAD = 0.5
#: Numbers that move fewer scenes are left as they are.
SCENES = 10
#: What blames nobody. Worlds hold more faults than healthy moments, so to fit these would make verdicts bolder everywhere.
CAUTION = ("culprit_unseen", "culprit_uncaptured", "healthy_moment", "moment_among_few", "job_at_work")
#: A world counts as so many scenes at most, or the one that makes most cases would say all.
OF_WORLD = 150.0


def chosen(scenes: Sequence[Scene], rows: Sequence[Row]) -> tuple[Row, ...]:
    """The numbers worth fitting, in the order in which they were found: each is the one that helps most beside those before it."""
    worlds = sorted({one.world for one in scenes})
    if len(worlds) < 2:
        return ()
    met = Counter(row for one in scenes for row in {row for by in one.moved_by for row in by})
    asked = [row for row in rows if met[row] >= SCENES and row not in CAUTION]
    others = {w: problem([one for one in scenes if one.world != w], rows, OF_WORLD) for w in worlds}
    left_out = {w: problem([one for one in scenes if one.world == w], rows, OF_WORLD) for w in worlds}
    found: tuple[Row, ...] = ()
    losses = [_mean(left_out[w], np.zeros(len(rows))) for w in worlds]
    while True:
        tried = {
            row: [_mean(left_out[w], fitted(others[w], (*found, row))) for w in worlds]
            for row in asked
            if row not in found
        }
        kind = {row: one for row, one in tried.items() if all(a <= b + HARM for a, b in zip(one, losses, strict=True))}
        best = min(kind, key=lambda row: sum(kind[row]), default=None)
        if best is None or sum(losses) - sum(kind[best]) < WORTH * len(worlds):
            return found
        found, losses = (*found, best), kind[best]


def fitted(of: Problem, free: Sequence[Row]) -> NDArray[np.float64]:
    """The moves of all numbers, of which only some are free."""
    columns = [of.rows.index(row) for row in free]
    moves = np.zeros(len(of.rows))
    moves[columns] = fit(of, columns, SPREAD)
    return moves


def moves_of(scenes: Sequence[Scene], rows: Sequence[Row]) -> Mapping[Row, float]:
    """The whole fit: which numbers are worth it, and by how much the logarithm of each moves."""
    free = chosen(scenes, rows)
    moves = fitted(problem(scenes, rows, OF_WORLD), free)
    return {row: float(moves[rows.index(row)]) for row in free}


def _mean(of: Problem, moves: NDArray[np.float64]) -> float:
    kept = np.flatnonzero(moves)
    return float(loss(replace(of, moved=of.moved[:, kept]), moves[kept])[2].mean())
