"""The effective training time of a real job with ten failures, below `hangdog run` and below torchrun's own restarts.

    python bench/ettr [--minutes 60] [--seed 1] [--sides hangdog,torchrun]

Two machines of two ranks over gloo, which are process groups of this one, train for so many minutes of steps. Both sides run at
the same time, and each failure strikes both at the same step. A hang ends for torchrun when the collective times out, after NCCL's
default of ten minutes. `hangdog run` has its default settings, but for two limits of its ladder: failures are minutes apart here.
"""

import argparse
import json
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

if __name__ == "__main__":  # the package, which is this folder, is found from the one above
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from ettr.failures import BY_ITS_CODE, STAYS_S, Failure, drawn
from ettr.outages import kept, made, table
from ettr.sides import Restarted, by_hangdog, by_torchrun
from hangdog.supervising.descendants import kill

STEP_S = 0.5
#: A machine's fault that stays strikes again after so long at work there. Seconds.
RETURNS_S = 20.0
#: A side that has made no step for so long is given up. Seconds.
GIVEN_UP_S = 2400.0
LOOK_S = 1.0


class Struck:
    """The failures of one side: which have come, and those that stay."""

    def __init__(self, side: Restarted, failures: tuple[Failure, ...]) -> None:
        self.side, self.failures = side, failures
        self.at: dict[Failure, float] = {}
        self._begun = time.monotonic()
        self._staying: list[tuple[Failure, float]] = []
        self._seen: dict[int, float] = {}

    def look(self) -> bool:
        """Strikes where a failure is due; whether the side is still at work."""
        steps = made(self.side.folder)
        reached = max((step for step, _ in steps), default=0)
        due = next((one for one in self.failures if one not in self.at), None)
        if due is not None and reached >= due.step and self._trains(reached, steps):
            self._strike(due)
        self._again()
        lately = steps[-1][1] if steps else self._begun
        return any(one.poll() is None for one in self.side.processes) and time.monotonic() - lately < GIVEN_UP_S

    def _trains(self, reached: int, steps: list[tuple[int, float]]) -> bool:
        """Whether it is further than before its last failure, and makes steps now."""
        return steps[-1][0] == reached and time.monotonic() - steps[-1][1] < 3 * STEP_S

    def _strike(self, one: Failure) -> None:
        self.at[one] = time.monotonic()
        print(f"{time.strftime('%H:%M:%S')} {self.side.name}: {one.what}, rank {one.rank}, step {one.step}", flush=True)
        if one.what in BY_ITS_CODE:
            told = {"number": len(self.at), "what": one.what, "rank": one.rank}
            part = self.side.folder / "strike.part"
            part.write_text(json.dumps(told))
            part.replace(self.side.folder / "strike")
        elif one.what == "machine-gone":
            kill(self.side.beside(one.rank), signal.SIGKILL)
        else:
            signals = {"killed": signal.SIGKILL, "segfault": signal.SIGSEGV}
            kill(self.side.of_rank(one.rank), signals.get(one.what, signal.SIGSTOP))
            if one.what == "machine-stops":
                self._staying.append((one, time.monotonic() + STAYS_S))

    def _again(self) -> None:
        """Stops a rank of each machine whose fault stays, once it has been at work there for a while."""
        now = time.monotonic()
        for one, until in self._staying:
            if now >= until:
                continue
            pids = self.side.of_machine(one.machine) & self.side.ranks()
            self._seen = {pid: self._seen.get(pid, now) for pid in pids}
            if pids and now - min(self._seen.values()) >= RETURNS_S:
                kill([min(pids)], signal.SIGSTOP)


def played(sides: Iterable[Struck]) -> None:
    """Plays all sides until each has ended."""
    left = list(sides)
    while left:
        time.sleep(LOOK_S)
        left = [one for one in left if one.look()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0, help="of training; the failures come on top")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sides", default="hangdog,torchrun")
    parser.add_argument("--out", type=Path, help="a folder for the logs, which must not exist yet")
    options = parser.parse_args()
    steps = int(options.minutes * 60 / STEP_S)
    failures = drawn(options.seed, steps)
    out = options.out or Path(tempfile.mkdtemp(prefix="hangdog-ettr-"))
    sides: list[Struck] = []
    try:
        for name in options.sides.split(","):
            folder = out / name
            folder.mkdir(parents=True)
            side = by_hangdog(folder, steps) if name == "hangdog" else by_torchrun(folder, steps, _free_port())
            sides.append(Struck(side, failures))
        played(sides)
    finally:
        for one in sides:
            one.side.end()
    print(f"\n{options.minutes:g} minutes of training, seed {options.seed}, {os.cpu_count()} cores; logs: {out}\n")
    print(table({one.side.name: kept(made(one.side.folder), one.at) for one in sides}, failures))


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


if __name__ == "__main__":
    main()
