"""Dumps of NCCL Inspector: the example of its README (NVIDIA/nccl ext-profiler/inspector, v4.0), a line of a running job of
three machines as DataDog/integrations-core keeps one (v4.0, RCCL writes microseconds alike), and more of the kind.
"""

import json

import pytest

from hangdog_models.collectives import INSPECTOR
from hangdog_models.errors import UnreadableEvidence
from hangdog_models.findings import Impact
from hangdog_models.ranks import Rank
from hangdog_models.reading.collectives import inspector
from hangdog_models.reading.collectives.inspected_ranks import joined, left_behind
from hangdog_models.reading.limits import Limits
from support.cases.inspected import OF_A_JOB, README
from support.refused import refused


def line(number: int, rank: int = 0, coll: str = "AllReduce", comm: str = "0x7f", size: int = 8, **more: object) -> str:
    performance = {
        "coll": coll,
        "coll_sn": number,
        "coll_exec_time_us": 500,
        "coll_timing_source": "kernel_gpu",
        **more,
    }
    metadata = {
        "inspector_output_format_version": "v4.0",
        "dump_timestamp_us": 10**15 + number * 9000,
        "hostname": "a",
        "pid": 7,
    }
    header = {"id": comm, "rank": rank, "n_ranks": size, "nnodes": 1}
    return json.dumps({"header": header, "metadata": metadata, "coll_perf": performance}) + "\n"


@pytest.mark.parametrize(
    ("text", "host", "place", "done", "took_ns"),
    [
        (README, "example-hostname", inspector.Place("0x7f8c496ae9f661", 2, 8), {"0x7f8c496ae9f661 AllReduce": 1407}, 61974000),
        (OF_A_JOB, "worker-0", inspector.Place("0xad56c683b0c4ef", 1, 3), {"0xad56c683b0c4ef AllReduce": 8995}, 5663000),
    ],
)  # fmt: skip
def test_a_dump_tells_who_completed_what(
    text: str, host: str, place: inspector.Place, done: dict[str, int], took_ns: int
) -> None:
    assert inspector.recognises(text)
    (one,) = inspector.read(text)
    assert (one.host, one.largest, one.counters.completed, one.counters.source) == (host, place, done, INSPECTOR)
    assert one.counters.enqueued == done and one.counters.entries[0].took_ns == took_ns


def test_the_largest_communicator_says_which_rank_it_is_and_each_kind_counts_by_itself() -> None:
    text = line(5, 3) + line(9, 1, "AllGather", "0xab", 2) + line(6, 3) + line(2, 3, "Broadcast")
    (one,) = inspector.read(text)
    assert one.counters.rank == 3
    assert one.counters.completed == {"0x7f AllReduce": 6, "0xab AllGather": 9, "0x7f Broadcast": 2}


def test_of_a_process_with_several_devices_only_the_largest_communicator_is_read() -> None:
    found = inspector.read(line(5, 3) + line(5, 4) + line(9, 1, comm="0xab", size=2))
    assert [(one.largest.number, one.counters.completed) for one in found] == [
        (3, {"0x7f AllReduce": 5}),
        (4, {"0x7f AllReduce": 5}),
    ]


def test_times_beside_others_are_kept_only_where_no_record_is_missing() -> None:
    def beside(text: str) -> list[tuple[tuple[str, int], ...] | None]:
        (one,) = inspector.read(text)
        return [entry.apart_ns for entry in one.counters.entries if entry.group == "0x7f AllReduce"]

    other = [line(number, coll="AllGather", comm="0xab", size=2) for number in (1, 2, 3)]
    assert beside(line(1) + other[0] + other[1] + line(2)) == [None, (("0xab AllGather", 1_000_000),)]
    assert beside(line(1) + line(3)) == [None, None]  # its own predecessor is missing
    assert beside(line(1) + other[0] + line(2) + other[2] + line(3)) == [None, None, None]


def test_what_the_host_timed_is_no_time_on_the_device_and_the_verbose_form_tells_the_launch() -> None:
    (one,) = inspector.read(line(1, coll_timing_source="collective_cpu", event_trace_ts={"coll_start_ts": 77}))
    assert (one.counters.entries[0].took_ns, one.counters.entries[0].created_ns) == (0, 77_000)


def test_a_line_that_is_cut_off_or_damaged_is_passed_over() -> None:
    (one,) = inspector.read(line(1) + line(2)[:90] + "\n" + line(3) + line(4)[:-20])
    assert one.counters.completed == {"0x7f AllReduce": 3}


def test_what_is_no_dump_is_refused() -> None:
    for text in ("{}", "", line(-1), line(1, rank=9), line(1, size=1 << 60)):
        with refused("damaged-nccl-report", UnreadableEvidence):
            inspector.read(text)
    with refused("too-large", UnreadableEvidence, "file_bytes"):
        inspector.read(README, Limits(file_bytes=20))


def test_one_rank_alone_that_lacks_the_last_operation_is_made_suspect() -> None:
    def behind(numbers: list[int], coll: str = "AllReduce") -> dict[Rank, Impact]:
        ranks = {Rank(r): inspector.read(line(n, r, coll, size=len(numbers)))[0] for r, n in enumerate(numbers)}
        return {rank: finding.impact for rank, finding in left_behind(joined(ranks)).items()}

    assert behind([9, 9, 8, 9]) == {2: Impact.SUSPECTS}
    assert behind([9, 9, 9, 9]) == {} == behind([9, 8, 8, 9])
    assert behind([9, 9, 7, 9]) == {}  # impossible at one moment
    assert behind([9, 8]) == {}  # either may be early
    assert behind([9, 9, 8, 9], "Broadcast") == {}  # which ends on some before others have come


def test_members_are_known_where_all_of_them_left_a_dump() -> None:
    pair = {Rank(4): inspector.read(line(1, 4) + line(1, 0, comm="0xab", size=2))[0]}
    assert joined(pair)[0].members == {}
    pair[Rank(5)] = inspector.read(line(1, 5) + line(1, 1, comm="0xab", size=2))[0]
    assert joined(pair)[0].members == {"0xab AllReduce": (4, 5)}
