"""Healthy phases of real trainers, replayed through the agent's own watch for hundreds of run-hours: who is alarmed for nothing?

    python bench/healthy record [--only jax] [--phase compile]    play every healthy phase and record it, 40 s each
    python bench/healthy replay [--hours 200] [--format json]     replay all recordings, stretched and shuffled by --seed
    python bench/healthy live [--hours 2.5] [--log hours.jsonl]   healthy jobs in real time, one of each framework side by side
    python bench/healthy hours --log hours.jsonl                  print what was logged so far

A recording is what the agent's stall watch would have read of four ranks: counters every second, stacks every 0.7 s. They lie
in tests/recordings/healthy. `record` and `live` need the environment that `python bench/frameworks install` makes.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

if __name__ == "__main__":  # the package, which is this folder, is found from the one above
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from frameworks.cases import PHASES
from frameworks.environment import FRAMEWORKS
from healthy.live import play_all, read, table
from healthy.record import record_all
from healthy.replay import recorded, replay_all
from healthy.shift import work
from healthy.table import as_json, as_markdown, summary
from healthy.timeline import LONGEST_S


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("do", choices=["record", "replay", "live", "shift", "hours"])
    phases = {phase.name: phase for phase in PHASES}
    parser.add_argument("--only", action="append", choices=FRAMEWORKS, help="one framework; may be repeated")
    parser.add_argument("--phase", action="append", choices=phases, help="one phase; may be repeated")
    parser.add_argument(
        "--hours",
        type=float,
        help="run-hours of all frameworks together (default 200); live: hours of real time (default 2.5)",
    )
    parser.add_argument(
        "--log", type=Path, default=Path("healthy-hours.jsonl"), help="where live jobs are logged, appended"
    )
    parser.add_argument(
        "--longest",
        type=float,
        default=LONGEST_S,
        metavar="SECONDS",
        help="how long a phase usually lasts at most (default 200)",
    )
    parser.add_argument("--seed", type=int, default=1, help="what draws the order and length of phases (default 1)")
    parser.add_argument(
        "--no-hangs", action="store_true", help="do not look how soon a hang in each phase is suspected"
    )
    parser.add_argument("--format", choices=["markdown", "json"], default="markdown", help="how it is printed")
    options = parser.parse_args()
    if options.do in ("live", "hours"):
        failed = 0
        if options.do == "live":
            failed = play_all(
                options.only or list(FRAMEWORKS), options.phase or (), options.hours or 2.5, options.seed, options.log
            )
        rows = read(options.log)
        print(table(rows))
        sys.exit(1 if failed or any(row["incident"]["evict"] for row in rows if "incident" in row) else 0)
    if options.do == "shift":  # one process of `live`
        with tempfile.TemporaryDirectory(prefix="hf-") as folder:
            (framework,) = options.only
            due = [phases[name] for name in options.phase or phases]
            work(FRAMEWORKS[framework], due, options.hours, options.seed, Path(folder), options.log)
        return
    if options.do == "record":
        frameworks = [FRAMEWORKS[name] for name in options.only or FRAMEWORKS]
        with tempfile.TemporaryDirectory(prefix="hf-") as folder:
            failed = record_all(
                frameworks, [phases[name] for name in options.phase or phases], Path(folder), time.strftime("%Y-%m-%d")
            )
        sys.exit(1 if failed else 0)
    outcomes = replay_all(
        [name for name in recorded() if name in (options.only or FRAMEWORKS)],
        options.phase or (), options.hours or 200.0, options.seed, not options.no_hangs, options.longest,
    )  # fmt: skip
    print(as_json(outcomes) if options.format == "json" else as_markdown(outcomes))
    sys.exit(1 if summary(outcomes)["decisions"] else 0)


if __name__ == "__main__":
    main()
