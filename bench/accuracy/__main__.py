"""How often hangdog is right, and beside it the published method, on simulated incidents whose truth is known.

    python bench/accuracy                     the default set, on all cores
    python bench/accuracy --quick             about 200 incidents in less than a minute
    python bench/accuracy --held-out          as many other incidents, on which nothing was tuned
    python bench/accuracy --misses            also lists what hangdog got wrong, each with the options that show it
    python bench/accuracy --show SEED --ranks N --fault F
                                              one incident: its truth, hangdog's verdict and the peer's answer
    python bench/accuracy --worlds            after it also the other worlds that are there, by the shipped table: recorded
                                              frameworks, the corpus beside the repository, folders given by --world
    python bench/accuracy --calibration       also fits the map that would put hangdog's probabilities right

Ends with status 1 when a bound is missed or a method crashed, else with 0. All but the seconds is the same whatever
the number of processes.
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

if __name__ == "__main__":  # the package, which is this folder, is found from the one above
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from accuracy import calibration, others, peer, table
from accuracy.misses import classes, line, misses
from accuracy.simulator.incident import Incident
from accuracy.trial import Task, Trial, quick, run, select
from hangdog.output.verdict_text import print_verdict
from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.ranks import format_ranks
from worlds.case import named


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; returns the exit status."""
    from accuracy.simulator.faults.matrix import BESIDE
    from accuracy.simulator.make import HELD_OUT, default_set, incident

    asked = _options(arguments)
    beside = asked.fault if asked.fault in BESIDE else ""
    every = list(default_set(HELD_OUT if asked.held_out else 0, beside))
    console = Console(width=table.WIDTH)  # a narrower terminal wraps lines, which harms less than cells cut short
    if asked.show is not None:
        found = select(every, asked.fault, asked.ranks, range(asked.show, asked.show + 1))
        seed, ranks, fault = found[0] if found else (asked.show, asked.ranks, asked.fault)
        show(incident(seed, ranks, fault), console)
        return 0
    tasks = [
        task for task in select(every, asked.fault, asked.ranks, asked.seeds) if task[1] <= (asked.up_to or task[1])
    ]
    if asked.quick:
        tasks = quick(tasks)
    if not tasks:
        print("accuracy: no incident of the default set is like this", file=sys.stderr)
        return 64
    trials = watched(tasks, asked.jobs)
    shown = table.report(trials, tuple(others.judged(asked.world)) if asked.worlds or asked.world else ())
    write(shown, asked.format, asked.output, console)
    notes = Console(file=sys.stderr if asked.format == "json" and asked.output is None else sys.stdout, width=None)
    found_wrong = list(misses(trials))
    if asked.misses:
        for text in (*classes(found_wrong), "", *map(line, found_wrong)):
            notes.print(text, highlight=False, markup=False, soft_wrap=True)
    if asked.calibration:
        for text in calibration.advice(trials):
            notes.print(text, highlight=False, markup=False, soft_wrap=True)
    crashes = [trial for trial in trials if trial.ours.crash or trial.theirs.crash]
    for trial in crashes:
        print(
            f"crashed: {trial.seed} {trial.ranks} {trial.fault}: {trial.ours.crash or trial.theirs.crash}",
            file=sys.stderr,
        )
    missed = [reading.name for reading in shown.readings if not reading.met]
    missed += [f"{world.name}: evicts an innocent" for world in shown.worlds if world.innocent]
    if missed:
        print("bounds missed: " + "; ".join(missed), file=sys.stderr)
    return 1 if missed or crashes else 0


def watched(tasks: Sequence[Task], jobs: int) -> list[Trial]:
    """Runs the tasks behind a progress line on stderr."""
    columns = (TextColumn("judging"), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("", total=len(tasks))
        return run(tasks, jobs, lambda: progress.advance(bar))


def write(shown: table.Report, style: str, output: Path | None, console: Console) -> None:
    """Writes the report in its format to the file, else to the terminal."""
    if style == "text" and output is None:
        table.print_text(shown, console)
        return
    if style == "text":
        with console.capture() as captured:
            table.print_text(shown, console)
        text = captured.get()
    else:
        text = table.markdown(shown) if style == "markdown" else json.dumps(table.document(shown), indent=1) + "\n"
    if output is None:
        print(text, end="")
    else:
        output.write_text(text, encoding="utf-8")


def show(one: Incident, console: Console) -> None:
    """One incident: its truth, then for each level of evidence hangdog's verdict and the peer's answer."""
    truth, layout = one.truth, one.layout
    told = (
        "" if (at := next(iter(one.snapshots.values())).job.stalled_s) is None else f", stated to stand for {at:.0f} s"
    )
    sizes = " ".join(f"{dim} {size}" for dim, size in layout.sizes.items())
    console.print(
        f"{one.name}: seed {one.seed}, {one.framework}, {one.topology.world_size} ranks, {sizes}{told}", markup=False
    )
    console.print(
        f"TRUE: {truth.fault} ({truth.family}), right are {'/'.join(truth.kinds)}; held up by ranks "
        f"{format_ranks(truth.ranks) or 'none'}, guilty machines {' '.join(truth.machines) or 'none'}",
        style="bold",
        markup=False,
    )
    for evidence, snapshot in one.snapshots.items():
        console.rule(f"{evidence}: {len(snapshot.rounds)} rounds")
        print_verdict(diagnose(snapshot, one.topology), console)
        console.print()
        for name, writer in (("PEER", None), ("PEER, CLEANED STACKS", peer.cleaned)):
            answer = peer.aggregate(snapshot, one.topology, writer)
            whom, why = " ".join(answer.machines) or "nobody", answer.dim or "no group is shared"
            text = f"{name}: evicts {whom} ({why}); outliers: {format_ranks(answer.outliers) or 'none'}"
            console.print(text, style="bold", markup=False, highlight=False)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "bench/accuracy", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="about 300 of the small incidents, every fault alike")
    parser.add_argument(
        "--held-out", action="store_true", help="the same set with other seeds, which nothing is tuned on"
    )
    parser.add_argument(
        "--fault", metavar="F", help="incidents of this fault only, or of one in no set: longer samples"
    )
    parser.add_argument("--ranks", metavar="N", type=int, help="jobs of this size only")
    parser.add_argument(
        "--up-to", metavar="N", type=int, help="jobs of at most this size: the largest take most of the time"
    )
    parser.add_argument("--seeds", metavar="A-B", type=_seeds, help="incidents of these seeds only, both ends included")
    parser.add_argument("--show", metavar="SEED", type=int, help="show one incident instead of a table")
    parser.add_argument("--misses", action="store_true", help="list what hangdog got wrong, by class and one by one")
    parser.add_argument("--calibration", action="store_true", help="fit the map from predicted to observed")
    parser.add_argument("--worlds", action="store_true", help="after it the other worlds that are there")
    parser.add_argument(
        "--world", metavar="NAME=FOLDER", type=named, action="append", default=[], help="these, and a folder of cases"
    )
    parser.add_argument("--jobs", metavar="N", type=int, default=os.cpu_count() or 1, help="processes (default: cores)")
    parser.add_argument("--format", choices=("text", "markdown", "json"), default="text")
    parser.add_argument("--output", metavar="FILE", type=Path, help="write the table there instead of to the terminal")
    return parser.parse_args(arguments)


def _seeds(text: str) -> range:
    first, _, last = text.partition("-")
    try:
        return range(int(first), int(last or first) + 1)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no range of seeds; write 0-99") from None


if __name__ == "__main__":
    sys.exit(main())
