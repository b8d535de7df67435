"""Fits the table of likelihoods to cases whose truth is known, and judges each world by numbers fitted without it.

    python bench/fit [WORLD=FOLDER ...]          what is fitted, and how each world is judged; nothing is written
    python bench/fit [WORLD=FOLDER ...] --write  also writes the numbers, and what supports each, into the table
    --incidents N                                of the benchmark's simulator (200; each at several levels of evidence)

The worlds are the simulator of bench/accuracy, the recordings of real frameworks in tests/recordings, and the folders given: of
cases in the corpus' form, several folders of one world under one name. A number is moved only where moving it by what some
worlds say makes a world better that was left out, and none worse (bench/fit/choose.py). A run takes some minutes.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path

if __name__ == "__main__":  # the package, which is this folder, is found from the one above
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import numpy as np

from fit import choose
from fit.judged import Judged, by_peer, judge
from fit.reweighed import judged, judging_by, moved
from fit.scene import Scene, scene
from fit.solve import errors, loss, problem
from fit.table import Support, written
from fit.traced import Row, traced
from hangdog_models.rules.likelihoods import TABLE, Likelihood, packaged
from worlds.case import Case, named, of_folder, recorded, simulated

#: How well a number is known that no scene tells of: a normal of its logarithm with this standard deviation.
BELIEVED = 1.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Fits, prints, and writes where asked to; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=named, metavar="WORLD=FOLDER")
    parser.add_argument("--incidents", type=int, default=200, metavar="N")
    parser.add_argument("--write", action="store_true", help="write the table")
    asked = parser.parse_args(arguments)
    cases = list(_told(_cases(asked.folders, asked.incidents)))
    table = judged(packaged())
    with judging_by(traced(table)):
        scenes = [found for case in cases if (found := scene(case)) is not None]
    rows = sorted({row for one in scenes for by in one.moved_by for row in by})
    moves = choose.moves_of(scenes, rows)
    support = _support(scenes, rows, moves)
    fitted = moved(table, moves)
    for line in (*_numbers(table, moves, support), "", *_worlds(cases, scenes, rows, table, fitted)):
        print(line, flush=True)
    if asked.write:
        place = resources.files("hangdog_models.rules").joinpath(f"{TABLE}.toml")
        Path(str(place)).write_text(
            written(place.read_text(encoding="utf-8"), table, fitted, support), encoding="utf-8"
        )
    return 0


def _cases(folders: Sequence[tuple[str, Path]], incidents: int) -> Iterator[Case]:
    yield from simulated(incidents)
    yield from recorded()
    for world, folder in folders:
        yield from of_folder(folder, world)


def _told(cases: Iterator[Case]) -> Iterator[Case]:
    for at, case in enumerate(cases, 1):
        yield case
        if sys.stderr.isatty():
            print(f"\r{at} cases read ({case.world})   ", end="", file=sys.stderr)


def _support(scenes: Sequence[Scene], rows: Sequence[Row], moves: Mapping[Row, float]) -> Mapping[Row, Support]:
    of = problem(scenes, rows, choose.OF_WORLD)
    error = errors(of, np.array([moves.get(row, 0.0) for row in rows]), BELIEVED)
    met: dict[Row, list[str]] = {row: [] for row in rows}
    for one in scenes:
        for row in {row for by in one.moved_by for row, much in by.items() if much}:
            met[row].append(one.world)
    return {
        row: Support(float(error[at]), len(met[row]), tuple(sorted(set(met[row]))))
        for at, row in enumerate(rows)
        if met[row]
    }


def _numbers(
    table: Mapping[str, Likelihood], moves: Mapping[Row, float], support: Mapping[Row, Support]
) -> Iterator[str]:
    yield f"{len(support)} numbers move explanations; {len(moves)} are worth fitting:"
    yield ""
    yield "| number | by judgement | fitted | error of its logarithm | scenes | worlds |"
    yield "|---|---:|---:|---:|---:|---|"
    for row, by in moves.items():
        name, _, cause = row.partition(".")
        value = table[name].value
        before = value[cause] if isinstance(value, Mapping) else value
        of = support[row]
        after = before * float(np.exp(by))
        yield f"| {row} | {before:.3g} | {after:.3g} | {of.error:.2f} | {of.scenes} | {', '.join(of.worlds)} |"


def _worlds(
    cases: Sequence[Case],
    scenes: Sequence[Scene],
    rows: Sequence[Row],
    table: Mapping[str, Likelihood],
    fitted: Mapping[str, Likelihood],
) -> Iterator[str]:
    yield "| world | cases | table | right | first suspect | evicts an innocent | loss of a scene | gap | said >= 0.99 and true |"
    yield "|---|---:|---|---:|---:|---:|---:|---:|---:|"
    for world in sorted({case.world for case in cases}):
        of = [case for case in cases if case.world == world]
        seen = [one for one in scenes if one.world == world]
        without = choose.moves_of([one for one in scenes if one.world != world], rows)
        own = problem(seen, rows, choose.OF_WORLD)
        for name, by, rated in (
            ("by judgement", {}, table),
            ("fitted without it", without, moved(table, without)),
            ("fitted", choose.moves_of(scenes, rows), fitted),
        ):
            of_scene = float(loss(own, np.array([by.get(row, 0.0) for row in rows]))[2].mean())
            yield _line(world, name, judge(of, rated), of_scene)
        right, innocent = by_peer(of)
        yield f"| {world} | {len(of)} | ByteRobust's method | {right / len(of):.0%} | | {innocent} | | | |"


def _line(world: str, table: str, found: Judged, of_scene: float) -> str:
    results = found.results
    firsts = [one.first for one in results if one.first is not None]
    true, sure = found.sure
    return (
        f"| {world} | {len(results)} | {table} | {sum(one.right for one in results) / len(results):.0%} | "
        f"{sum(firsts) / max(1, len(firsts)):.0%} | {sum(one.innocent for one in results)} | {of_scene:.3f} | "
        f"{found.gap:.3f} | {true} of {sure} |"
    )


if __name__ == "__main__":
    sys.exit(main())
