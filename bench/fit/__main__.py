"""Fits the table of likelihoods to cases whose truth is known, and judges each world by numbers fitted without it.

    python bench/fit [WORLD=FOLDER ...]          what is fitted, and how each world is judged; nothing is written
    python bench/fit [WORLD=FOLDER ...] --write  also writes the numbers, and what supports each, into the table
    python bench/fit [WORLD=FOLDER ...] --calibration
                                                 also how true what is said is, bin by bin, in each world by numbers fitted without it
    python bench/fit [WORLD=FOLDER ...] --calibration --shipped
                                                 that alone, by the table as it ships: nothing is fitted, which takes most of the time
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
from worlds.calibration import heads, lines
from worlds.case import Case, named, of_folder, recorded, simulated

#: How well a number is known that no scene tells of: a normal of its logarithm with this standard deviation.
BELIEVED = 1.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Fits, prints, and writes where asked to; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=named, metavar="WORLD=FOLDER")
    parser.add_argument("--incidents", type=int, default=200, metavar="N")
    parser.add_argument("--write", action="store_true", help="write the table")
    parser.add_argument("--calibration", action="store_true", help="also who, why and whom to isolate, in ten bins")
    parser.add_argument("--shipped", action="store_true", help="only judge each world by the table as it ships")
    asked = parser.parse_args(arguments)
    cases = list(_told(_cases(asked.folders, asked.incidents)))
    if asked.shipped:
        print(*heads(), sep="\n")
        for world in sorted({case.world for case in cases}):
            as_shipped = judge([case for case in cases if case.world == world], packaged())
            print(*lines(world, as_shipped.calibrations), sep="\n", flush=True)
        return 0
    table = judged(packaged())
    with judging_by(traced(table)):
        scenes = [found for case in cases if (found := scene(case)) is not None]
    rows = sorted({row for one in scenes for by in one.moved_by for row in by})
    moves = choose.moves_of(scenes, rows)
    support = _support(scenes, rows, moves)
    fitted = moved(table, moves)
    judged_without: dict[str, Judged] = {}
    for line in (*_numbers(table, moves, support), "", *_worlds(cases, scenes, rows, table, moves, judged_without)):
        print(line, flush=True)
    if asked.calibration:
        print(
            "",
            *heads(),
            *(line for world, by in judged_without.items() for line in lines(world, by.calibrations)),
            sep="\n",
        )
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
    fitted: Mapping[Row, float],
    judged_without: dict[str, Judged],
) -> Iterator[str]:
    """A line for each world and table; puts into `judged_without` how each world is judged by numbers fitted without it."""
    yield "| world | cases | table | right | first suspect | evicts an innocent | loss of a scene | gap | said >= 0.99 and true |"
    yield "|---|---:|---|---:|---:|---:|---:|---:|---:|"
    for world in sorted({case.world for case in cases}):
        of = [case for case in cases if case.world == world]
        seen = [one for one in scenes if one.world == world]
        without = choose.moves_of([one for one in scenes if one.world != world], rows)
        own = problem(seen, rows, choose.OF_WORLD)
        known: list[tuple[Mapping[Row, float], Judged]] = []
        for name, by in (("by judgement", {}), ("fitted without it", without), ("fitted", fitted)):
            found = next((judged for moves, judged in known if moves == by), None) or judge(of, moved(table, by))
            known.append((by, found))
            of_scene = float(loss(own, np.array([by.get(row, 0.0) for row in rows]))[2].mean())
            yield _line(world, name, found, of_scene)
        judged_without[world] = known[1][1]
        right, innocent = by_peer(of)
        yield f"| {world} | {len(of)} | ByteRobust's method | {right / len(of):.0%} | | {innocent} | | | |"


def _line(world: str, table: str, found: Judged, of_scene: float) -> str:
    results = found.results
    firsts = [one.first for one in results if one.first is not None]
    named = found.calibrations["who"]
    true, sure = named.sure
    return (
        f"| {world} | {len(results)} | {table} | {sum(one.right for one in results) / len(results):.0%} | "
        f"{sum(firsts) / max(1, len(firsts)):.0%} | {sum(one.innocent for one in results)} | {of_scene:.3f} | "
        f"{named.gap:.3f} | {true:.0f} of {sure} |"
    )


if __name__ == "__main__":
    sys.exit(main())
