"""The server sees the shape of a job that its flight recorders list, as a reader of bundles does."""

import json

from hangdog_models.ranks import Rank
from hangdog_models.reading.collectives.library_counters import flight_record
from hangdog_models.snapshot import Job, Snapshot
from hangdog_server.incidents.judge import prepared


def test_groups_that_recorders_list_are_those_of_the_job() -> None:
    config = {
        "0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"},
        "1": {"name": "1", "desc": "TENSOR_MODEL_PARALLEL_GROUP", "ranks": "[0, 1]"},
    }
    dump = {"version": "2.10", "pg_config": config, "pg_status": {}, "entries": []}
    counters = flight_record(json.dumps(dump).encode(), Rank(0))
    _, topology = prepared(Snapshot(Job("llama"), (), counters=(counters,)), "", {}, {})
    assert topology.groups["tp"] == ((0, 1),)
    assert topology.world_size == 4


def test_all_ranks_share_one_list_of_a_large_group() -> None:
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(512)))}}
    dump = json.dumps({"version": "2.10", "pg_config": config, "pg_status": {}, "entries": []}).encode()
    one, other = (flight_record(dump, Rank(rank)).members["0"] for rank in (0, 1))
    assert one is other
