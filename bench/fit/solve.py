"""A conditional logit: the explanations of a scene share its probability by their odds, which the numbers of the table make."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from fit.scene import Scene
from fit.traced import Row

_Numbers = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Problem:
    """Scenes as matrices: a row for each explanation, a column for each number of the table.

    `starts`: where the explanations of each scene begin. `moved`: by how much each number moves the logarithm of the odds.
    `counts`: how much each scene counts.
    """

    rows: Sequence[Row]
    starts: NDArray[np.intp]
    log_odds: _Numbers
    moved: _Numbers
    is_right: NDArray[np.bool_]
    counts: _Numbers


def problem(scenes: Sequence[Scene], rows: Sequence[Row], of_world: float) -> Problem:
    """The matrices of scenes. Each world counts as `of_world` scenes, or as many as it has where these are fewer."""
    many: dict[str, int] = {}
    for one in scenes:
        many[one.world] = many.get(one.world, 0) + 1
    column = {row: at for at, row in enumerate(rows)}
    sizes = [len(one.log_odds) for one in scenes]
    moved = np.zeros((sum(sizes), len(rows)))
    for at, by in enumerate(by for one in scenes for by in one.moved_by):
        for row, much in by.items():
            moved[at, column[row]] = much
    return Problem(
        rows,
        np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.intp),
        np.concatenate([np.asarray(one.log_odds) for one in scenes]),
        moved,
        np.concatenate([np.asarray(one.is_right) for one in scenes]),
        np.asarray([min(1.0, of_world / many[one.world]) for one in scenes]),
    )


def loss(of: Problem, moves: _Numbers) -> tuple[float, _Numbers, _Numbers]:
    """Minus the log likelihood of what is right; its gradient by the moves; the loss of each scene, not counted by weight."""
    score = of.log_odds + of.moved @ moves
    among = np.repeat(np.arange(len(of.starts)), np.diff(np.append(of.starts, len(score))))
    all_log, all_share = _shares(score, of.starts, among)
    right_log, right_share = _shares(np.where(of.is_right, score, -1e9), of.starts, among)
    each = all_log - right_log
    gradient = of.moved.T @ ((all_share - right_share) * of.counts[among])
    return float(each @ of.counts), gradient, each


def fit(of: Problem, free: Sequence[int], spread: float) -> _Numbers:
    """The moves of the free columns of most posterior probability, each normal around 0 with standard deviation `spread`."""
    narrow = replace(of, moved=of.moved[:, free])  # of hundreds of columns few are free

    def asked(moves: _Numbers) -> tuple[float, _Numbers]:
        value, gradient, _ = loss(narrow, moves)
        return value + float(moves @ moves) / (2 * spread**2), gradient + moves / spread**2

    return np.asarray(minimize(asked, np.zeros(len(free)), jac=True, method="L-BFGS-B").x)


def errors(of: Problem, moves: _Numbers, spread: float) -> _Numbers:
    """The standard error of each number's logarithm, all free at once: `spread` where no scene tells anything of it.

    It is the curvature of the loss at the moves (Laplace's approximation), together with what was believed before.
    """
    step = 1e-4
    curvature = np.empty((len(moves), len(moves)))
    for at in range(len(moves)):
        ahead, behind = moves.copy(), moves.copy()
        ahead[at] += step
        behind[at] -= step
        curvature[at] = (loss(of, ahead)[1] - loss(of, behind)[1]) / (2 * step)
    values, vectors = np.linalg.eigh((curvature + curvature.T) / 2)
    # what is right may be shared among several explanations, so the loss is not convex everywhere
    return np.asarray(np.sqrt(np.einsum("ij,j,ij->i", vectors, 1 / (np.maximum(values, 0.0) + 1 / spread**2), vectors)))


def _shares(score: _Numbers, starts: NDArray[np.intp], among: NDArray[np.intp]) -> tuple[_Numbers, _Numbers]:
    """For each scene the logarithm of the sum of its explanations' odds, and for each explanation its share of that."""
    top = np.maximum.reduceat(score, starts)
    odds = np.exp(score - top[among])
    total = np.add.reduceat(odds, starts)
    return top + np.log(total), odds / total[among]
