"""Records a live job as an evidence bundle: rounds of looks, what its flight recorders hold, and what is expected of a verdict."""

import http.client
import socket
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from hangdog.demo.evidence import job_toml, write_trace
from hangdog_models.stack import ProcessTrace
from live.plan import Plan

#: From one look to the next; longer than most steps. Seconds.
INTERVAL_S = 1.5
#: A living process answers within milliseconds, on an overloaded machine in a second or two; a stopped one never. Seconds.
ANSWER_S = 3.0


def write_job(bundle: Path, plan: Plan, name: str) -> None:
    bundle.mkdir(parents=True)
    (bundle / "job.toml").write_text(job_toml(name, plan.framework, plan.sizes, plan.per_machine))
    (bundle / "rounds.toml").write_text(f"interval_s = {INTERVAL_S}\n")


def write_round(bundle: Path, number: int, plan: Plan, traces: Sequence[ProcessTrace]) -> None:
    for trace in traces:
        place = bundle / f"round-{number}" / f"machine-{plan.machine(trace.rank)}"
        place.mkdir(parents=True, exist_ok=True)
        write_trace(place, msgspec.to_builtins(trace))


def write_flight_recorder(bundle: Path, rank: int, door: Path) -> None:
    """Writes what PyTorch's worker server behind the socket `door` tells of the rank's collectives, if it answers."""
    dump = _ask(door, "fr_trace_json")
    if dump:
        (bundle / "fr").mkdir(exist_ok=True)
        (bundle / "fr" / f"rank{rank}.json").write_bytes(dump)


def pause(began: float) -> None:
    """Waits until the next look is due."""
    time.sleep(max(0.0, began + INTERVAL_S - time.monotonic()))


def _ask(door: Path, handler: str) -> bytes:
    connection = http.client.HTTPConnection("localhost", timeout=ANSWER_S)
    connection.sock = socket.socket(socket.AF_UNIX)
    try:
        connection.sock.settimeout(ANSWER_S)
        connection.sock.connect(str(door))
        connection.request("POST", f"/handler/{handler}")
        answer = connection.getresponse()
        content = answer.read()
        return content if answer.status == http.client.OK else b""
    except (OSError, http.client.HTTPException):  # it is stopped, has not come so far, or ended in between
        return b""
    finally:
        connection.close()
