"""Flight recorder dumps: the two writings, gloo's peculiarities, and counters a diagnosis can rest on."""

from typing import Any

import pytest

from hangdog_models.collectives import CollectiveRecord
from hangdog_models.errors import UnreadableEvidence
from hangdog_models.ranks import Rank
from hangdog_models.reading.collectives.flight_recorder import read, recognises
from support.refused import refused


def entry(sequence: int, group: str = "0", number: int = 0, **more: Any) -> dict[str, Any]:
    about = {
        "pg_id": number, "process_group": [group, "desc of " + group], "collective_seq_id": sequence, "p2p_seq_id": 0,
        "profiling_name": "nccl:all_reduce", "input_sizes": [[3, 4]], "input_dtypes": ["Float"], "state": "scheduled",
        "retired": True, "is_p2p": False,
    }  # fmt: skip
    return about | more


def dump(*entries: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "version": "2.10",
        "pg_config": {"": {"name": "", "desc": "", "ranks": "[]"}},
        "entries": list(entries),
    } | more


def status(enqueued: object, completed: object) -> dict[str, object]:
    return {
        "last_enqueued_collective": enqueued,
        "last_started_collective": "-1",
        "last_completed_collective": completed,
    }


def test_json_of_gloo() -> None:
    document = dump(entry(25), entry(26, retired=False), pg_status={"0": status("26", "25")})
    record = read(document, Rank(3))
    assert (record.rank, record.enqueued, record.completed) == (3, {"0": 26}, {"0": 25})
    assert record.members == {} and record.descriptions == {"0": "desc of 0"}
    assert record.entries[-1] == CollectiveRecord("0", 26, "nccl:all_reduce", False, ((3, 4),), ("Float",))


def test_counters_come_from_the_entries_where_there_is_no_status() -> None:
    record = read(
        dump(entry(4), entry(5, retired=False), entry(6), entry(7, retired=False, state="completed")), Rank(0)
    )
    assert (record.enqueued, record.completed) == ({"0": 7}, {"0": 4})


def test_a_group_without_entries_and_one_that_never_began() -> None:
    record = read(dump(pg_status={"2": status(7, 7), "3": status(-1, -1)}), Rank(0))
    assert (record.enqueued, record.completed) == ({"2": 7, "3": -1}, {"2": 7, "3": -1})


def test_a_group_goes_by_its_name_because_its_number_differs_between_ranks() -> None:
    document = dump(
        entry(9, group="17", number=1), entry(2, group="2", number=5), pg_status={"1": status(9, 9), "2": status(3, 3)}
    )
    assert read(document, Rank(0)).enqueued == {"17": 9, "2": 2, "#2": 3}


@pytest.mark.parametrize("ranks", ["[0, 4]", [4, 0], ["0", "4"]])
def test_members_where_the_dump_lists_them(ranks: object) -> None:
    record = read(dump(pg_config={"0": {"name": "7", "desc": "tp", "ranks": ranks}}), Rank(0))
    assert (record.members, record.descriptions) == ({"7": (0, 4)}, {"7": "tp"})


def test_sends_and_receives_have_a_count_of_their_own() -> None:
    p2p = entry(0, is_p2p=True, p2p_seq_id=12, profiling_name="nccl:send 0->1", retired=False)
    record = read(dump(entry(5), p2p), Rank(0))
    assert (record.enqueued, record.completed) == ({"0": 5}, {"0": 5})
    assert (record.entries[1].sequence, record.entries[1].p2p) == (12, True)


def test_a_long_ring_keeps_what_is_under_way_and_the_newest_of_the_rest() -> None:
    record = read(dump(entry(0, retired=False), *(entry(number) for number in range(1, 2000))), Rank(0))
    assert [kept.sequence for kept in record.entries] == [0, *range(1936, 2000)]
    assert (record.enqueued, record.completed) == ({"0": 1999}, {"0": -1})


def test_the_rank_may_stand_in_the_dump() -> None:
    assert read(dump(rank=6), None).rank == 6
    assert read(dump(rank=6), Rank(2)).rank == 2
    with refused("unknown-rank", UnreadableEvidence):
        read(dump(), None)


def test_a_dump_of_an_old_writer() -> None:
    old = {
        "record_id": 0,
        "process_group": ["0", "default"],
        "collective_seq_id": "3",
        "input_dtypes": "float32",
        "state": "completed",
    }
    (kept,) = read(dump(old), Rank(0)).entries
    assert kept == CollectiveRecord("0", 3, "", True, (), ("float32",), started=True)


def test_what_started_is_told_only_where_starts_were_timed() -> None:
    pending = entry(6, retired=False)
    untimed = read(dump(entry(5), pending, pg_status={"0": status(6, 5)}), Rank(0))
    assert untimed.started == {} and [kept.started for kept in untimed.entries] == [True, None]
    running = entry(6, retired=False, state="started", time_discovered_started_ns=17, time_created_ns=16)
    timed = read(dump(entry(5), running, entry(7, retired=False)), Rank(0))
    assert timed.started == {"0": 6} and [kept.started for kept in timed.entries] == [True, True, False]
    assert timed.entries[1].created_ns == 16
    told = {"0": {"last_enqueued_collective": "6", "last_started_collective": "6", "last_completed_collective": "5"}}
    assert read(dump(pending, pg_status=told), Rank(0)).started == {"0": 6}
    told["0"]["last_started_collective"] = "5"  # no start beyond a completion: nothing shows that starts are timed
    assert read(dump(pending, pg_status=told), Rank(0)).started == {}


@pytest.mark.parametrize(
    "old",
    [
        {"seq_id": 3, "pg_name": "7", "state": "completed", "nccl_version": "2.19"},
        {"collective_seq_id": "3", "p2p_seq_id": "0", "process_group": ["7", "tp"], "state": "completed"},
        {"collective_seq_id": 3, "process_group": ("7", "tp"), "pg_id": 1, "retired": True, "state": "scheduled"},
    ],
)
def test_the_same_operation_in_the_words_of_several_versions(old: dict[str, Any]) -> None:
    about = {"profiling_name": "nccl:all_reduce", "output_sizes": [[2, 2]], "input_sizes": [[2, 2]]}
    record = read({"version": "2.1", "nccl_version": "2.19", "entries": [old | about]}, Rank(0))
    (kept,) = record.entries
    assert (kept.group, kept.sequence, kept.done, kept.output_sizes) == ("7", 3, True, ((2, 2),))
    assert record.completed == {"7": 3}


@pytest.mark.parametrize("document", [{}, [], {"entries": 3, "pg_config": {}}, {"entries": [3], "pg_config": {}}])
def test_what_is_no_dump_is_refused(document: object) -> None:
    with refused("damaged-flight-record", UnreadableEvidence):
        read(document, Rank(0))


@pytest.mark.parametrize(("sizes", "count"), [([[1]] * 4097, "4097 tensors"), ([[1], [1 << 62] * 65], "65 dimensions")])
def test_an_operation_on_what_no_operation_has_is_refused(sizes: list[list[int]], count: str) -> None:
    """Thousands of dimensions multiply to a number that Python refuses to write, which ended the diagnosis of all ranks."""
    with refused("too-many", UnreadableEvidence, count):
        read(dump(entry(0, input_sizes=sizes)), Rank(0))


def test_it_is_told_from_other_json() -> None:
    assert recognises(dump()) and not recognises({"entries": []}) and not recognises([])


def test_how_long_operations_took_and_how_long_those_of_other_groups_took_in_between() -> None:
    def timed(sequence: int, milliseconds: object, group: str = "0", **more: Any) -> dict[str, Any]:
        return entry(sequence, group, state="completed", duration_ms=milliseconds, **more)

    batch = timed(0, 4.0, "pp", is_p2p=True, p2p_seq_id=7, profiling_name="nccl:coalesced")
    send = timed(0, 5.0, "pp", is_p2p=True, p2p_seq_id=8, profiling_name="nccl:send 0->1")
    inside = (timed(3, 1.5, "tp"), batch, timed(4, 2, "tp"), send)
    record = read(dump(timed(8, 0.25), *inside, timed(9, 0.5), timed(11, 1.0)), Rank(0))
    took = {(e.group, e.sequence): (e.took_ns, e.apart_ns) for e in record.entries if not e.p2p}
    assert took["0", 8] == (250_000, None)
    assert took["0", 9] == (500_000, (("tp", 3_500_000), ("pp point-to-point", 4_000_000)))
    assert took["tp", 4] == (2_000_000, (("pp point-to-point", 4_000_000),))
    assert took["0", 11] == (1_000_000, None)  # the one before it is not in the record


def test_no_times_apart_are_kept_of_more_groups_than_a_rank_has() -> None:
    """Sums of each group beside each other: a hostile dump of 20,000 groups would claim tens of gigabytes."""

    def apart(groups: int) -> list[int]:
        names = [f"g{number}" for number in range(groups)]
        rounds = (entry(n, name, state="completed", duration_ms=1.0) for n in range(2) for name in names)
        return [len(kept.apart_ns) for kept in read(dump(*rounds), Rank(0)).entries if kept.apart_ns is not None]

    assert apart(64) == [63] * 64
    assert apart(65) == []


def test_times_apart_count_what_is_not_kept() -> None:
    ring = (entry(n, "tp", state="completed", duration_ms=1.0) for n in range(1000))
    around = [entry(n, "0", state="completed", duration_ms=1.0) for n in (8, 9)]
    record = read(dump(around[0], *ring, around[1]), Rank(0))
    assert len(record.entries) == 66
    assert record.entries[-1].apart_ns == (("tp", 1_000_000_000),)


@pytest.mark.parametrize("hostile", [-1.0, float("nan"), float("inf"), 1e300, True, "3", None, [3], 0])
def test_a_duration_no_operation_can_have_is_not_known(hostile: object) -> None:
    (kept,) = read(dump(entry(3, state="completed", duration_ms=hostile)), Rank(0)).entries
    assert (kept.took_ns, kept.apart_ns) == (0, None)
    pending = read(dump(entry(3, retired=False, duration_ms=5.0)), Rank(0)).entries[0]
    assert pending.took_ns == 0  # it has not ended


def configured(*names: str) -> dict[str, Any]:
    return {name: {"name": name, "desc": f"mesh_{name}", "ranks": "[0, 1]"} for name in names}


def test_names_and_numbers_belong_together_in_order() -> None:
    """As NCCL writes active entries only: of most groups nothing but the status is left."""
    counts = {"11": status(9, 8), "2": status(5, 5), "5": status(7, 6)}
    document = dump(entry(9, group="35", number=11), pg_config=configured("35", "0", "4"), pg_status=counts)
    record = read(document, Rank(0))
    assert (record.enqueued, record.completed) == ({"35": 9, "0": 5, "4": 7}, {"35": 9, "0": 5, "4": 6})
    # an entry that says otherwise is believed, and then the order tells nothing
    other = read(dump(entry(9, group="35", number=2), pg_config=configured("35", "0", "4"), pg_status=counts), Rank(0))
    assert other.enqueued == {"35": 9, "#11": 9, "#5": 7} or other.enqueued == {"35": 9, "11": 9, "5": 7}


def test_where_messages_pass_the_status_counts_whatever_came_last() -> None:
    sent = entry(26, is_p2p=True, p2p_seq_id=11984, profiling_name="nccl:send 0->1", retired=False)
    record = read(dump(sent, entry(27, retired=False), pg_status={"0": status(11984, 11983)}), Rank(0))
    assert (record.enqueued, record.completed) == ({"0": 27}, {"0": 26})
