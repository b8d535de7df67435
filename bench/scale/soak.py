"""Whether a server stays as it is while a cluster lives: memory, files, threads, tasks, dictionary and store, minute by minute.

    python bench/scale/soak.py                                   30 minutes of 2,000 agents
    python bench/scale/soak.py --for 3m --agents 200             a short one, which says little of memory
    python bench/scale/soak.py --objects                         also which objects of Python became more

Real server process, real protocol, played agents with churn (churn.py says what happens to them). Each line is the median of a
minute. After the warm-up a line is laid through each column: what it rises by in half an hour, with the bound of 95 % of it.
Flat is what rises by less than 5 % by that bound, or not for sure at all (below its bound) and by less than 5 % as it stands.
Ends with 0 when all are flat, with 1 when one is not, or the cluster did not live.
"""

import argparse
import math
import re
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import linear_regression, mean, median

sys.path.insert(0, str(Path(__file__).parents[1]))

from hangdog_models.errors import HangdogError
from hangdog_proto.client.incidents import Client
from scale.process import Process

#: Between two samples of a minute. Seconds.
SAMPLE_S = 5.0
#: What must not rise, and what of it is nothing: the store works in pages, a connection comes and goes between two samples, a
#: pool starts a thread when its others are all at work for once (those of asyncio's pool are not counted). `heap_mib` is what the
#: C library has given out, `blocks` counts what Python has: these two tell a leak, the whole (RSS) may rise without one.
WATCHED = {
    "rss_mib": 2.0, "heap_mib": 2.0, "blocks": 20_000.0, "files": 20.0, "threads": 4.0, "tasks": 40.0, "pieces": 500.0,
    "store_mib": 1.0,
}  # fmt: skip
#: What is printed each minute: title and digits.
COLUMNS = {
    "connected": ("connected", 0),
    "rss_mib": ("RSS MiB", 1),
    "heap_mib": ("heap MiB", 1),
    "blocks": ("blocks", 0),
    "files": ("files", 0),
    "threads": ("threads", 0),
    "tasks": ("tasks", 0),
    "pieces": ("pieces", 0),
    "made": ("stacks", 0),
    "store_mib": ("store MiB", 1),
}
#: Rising by less than this share of itself in half an hour is flat: a month would be far, and half an hour shows no less.
SHARE, PER_MIN = 0.05, 30.0
#: Student's t at 97.5 %, by degrees of freedom; beyond the last one it is near enough.
_T = (math.inf, 12.7, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13, 2.12, 2.11)


@dataclass(frozen=True)
class Trend:
    """What a column rises by in half an hour, give or take `bound` (95 %); `level` is its median."""

    level: float
    rise: float
    bound: float

    def flat(self, nothing: float) -> bool:
        """Whether it may be called flat; a rise of `nothing` in its unit is none."""
        most = max(SHARE * self.level, nothing)
        if not math.isfinite(self.bound):
            return False  # too short to say
        return self.rise + self.bound <= most or (self.rise <= self.bound and self.rise <= most)


def trend(values: Sequence[float]) -> Trend:
    """The trend of medians of minutes; three of them are the least that has a bound."""
    if len(values) < 3:
        return Trend(median(values) if values else 0.0, 0.0, math.inf)
    minutes = range(len(values))
    line = linear_regression(minutes, values)
    rest = [value - line.intercept - line.slope * at for at, value in zip(minutes, values, strict=True)]
    free = len(values) - 2
    spread = math.sqrt(sum(one * one for one in rest) / free / sum((at - mean(minutes)) ** 2 for at in minutes))
    return Trend(median(values), PER_MIN * line.slope, PER_MIN * spread * _T[min(free, len(_T) - 1)])


class People(threading.Thread):
    """Somebody who looks at the lists once a minute, and asks after a job himself."""

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        self._address = address
        self.over = threading.Event()
        self.verdicts: dict[str, int] = {}
        self.failed = 0

    def run(self) -> None:
        while not self.over.wait(60.0):
            try:
                with Client(self._address) as client:
                    jobs = sorted({job.job for machine in client.machines() for job in machine.jobs})
                    self.verdicts = {}
                    for line in client.incidents(limit=1000):
                        kind = line.kind or line.state
                        self.verdicts[kind] = self.verdicts.get(kind, 0) + 1
                    if jobs:
                        list(client.snapshot(jobs[0], rounds=2, interval_s=1.0, why="somebody wonders"))
            except HangdogError:
                self.failed += 1  # the job ended meanwhile


def soak(options: argparse.Namespace, folder: Path) -> bool:
    """Prints the table and what it comes to; whether all was flat."""
    log = Path(options.log) if options.log else folder / "log"
    server = Process(log, "scale.watched", str(folder))
    address = server.line()
    cluster = Process(log, "scale.churn", address, str(options.agents), str(options.seed))
    people = People(address)
    try:
        cluster.line()
        people.start()
        return _table(options, server, cluster, people)
    finally:
        people.over.set()
        for part in (cluster, server):
            part.end()


def _table(options: argparse.Namespace, server: Process, cluster: Process, people: People) -> bool:
    began, minutes, warm = time.monotonic(), [], max(1, round(options.duration / 3 / 60))
    print("   minute", *(f"{title:>9}" for title, _ in COLUMNS.values()), "    cpu s  what happened so far", flush=True)
    before, spent = {}, 0.0
    while (now := time.monotonic() - began) < options.duration:
        samples = []
        while time.monotonic() - began < min(now + 60.0, options.duration):
            time.sleep(SAMPLE_S)
            samples.append(server.ask())
        middle = {key: median(sample[key] for sample in samples) for key in samples[0]}
        cpu_s, spent = samples[-1]["cpu_s"] - spent, samples[-1]["cpu_s"]
        minutes.append(middle)
        if options.objects and len(minutes) == warm:
            before = server.ask("objects")
        happened = ", ".join(f"{count} {what}" for what, count in sorted(cluster.ask().items()))
        shown = " ".join(f"{middle[name]:9.{digits}f}" for name, (_, digits) in COLUMNS.items())
        print(f"{len(minutes):9} {shown} {cpu_s:9.1f}  {happened}", flush=True)
    if options.objects:
        after = server.ask("objects")
        grown = sorted(((after[kind] - before.get(kind, 0), kind) for kind in after), reverse=True)
        print("objects that became more:", ", ".join(f"{kind} +{count}" for count, kind in grown[:15] if count > 0))
    print("incidents kept:", ", ".join(f"{count} {kind}" for kind, count in sorted(people.verdicts.items())) or "none")
    print(f"\nAfter {warm} minutes of warm-up, in half an hour:")
    verdicts = []
    for name, nothing in WATCHED.items():
        found = trend([minute[name] for minute in minutes[warm:]])
        verdicts.append(found.flat(nothing))
        print(
            f"  {name:9} {found.level:10.1f} {found.rise:+10.2f} ± {found.bound:.2f}"
            f"  {'flat' if verdicts[-1] else 'NOT flat'}"
        )
    lived = median(minute["connected"] for minute in minutes) > 0.9 * options.agents and bool(people.verdicts)
    print("flat" if all(verdicts) and lived else "NOT flat" if lived else "the cluster did not live")
    return all(verdicts) and lived


def _seconds(text: str) -> float:
    found = re.fullmatch(r"(\d+)([smh]?)", text)
    if not found:
        raise argparse.ArgumentTypeError("write 30m, 90s or 2h")
    return int(found[1]) * {"s": 1.0, "": 60.0, "m": 60.0, "h": 3600.0}[found[2]]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="bench/scale/soak.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--for", dest="duration", type=_seconds, default=1800.0, metavar="30m", help="how long")
    parser.add_argument("--agents", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--objects", action="store_true", help="name the objects that became more")
    parser.add_argument("--log", metavar="FILE", help="what the server and the cluster say (default: nowhere)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        flat = soak(options, Path(folder))
    sys.exit(0 if flat else 1)


if __name__ == "__main__":
    main()
