"""What one server costs as the cluster grows: real server process, real protocol, played agents of 8 ranks each.

    python bench/scale                         16, 128, 1,024 agents
    python bench/scale 16384                   131,072 ranks: two minutes and some 5 GiB on 2 cores
    python bench/scale 1024 --moving           a job that trains: every main thread is somewhere else in every look

Two incidents each: the first one meets a server that knows no stack (cold), the second one that knows them (warm). `answer` is
from the request to the stored verdict, of which the looks themselves last (rounds - 1) x interval; `server` is the CPU the
server used meanwhile, `idle` what of that it would have used if nobody had asked (signs of life and pings, measured just
before), `load` what the played agents used on the same cores. Agents make their messages before they are asked, of which
the last one holds all looks behind the first.
"""

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from hangdog_proto.client.incidents import Client
from scale import process
from scale.process import Process
from scale.stacks import PER_MACHINE

#: Agents of one process: more of them share one core anyway.
EACH = 8192
#: Seconds after all are there, or the incident before is over, until the server is at rest, and over which its rest is measured.
SETTLED_S, REST_S = 3.0, 10.0


@dataclass
class Row:
    """One incident."""

    agents: int
    kind: str
    answer_s: float
    server_s: float
    idle_s: float
    load_s: float
    rss_mib: float
    messages: int
    message_bytes: float
    pieces: int
    piece_bytes: int
    verdict: str


def measure(agents: int, options: argparse.Namespace) -> Iterator[Row]:
    """Both incidents of a cluster of so many agents."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        server, address = process.server(log, f"{folder}/incidents.db")
        parts = [
            Process(
                log, "scale.agents", address, "big", str(agents * PER_MACHINE), str(first),
                str(min(EACH, agents - first)), str(options.seed), str(options.share), str(options.rounds),
                str(int(options.moving)),
            )
            for first in range(0, agents, EACH)
        ]  # fmt: skip
        try:
            for part in parts:
                assert part.line() == "ready"
            for kind in ("cold", "warm"):
                yield incident(agents, kind, server, parts, address, options)
        finally:
            for each in (*parts, server):
                each.end()
            if options.verbose:
                print(log.read_text()[-4000:])


def incident(
    agents: int, kind: str, server: Process, parts: list[Process], address: str, options: argparse.Namespace
) -> Row:
    with Client(address) as client:
        while sum(bool(line.jobs) for line in client.machines()) < agents:
            time.sleep(0.5)
    time.sleep(SETTLED_S)
    resting = server.cpu_s()
    time.sleep(REST_S)
    resting = (server.cpu_s() - resting) / REST_S
    before, cpu_s = [part.ask() for part in parts], server.cpu_s()
    began = time.monotonic()
    with Client(address) as client:
        steps = list(client.snapshot("big", rounds=options.rounds, interval_s=options.interval))
    answer_s = time.monotonic() - began
    after, spent = [part.ask() for part in parts], server.cpu_s() - cpu_s
    grown = {key: sum(b[key] for b in after) - sum(a[key] for a in before) for key in after[0]}
    if options.verbose:
        print(*(f"  {step.text}" for step in steps), sep="\n")
        slowest = max(part["ping_s"] for part in after)
        print(f"  the slowest answer to a ping took {slowest:.2f} s: agents give a line up after 5")
    verdict, gone = steps[-1].verdict, int(sum(part["gone"] for part in after))
    return Row(
        agents,
        kind,
        answer_s,
        spent,
        resting * answer_s,
        grown["cpu_s"],
        server.peak_mib(),
        int(grown["sent"]),
        grown["sent_bytes"] / max(1, grown["sent"]),
        int(grown["told"]),
        int(grown["told_bytes"]),
        (f"{verdict.kind} {verdict.confidence:.2f}" if verdict else "none") + (f", {gone} agents lost" if gone else ""),
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="bench/scale", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("agents", nargs="*", type=int, default=[16, 128, 1024])
    parser.add_argument("--rounds", type=int, default=3, help="looks of one incident")
    parser.add_argument("--interval", type=float, default=2.0, help="seconds between two of them")
    parser.add_argument("--moving", action="store_true", help="the job trains while it is looked at")
    parser.add_argument("--share", type=int, default=1, help="agents that share one TCP connection")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--verbose", action="store_true", help="also what the server says meanwhile")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that whoever ends this ends its processes
    print(
        f"{'agents':>7} {'ranks':>7} {'':5} {'answer s':>9} {'server s':>9} {'idle s':>7} {'load s':>7} {'us/rank':>8} {'RSS MiB':>8}"
        f" {'said':>6} {'B each':>7} {'pieces':>7} {'KiB told':>9}  verdict"
    )
    for agents in options.agents:
        for row in measure(agents, options):
            ranks = row.agents * PER_MACHINE
            print(
                f"{row.agents:7} {ranks:7} {row.kind:5} {row.answer_s:9.1f} {row.server_s:9.2f} {row.idle_s:7.2f} {row.load_s:7.1f}"
                f" {row.server_s / ranks * 1e6:8.1f} {row.rss_mib:8.0f} {row.messages:6} {row.message_bytes:7.0f}"
                f" {row.pieces:7} {row.piece_bytes / 1024:9.0f}  {row.verdict}",
                flush=True,
            )


if __name__ == "__main__":
    main()
