"""Backup placement: the published pairs, every small layout against brute force, and plain words where nothing helps."""

from collections.abc import Sequence
from itertools import product
from math import prod

import pytest

from hangdog_models.errors import WrongUse
from hangdog_models.planning.backups import place
from hangdog_models.topology import DEFAULT_ORDER, Layout, Topology, build
from support.refused import refused

#: The ranks that a single eviction takes, by its name.
Evictions = Sequence[tuple[str, frozenset[int]]]


def job(sizes: dict[str, int], per: int | None = None, leaf: int = 0, order: Sequence[str] = DEFAULT_ORDER) -> Topology:
    machines = [f"node-{number}" for number in range(-(-prod(sizes.values()) // (per or 1)))]
    switches = {
        f"leaf-{at}": tuple(machines[at : at + leaf]) for at in range(0, len(machines) if leaf else 0, leaf or 1)
    }
    return build(Layout(None, tuple(order), sizes, per, switches=switches), None)[0]


def evictions(topology: Topology) -> Evictions:
    """All single ones, reckoned rank by rank: a group takes every rank of each machine it is on."""
    alone = {rank: frozenset([rank]) for rank in range(topology.world_size)}
    beside = alone | {rank: frozenset(ranks) for ranks in topology.machines.values() for rank in ranks}
    found = [("machine", ranks) for ranks in dict.fromkeys(beside.values())]
    for dim in {"tp", "dp", "pp"} & topology.groups.keys():
        found += [(dim, frozenset().union(*(beside[rank] for rank in group))) for group in topology.groups[dim]]
    for machines in topology.switches.values():
        found.append(("leaf", frozenset(rank for machine in machines for rank in topology.machines[machine])))
    return found


def taken(holder: Sequence[int], all_evictions: Evictions) -> set[str]:
    """The kinds of eviction of which one takes both copies of a shard."""
    return {kind for kind, evicted in all_evictions if any(holder[rank] in evicted for rank in evicted)}


def exists(topology: Topology, all_evictions: Evictions) -> bool:
    """Whether each machine can keep the copies of one other so that every eviction is survived: by trying all ways."""
    machines = list(dict.fromkeys(ranks for kind, ranks in all_evictions if kind == "machine"))
    apart = [
        [not any(mine | other <= evicted for _, evicted in all_evictions) and mine != other for other in machines]
        for mine in machines
    ]

    def rest(at: int, free: frozenset[int]) -> bool:
        return at == len(machines) or any(apart[at][other] and rest(at + 1, free - {other}) for other in free)

    return rest(0, frozenset(range(len(machines))))


def test_the_pairs_of_byterobust() -> None:
    for per in (None, 2):
        holder = place(job({"tp": 2, "dp": 2, "pp": 4}, per)).holder
        assert [holder[rank] for rank in (8, 9, 2, 3)] == [2, 3, 8, 9]


def test_the_layouts_of_the_field_survive_everything() -> None:
    for sizes, leaf in (
        ({"tp": 8, "dp": 16, "pp": 8}, 4),
        ({"tp": 8, "dp": 32, "pp": 4}, 4),
        ({"tp": 8, "dp": 128, "pp": 16}, 32),
    ):
        placement = place(job(sizes, 8, leaf))
        assert (placement.survives, placement.lost) == (("machine", "tp", "dp", "pp", "leaf"), ())
        assert sorted(placement.holder) == list(range(prod(sizes.values())))


#: All layouts of up to 12 ranks, with every placement on machines; brute force bears up to 8 machines.
SMALL = [
    ({"tp": tp, "dp": dp, "pp": pp}, per, leaf, order)
    for tp, dp, pp in product((1, 2), (1, 2, 3, 4), (1, 2, 3, 4))
    for per in (1, 2, 3, 4)
    for leaf in (0, 2, 3)
    for order in (DEFAULT_ORDER, ("tp", "pp", "dp"))
    if tp * dp * pp <= 12 and 2 <= -(-tp * dp * pp // per) <= 8
]


def test_every_small_layout_is_placed_as_well_as_can_be() -> None:
    impossible = 0
    for sizes, per, leaf, order in SMALL:
        topology = job(sizes, per, leaf, order)
        placement, all_evictions = place(topology), evictions(topology)
        bad = taken(placement.holder, all_evictions)
        assert set(placement.survives).isdisjoint(bad), (sizes, per, leaf, order)
        assert {domain.kind for domain in placement.lost} == bad, (sizes, per, leaf, order)
        assert "machine" not in bad
        if bad:
            impossible += 1
            assert len(placement.reasons) > 1, "what is not survived is said"
            assert not exists(topology, all_evictions), (sizes, per, leaf, order)
    assert 0 < impossible < len(SMALL)


@pytest.mark.parametrize(
    ("sizes", "per", "said"),
    [
        ({"tp": 8, "dp": 1, "pp": 4}, 8, "pp group 0,8,16,24 "),
        ({"tp": 8, "dp": 4, "pp": 1}, 8, "dp group 0,8,16,24 "),
        ({"tp": 4, "dp": 2, "pp": 1}, 8, "one machine only"),
        ({"tp": 4, "dp": 3, "pp": 5}, 8, "any one pp"),
    ],
)
def test_what_is_impossible_is_said(sizes: dict[str, int], per: int, said: str) -> None:
    assert any(said in sentence for sentence in place(job(sizes, per)).reasons)


def test_with_one_dimension_the_next_machine_holds_the_copy() -> None:
    assert place(job({"dp": 4}, 2)).holder == (2, 3, 0, 1)
    assert place(job({"dp": 6}, 2)).holder == (2, 3, 4, 5, 0, 1)


def test_more_machines_than_a_table_bears_are_refused() -> None:
    with refused("too-many", WrongUse, "5000"):
        place(job({"dp": 5000}))
