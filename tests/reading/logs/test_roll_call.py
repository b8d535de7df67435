"""The roll of start-up is called over all logs: who never said that it came is missing, where as many are as are counted."""

from collections.abc import Iterable, Mapping

import pytest

from hangdog_models.findings import Finding, Impact
from hangdog_models.ranks import Rank
from hangdog_models.reading.logs import training_log
from hangdog_models.reading.logs.roll_call import UNHEARD, unheard

# As PyTorch 1.7 to 2.0 write it: Lightning-AI/pytorch-lightning#4420.
WAITING = (
    "INFO:root:Waiting in store based barrier to initialize process group for rank: {rank}, key: "
    "store_based_barrier_key:{key} (world_size=8, worker_count={arrived}, timeout=0:30:00)\n"
)
# Recorded with torch 2.13.
GIVEN_UP = (
    "torch.distributed.DistStoreError: Timed out initializing process group in store based barrier on rank {rank}, for key: "
    "store_based_barrier_key:x (world_size=4, num_workers_joined=3, timeout=0:00:04 error=wait timeout after 10004ms, keys: "
    "/default_pg/0//store_based_barrier_key:x:last_worker)\n"
)
CLIENTS = "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 7/8 clients joined.\n"


def missing(logs: Mapping[int | None, str] | Mapping[int, str] | Mapping[None, str]) -> list[tuple[Rank, ...]]:
    streams = [s for rank, text in logs.items() for s in training_log.read(text, None if rank is None else Rank(rank))]
    told = [stream.arrivals for stream in streams if stream.arrivals]
    speakers = {stream.rank for stream in streams if stream.rank is not None and stream.own}
    return [finding.ranks for finding in unheard(told, speakers)]


def test_who_never_printed_is_missing_in_one_log_or_in_many() -> None:
    lines = {rank: WAITING.format(rank=rank, key=1, arrived=min(7, rank + 1)) for rank in range(8) if rank != 3}
    assert missing(lines) == [(3,)]
    assert missing({None: "".join(lines.values())}) == [(3,)]


def test_the_newer_words_count_alike() -> None:
    assert missing({rank: GIVEN_UP.format(rank=rank) for rank in (0, 1, 3)}) == [(2,)]


@pytest.mark.parametrize(
    ("ranks", "arrived"), [((0, 1, 2, 4), 6), ((0,), 1), (tuple(range(8)), 7), ((0, 1, 2), 3), ((0, 1, 9), 7)]
)
def test_where_a_log_was_lost_or_most_are_silent_nobody_is_named(ranks: tuple[int, ...], arrived: int) -> None:
    assert missing({rank: WAITING.format(rank=rank, key=1, arrived=arrived) for rank in ranks}) == []


def test_a_barrier_that_somebody_passed_misses_nobody() -> None:
    lines = {rank: WAITING.format(rank=rank, key=1, arrived=7) for rank in range(7)}
    passed = "Rank 7: Completed store-based barrier for key:store_based_barrier_key:1 with 8 nodes.\n"
    assert missing({**lines, 7: passed}) == []


def test_the_store_counts_clients_and_the_one_without_a_log_is_missing() -> None:
    assert missing({rank: CLIENTS for rank in range(8) if rank != 5}) == [(5,)]
    assert missing({0: CLIENTS}) == []


MEMBER = "{verb}: GLOBAL_RANK: {rank}, MEMBER: {place}/{size}\n"


def signed(ranks: Iterable[int], size: int = 6, verb: str = "Initializing distributed") -> str:
    return "".join(MEMBER.format(verb=verb, rank=rank, place=rank + 1, size=size) for rank in ranks)


def called(*logs: str) -> list[Finding]:
    streams = [stream for text in logs for stream in training_log.read(text, None)]
    return list(unheard([stream.arrivals for stream in streams if stream.arrivals], ()))


@pytest.mark.parametrize("verb", ["Initializing distributed", "initializing distributed", "initializing ddp"])
def test_those_who_never_signed_up_with_lightning_are_told_and_not_accused(verb: str) -> None:
    assert training_log.recognises(signed([0, 1, 2], verb=verb))
    (finding,) = called(signed([0, 1], verb=verb), signed([2], verb=verb))
    assert (finding.code, finding.impact, finding.ranks, finding.machine) == (UNHEARD, Impact.VICTIM, (), "")
    assert "3 of 6 ranks " in finding.what and "ranks 3-5 did not" in finding.what


def test_processes_with_the_same_number_are_the_launchs_fault() -> None:
    (finding,) = called(signed([1, 0, 1, 2, 2, 0]))
    assert (finding.code, finding.impact, finding.ranks) == ("ranks started twice", Impact.PROGRAM, ())


@pytest.mark.parametrize(
    "logs",
    [
        [signed(range(6))],
        [signed([0, 1, 2]), signed([3, 4, 5])],
        [signed([0, 1, 2]) + "All distributed processes registered. Starting with 6 processes\n"],
        [signed([3])],
        [signed([0, 1, 9])],
        [signed([0, 1], size=0)],
    ],
)
def test_a_start_that_is_complete_or_hardly_told_says_nothing(logs: list[str]) -> None:
    assert called(*logs) == []


def test_two_copies_of_a_log_start_nothing_twice() -> None:
    assert [one.impact for one in called(signed([0, 1, 2]), signed([0, 1, 2]))] == [Impact.VICTIM]
