"""Flight recorder dumps of two ranks as torch 2.13 wrote them over gloo (recorded/): rank 0 issued one all-reduce more."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from hangdog_models.ranks import Rank
from hangdog_models.reading.collectives import flight_recorder, plain_pickle

RECORDED = Path(__file__).parent / "recorded"


def pickled(rank: int) -> object:
    data = (RECORDED / f"rank{rank}.pickle").read_bytes()
    assert plain_pickle.recognises(data)
    return plain_pickle.read_pickle(data)


def written(rank: int) -> object:
    return json.loads((RECORDED / f"rank{rank}.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("document", [pickled, written])
@pytest.mark.parametrize(("rank", "last"), [(0, 3), (1, 2)])
def test_what_each_rank_issued(document: Callable[[int], object], rank: int, last: int) -> None:
    dump = document(rank)
    assert flight_recorder.recognises(dump)
    record = flight_recorder.read(dump, Rank(rank))
    assert record.enqueued == {"0": last, "1": 1}
    assert record.completed == {"0": 2, "1": 1}
    assert record.descriptions["1"] == "tp"
    issued = [(entry.group, entry.sequence, entry.operation, entry.input_sizes) for entry in record.entries]
    expected = [
        ("0", 1, "gloo:all_reduce", ((4, 8),)),
        ("0", 2, "gloo:all_reduce", ((4, 8),)),
        ("1", 1, "gloo:all_gather", ((3,),)),
        ("0", 3, "gloo:all_reduce", ((5,),)),
    ]
    assert issued == expected[: last + 1]
