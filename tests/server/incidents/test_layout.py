"""The layout of a job: what people declare goes before what agents announce, and what does not fit is noted."""

from dataclasses import replace

import pytest

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.ranks import Rank
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_server.incidents import decode, judge, replay
from hangdog_server.protocol.jobs import AnnouncedJob, describe
from support.worded import names

PLACED = {"a": (Rank(0), Rank(1)), "b": (Rank(2), Rank(3))}


def announced(*said: tuple[int | None, str]) -> dict[str, AnnouncedJob]:
    return {f"m{at}": AnnouncedJob("llama", (), world, topology) for at, (world, topology) in enumerate(said)}


def test_agents_announce_sizes_and_places() -> None:
    job, layout, notes = describe("llama", "", announced((4, "tp=2,dp=2"), (4, "tp=2,dp=2")), PLACED)
    assert (job.id, layout.world_size, dict(layout.sizes), notes) == ("llama", 4, {"tp": 2, "dp": 2}, ())
    assert layout.machines == PLACED


def test_a_declared_job_goes_before_and_keeps_the_name_it_is_known_by() -> None:
    text = '[job]\nid = "run 7"\nframework = "megatron"\nworld_size = 8\n[topology]\npp = 8\n'
    job, layout, _ = describe("llama", text, announced((4, "tp=2,dp=2")), PLACED)
    assert (job.id, job.framework) == ("llama", "megatron")
    assert (layout.world_size, dict(layout.sizes)) == (8, {"pp": 8})


def test_declared_machines_stand_and_reporting_ones_fill_the_rest() -> None:
    text = '[topology]\ntp = 4\ngpus_per_node = 2\n[machines]\n"x" = "1-2"\n'
    _, layout, _ = describe("llama", text, {}, PLACED)
    assert layout.machines == {"x": (1, 2), "a": (0,), "b": (3,)}
    assert layout.ranks_per_machine is None, "no node-0 that nobody knows"


@pytest.mark.parametrize("turn", [1, -1])
def test_of_different_announcements_the_most_frequent_is_believed_and_the_rest_noted(turn: int) -> None:
    said = announced((4, "tp=4"), (8, "tp=8"), (8, "tp=8"))
    _, layout, notes = describe("llama", "", dict(list(said.items())[::turn]), {})
    assert (layout.world_size, dict(layout.sizes)) == (8, {"tp": 8})
    sizes, topologies = notes
    assert names(sizes, "world sizes", "8 (2 machines), 4 (1 machine)", "first is believed")
    assert names(topologies, "topologies", "tp=8 (2 machines), tp=4 (1 machine)", "first is believed")


def test_a_topology_nobody_can_read_is_noted_and_not_used() -> None:
    _, layout, notes = describe("llama", "", announced((4, "tensor two")), {})
    assert dict(layout.sizes) == {} and names(notes[0], "HANGDOG_TOPOLOGY='tensor two'", "not used")


def test_an_unreadable_declaration_is_an_error() -> None:
    with pytest.raises(UnreadableEvidence):
        describe("llama", "[job", {}, {})


def test_what_agents_are_not_sure_of_is_noted_once() -> None:
    words = "ranks 1-2 are presumed"
    said = {name: AnnouncedJob("llama", (), 4, notes=notes) for name, notes in (("a", (words,)), ("b", (words, "odd")))}
    _, _, notes = describe("llama", "", said, {})
    assert notes == (words, "odd (1 machine)")


def test_a_declaration_that_contradicts_what_the_job_says_stands_and_is_noted() -> None:
    _, layout, notes = describe("llama", "[topology]\ntp = 4\n", announced((4, "tp=2,dp=2")), {})
    assert dict(layout.sizes) == {"tp": 4}
    (note,) = notes
    assert names(note, "job.toml is believed", "own processes", "tp=2,dp=2")
    assert describe("llama", "[job]\nworld_size = 4\n", announced((4, "tp=2,dp=2")), {})[2] == ()


def behind(*switches: str) -> dict[str, AnnouncedJob]:
    return {
        machine: AnnouncedJob("llama", (Rank(at),), len(switches), switch=switch)
        for at, (machine, switch) in enumerate(zip("abcd", switches, strict=False))
    }


def test_switches_that_slurm_tells_are_those_of_the_layout_and_a_person_s_go_before() -> None:
    _, layout, _ = describe("llama", "", behind("leaf0", "leaf1", "leaf0"), {})
    assert layout.switches == {"leaf0": ("a", "c"), "leaf1": ("b",)}
    text = '[switches]\n"rack-7" = ["a", "b"]\n'
    assert describe("llama", text, behind("leaf0", "leaf1"), {})[1].switches == {"rack-7": ("a", "b")}
    for useless in (behind("leaf0", "leaf0"), behind("leaf0", ""), {}):
        assert not describe("llama", "", useless, {})[1].switches


def test_an_announced_switch_survives_the_wire_and_the_store() -> None:
    local = decode.local_job(pb.LocalJob(job="llama", ranks=[0], switch="leaf\x1b0"))
    assert "\x1b" not in local.switch and local.switch.startswith("leaf")
    assert replay.announced({"a": judge._written(local)})["a"].switch == local.switch


LEAF, SPINE = "network.topology.nvidia.com/leaf", "network.topology.nvidia.com/spine"
RACK, ZONE = "topology.kubernetes.io/rack", "topology.kubernetes.io/zone"


def labelled(label: str, *values: str, switches: str = "") -> dict[str, AnnouncedJob]:
    """Machines a, b, … with this label, and behind the switch of Slurm that one letter of `switches` names."""
    told = switches.ljust(len(values))
    return {
        machine: AnnouncedJob("llama", (Rank(at),), switch=told[at].strip(), domains=(f"{label}={value}",))
        for at, (machine, value) in enumerate(zip("abcdef", values, strict=False))
    }


def both(one: dict[str, AnnouncedJob], other: dict[str, AnnouncedJob]) -> dict[str, AnnouncedJob]:
    return {machine: replace(local, domains=local.domains + other[machine].domains) for machine, local in one.items()}


def test_machines_whose_nodes_share_a_label_are_behind_one_switch_that_is_called_as_kubectl_finds_it() -> None:
    _, layout, notes = describe("llama", "", labelled(LEAF, "s1", "s2", "s1"), {})
    assert layout.switches == {f"{LEAF}=s1": ("a", "c"), f"{LEAF}=s2": ("b",)} and notes == ()


def test_of_several_labels_the_one_with_the_fewest_machines_in_one_place_is_used() -> None:
    racks, leafs = labelled(RACK, "r1", "r1", "r1", "r2"), labelled(LEAF, "s1", "s1", "s2", "s2")
    for said in (both(racks, leafs), both(leafs, racks)):
        assert {*describe("llama", "", said, {})[1].switches} == {f"{LEAF}=s1", f"{LEAF}=s2"}
    alone = labelled(LEAF, "s1", "s2", "s3", "s4")
    assert {*describe("llama", "", both(alone, racks), {})[1].switches} == {f"{RACK}=r1", f"{RACK}=r2"}


@pytest.mark.parametrize("label", [SPINE, ZONE])
def test_a_spine_or_a_zone_is_no_place_of_one_fault(label: str) -> None:
    _, layout, notes = describe("llama", "", labelled(label, "x", "x", "y", "y"), {})
    assert (layout.switches, notes) == ({}, ())


def test_labels_that_not_all_machines_carry_are_not_used_and_it_is_said() -> None:
    said = both(labelled(LEAF, "s1", "s1", "s2"), labelled(ZONE, "z", "z", "z"))
    said["b"] = replace(said["b"], domains=(f"{ZONE}=z",))
    _, layout, notes = describe("llama", "", said, {})
    assert not layout.switches
    (note,) = notes
    assert names(note, "switch", "not known", "label of b")
    said["b"] = replace(said["b"], domains=(f"{RACK}=r1",))
    (note,) = describe("llama", "", said, {})[2]
    assert names(note, "switch", "not known", "different kinds")


def test_slurm_goes_before_labels_and_a_contradiction_is_said() -> None:
    finer, coarser = labelled(LEAF, "s1", "s2", "s3", "s3", switches="aabb"), labelled(RACK, "r", "r", "r", "q")
    for said in (finer, both(finer, coarser)):
        _, layout, notes = describe("llama", "", said, {})
        assert layout.switches == {"a": ("a", "b"), "b": ("c", "d")} and notes == ()
    _, layout, notes = describe("llama", "", labelled(LEAF, "s1", "s2", "s1", "s2", switches="aabb"), {})
    assert layout.switches == {"a": ("a", "b"), "b": ("c", "d")}
    (note,) = notes
    assert names(note, "Slurm is believed", "labels contradict it", "switches", "a", "with c there", "with b here")


def test_a_person_goes_before_both_and_each_contradiction_is_said() -> None:
    text = '[switches]\n"left" = ["a", "d"]\n"right" = ["b", "c", "elsewhere"]\n'
    said = labelled(LEAF, "s1", "s2", "s1", "s2", switches="aabb")
    _, layout, notes = describe("llama", text, said, {})
    assert layout.switches == {"left": ("a", "d"), "right": ("b", "c", "elsewhere")}
    by_slurm, by_labels = notes
    assert names(by_slurm, "job.toml is believed", "Slurm contradicts it", "a", "with b there", "with d here")
    assert names(by_labels, "job.toml is believed", "labels contradict it", "a", "with c there", "with d here")


def test_a_leaf_below_two_spines_is_a_contradiction() -> None:
    said = both(labelled(LEAF, "s1", "s1", "s2"), labelled(SPINE, "p1", "p2", "p2"))
    _, layout, notes = describe("llama", "", said, {})
    assert {*layout.switches} == {f"{LEAF}=s1", f"{LEAF}=s2"}
    (note,) = notes
    assert names(note, "contradict each other", f"{LEAF}=s1", f"{SPINE}=p1", f"{SPINE}=p2")


def test_what_labels_say_is_kept_with_an_incident() -> None:
    local = labelled(LEAF, "s1")["a"]
    assert replay.announced({"a": judge._written(local)})["a"].domains == local.domains
