"""How far communicators have come by what NCCL Inspector writes; the lines of messages and the metrics are as its source prints them."""

import json

import pytest

from hangdog_models.reading.collectives import inspected_progress
from support.cases.inspected import OF_A_JOB, README

MESSAGE = {
    "header": {"id": "0xad56c683b0c4ef", "comm_name": "pp", "rank": 1, "n_ranks": 4, "nnodes": 1},
    "p2p_perf": {"p2p": "Send", "p2p_sn": 12, "p2p_peer": 2, "p2p_msg_size_bytes": 8192, "p2p_exec_time_us": 71},
}
DEVICE = 'version="v6.1",slurm_job_id="unknown",node="a",gpu="GPU0"'
METRICS = (
    f'nccl_bus_bandwidth_gbs{{{DEVICE},comm_name="dp",n_nodes="1",nranks="8",collective="AllReduce"}} 485.119\n'
    f"nccl_collectives_total{{{DEVICE}}} 371\nnccl_collectives_dropped_total{{{DEVICE}}} 9\n"
    f"nccl_p2p_total{{{DEVICE}}} 12\nnccl_p2p_dropped_total{{{DEVICE}}} 3\n"
)


@pytest.mark.parametrize(
    ("text", "communicator", "name", "rank", "size", "count"),
    [
        (README, 0x7F8C496AE9F661, "", 2, 8, 1408),
        (OF_A_JOB, 0xAD56C683B0C4EF, "", 1, 3, 8996),
        (json.dumps(MESSAGE), 0xAD56C683B0C4EF, "pp", 1, 4, 12),
    ],
)
def test_each_operation_says_how_far_its_communicator_has_come(
    text: str, communicator: int, name: str, rank: int, size: int, count: int
) -> None:
    (one,) = inspected_progress.completed(text)
    assert (one.communicator, one.name, one.rank, one.size, one.count) == (communicator, name, rank, size, count)


def test_what_a_dump_says_of_itself_is_no_operation() -> None:
    stats = {"header": MESSAGE["header"], "dump_stats": {"coll_records": 4, "coll_dropped_total": 0}}
    assert list(inspected_progress.completed(json.dumps(stats))) == []


def test_devices_are_added_up_and_what_was_dropped_is_not_counted() -> None:
    assert inspected_progress.totals(METRICS) == 383
    assert inspected_progress.totals(METRICS + METRICS.replace("GPU0", "GPU1")) == 766
    assert inspected_progress.totals(METRICS.partition("nccl_collectives_total")[0]) is None
    assert inspected_progress.totals(METRICS.replace("371", "9" * 40).replace("12", "-1")) is None
