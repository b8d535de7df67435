"""What a report of NCCL RAS says of ranks and hosts, where no job.toml does."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hangdog.evidence.open_bundle import open_bundle

Fill = Callable[[dict[str, bytes]], Path]


def member(rank: int, host: str = "", **more: Any) -> dict[str, Any]:
    place = {"host": host or f"10.0.0.{rank // 2}", "pid": 500 + rank, "cuda_dev": rank % 2, "nvml_dev": rank % 2}
    return {"rank": rank, **place, "status": {"init_state": 0}} | more


def ras(*members: dict[str, Any], size: int = 4) -> bytes:
    communicator = {"hash": "0x1f", "size": size, "ranks": list(members), "missing_ranks": []}
    return json.dumps({"nccl_version": "2.28.9", "communicators_count": 1, "communicators": [communicator]}).encode()


def test_ranks_and_hosts_come_from_the_report(fill: Fill) -> None:
    _, layout = open_bundle(fill({"ras.json": ras(*(member(rank) for rank in range(4)))}))
    assert (layout.world_size, dict(layout.machines)) == (4, {"10.0.0.0": (0, 1), "10.0.0.1": (2, 3)})


def test_one_name_for_two_gpus_of_one_number_is_no_host(fill: Fill) -> None:
    _, layout = open_bundle(fill({"ras.json": ras(*(member(rank, "host") for rank in range(4)))}))
    assert (layout.world_size, dict(layout.machines)) == (4, {})


def test_what_is_declared_is_believed(fill: Fill) -> None:
    job = b'[job]\nworld_size = 8\n[machines]\na = "0-3"\n'
    _, layout = open_bundle(fill({"job.toml": job, "ras.json": ras(*(member(rank) for rank in range(4)))}))
    assert (layout.world_size, dict(layout.machines)) == (8, {"a": (0, 1, 2, 3)})


def test_the_monitors_events_are_evidence(fill: Fill) -> None:
    event = b"[2025-12-19 13:07:07] PEER_DEAD: Process 503 on node 10.0.0.1 managing GPU 1\n"
    snapshot, _ = open_bundle(fill({"watch.txt": event, "job.toml": b'[machines]\n"10.0.0.1" = "2-3"\n'}))
    assert [(lost.host, lost.pid) for report in snapshot.ras for lost in report.lost] == [("10.0.0.1", 503)]
