"""The layout of a job: what people declare goes before what agents announce, and what does not fit is noted."""

import pytest

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.ranks import Rank
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_server.incidents import decode, judge, replay
from hangdog_server.protocol.jobs import AnnouncedJob, describe

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
    assert notes == (
        "machines announce different world sizes: 8 (2 machines), 4 (1 machine); the first is believed",
        "machines announce different topologies: tp=8 (2 machines), tp=4 (1 machine); the first is believed",
    )


def test_a_topology_nobody_can_read_is_noted_and_not_used() -> None:
    _, layout, notes = describe("llama", "", announced((4, "tensor two")), {})
    assert dict(layout.sizes) == {} and notes[0].startswith("HANGDOG_TOPOLOGY='tensor two' is not used: ")


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
    assert notes == ("job.toml is believed, but the job's own processes say tp=2,dp=2",)
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
