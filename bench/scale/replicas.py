"""What a second server adds: two jobs that hang at the same time, judged by one server, then by two beside one PostgreSQL.

    python bench/scale/replicas.py             two jobs of 1,024 agents
    python bench/scale/replicas.py 256 4096    other sizes, of each job

Real servers, a real PostgreSQL (its binaries have to be installed), the real protocol, played agents of 8 ranks each, all on the
same cores. Both jobs are asked after at once; `answer` is until the later of both verdicts is stored. `server` is the processor
time of the server that used most, which is what bounds a server, `together` that of all. The first incident meets servers that
know no stack (cold), the second one that know them (warm).
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "tests")]

from hangdog_proto.client.incidents import Client
from scale import process
from scale.process import Process
from scale.stacks import PER_MACHINE
from support.real import postgres

JOBS = "one", "two"
ROUNDS, INTERVAL_S = 3, 2.0


def measure(agents: int, servers: int, url: str, log: Path) -> None:
    """Prints both incidents of two jobs of so many agents, spread over so many servers beside one database."""
    with ExitStack() as ends:
        stood: list[tuple[Process, str]] = []
        for _ in range(servers):
            stood.append(process.server(log, url))
            ends.callback(stood[-1][0].end)
        at = {job: stood[number % servers][1] for number, job in enumerate(JOBS)}
        played = []
        for seed, job in enumerate(JOBS, 1):
            numbers = (agents * PER_MACHINE, 0, agents, seed, 1, ROUNDS, 0)
            played.append(Process(log, "scale.agents", at[job], job, *map(str, numbers)))
            ends.callback(played[-1].end)
        for part in played:
            part.line()
        for job in JOBS:
            with Client(at[job]) as client:
                while sum(any(one.job == job for one in line.jobs) for line in client.machines()) < agents:
                    time.sleep(0.5)
        for kind in ("cold", "warm"):
            _incident(agents, kind, [server for server, _ in stood], at)


def _incident(agents: int, kind: str, servers: Sequence[Process], at: dict[str, str]) -> None:
    before, began = [server.cpu_s() for server in servers], time.monotonic()
    with ThreadPoolExecutor(len(JOBS)) as asking:
        verdicts = list(asking.map(lambda job: _asked(job, at[job]), JOBS))
    answer_s = time.monotonic() - began
    spent = [server.cpu_s() - was for server, was in zip(servers, before, strict=True)]
    most = max(server.peak_mib() for server in servers)
    print(
        f"{agents:7} {len(servers):7} {kind:5} {answer_s:9.1f} {max(spent):9.2f} {sum(spent):11.2f} {most:8.0f}"
        f"  {', '.join(verdicts)}",
        flush=True,
    )


def _asked(job: str, address: str) -> str:
    with Client(address) as client:
        verdict = list(client.snapshot(job, rounds=ROUNDS, interval_s=INTERVAL_S))[-1].verdict
    return f"{verdict.kind} {verdict.confidence:.2f}" if verdict else "none"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="bench/scale/replicas.py", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("agents", nargs="*", type=int, default=[1024], help="of each of the two jobs")
    options = parser.parse_args()
    with postgres.started() as database, tempfile.TemporaryDirectory() as folder:
        if database is None:
            raise SystemExit("install PostgreSQL's server (Debian: apt-get install postgresql) and try again")
        print(
            f"{'agents':>7} {'servers':>7} {'':5} {'answer s':>9} {'server s':>9} {'together s':>11} {'RSS MiB':>8}  verdicts"
        )
        for agents in options.agents:
            for servers in (1, 2):
                measure(agents, servers, database.database(), Path(folder) / "log")


if __name__ == "__main__":
    main()
