"""What the agent costs a machine and its trainers: step times, CPU, memory, and how long each kind of capture stops a process.

    python bench/overhead                     all four parts, some twenty minutes
    python bench/overhead --quick             the same with a quarter of the samples
    python bench/overhead --only pauses       the longest gap a heartbeat sees in a process that is captured
    python bench/overhead --only idle         the agent beside 8 trainers and 64 loader workers, where nothing happens
    python bench/overhead --only steps        a real PyTorch job beside an agent that is now running, now stopped
    python bench/overhead --only traced       what `hangdog.trace()` costs a step of gloo ranks, and the agent that reads rings

Agent, server and job are the real ones, all on this machine. The trainers and workers of `idle` are stand-ins: Python
processes with a rank's environment, and children named as torch names its loader workers; trainers work and sleep in turn,
workers sleep. To an agent that has no reason to capture them they are what real ones are. The other parts need PyTorch.
Run it on a machine that does nothing else: what others disturb it cannot resolve.
"""

import argparse
import sys
from pathlib import Path

if __name__ == "__main__":  # the package, which is this folder, is found from the one above
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from overhead.idle import idle
from overhead.pauses import pauses
from overhead.stage import NotStarted
from overhead.steps import steps
from overhead.traced import traced

#: The parts, and how many samples each takes: captures of each kind, windows, pairs of stretches.
PARTS = {pauses: 100, idle: 12, steps: 48, traced: 12}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a quarter of the samples")
    parser.add_argument("--only", choices=[part.__name__ for part in PARTS], help="one part")
    options = parser.parse_args()
    for part, samples in PARTS.items():
        if options.only in (None, part.__name__):
            part(samples // 4 if options.quick else samples)


if __name__ == "__main__":
    try:
        main()
    except NotStarted as error:
        sys.exit(str(error))
