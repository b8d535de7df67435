"""Hosts and devices in time: a host runs ahead, collectives join, and who does not come keeps all others waiting."""

from collections.abc import Iterable
from random import Random

import pytest

from hangdog_models.ranks import Rank
from worlds.timed.engine.engine import Engine
from worlds.timed.engine.position import Position, device_wait, working
from worlds.timed.engine.steps import Collective, HostCollective, Kernel, Payload, Program, Run, Step, Synchronise
from worlds.timed.evidence.frames import Installation, projects
from worlds.timed.jobs.places import Places, tables
from worlds.timed.layout import pipelined, replicated

SUM = Payload("nccl:all_reduce", ((8,),), ((8,),))
ENDS = working("ends")


def program(*steps: Step) -> Program:
    yield from (one for one in (*steps, Run(1.0, ENDS)))


def ran(*programs: Iterable[Step], machines: tuple[str, ...] = ("a", "b"), queue: int = 70) -> Engine:
    layout = replicated(machines, len(programs) // len(machines))
    engine = Engine(layout, Random(0))
    for rank, steps in zip(layout.ranks, programs, strict=True):
        engine.start(rank, program(*steps), 0.0, queue)
    return engine


def positions(engine: Engine, time: float) -> list[Position | None]:
    engine.run(time)
    return [host.seen(time) for host in engine.hosts.values()]


def step(payload: Payload = SUM, kernel_s: float = 1.0) -> list[Step]:
    waits = device_wait("waits")
    return [
        Kernel(kernel_s, working("launches"), 0.01),
        Collective("world", payload, working("reduces"), 0.1),
        Synchronise(waits),
    ]


def test_a_collective_ends_when_the_last_member_has_joined() -> None:
    engine = ran(step(kernel_s=1.0), step(kernel_s=5.0))
    assert [at and at.frames for at in positions(engine, 4.9)] == ["waits", "waits"]
    assert positions(engine, 5.5) == [ENDS, ENDS]


def test_members_that_mean_other_collectives_wait_for_ever() -> None:
    engine = ran(step(), step(Payload("nccl:all_reduce", ((9,),), ((9,),))))
    assert [at and at.frames for at in positions(engine, 1000.0)] == ["waits", "waits"]


@pytest.mark.parametrize("machines", [("a", "b"), ("a",)])
def test_a_broken_network_stops_what_crosses_machines(machines: tuple[str, ...]) -> None:
    engine = ran(step(), step(), machines=machines)
    engine.devices.broken.add("a")
    assert (positions(engine, 1000.0)[1] == ENDS) is (len(machines) == 1)


def test_a_hung_device_leaves_its_collective_scheduled_and_those_of_its_peers_started() -> None:
    engine = ran(step(), step())
    engine.hosts[Rank(1)].device_hangs = True
    engine.run(100.0)
    ours, theirs = (engine.hosts[Rank(rank)].records[-1].work for rank in (0, 1))
    assert ours.started is not None and ours.done is None and theirs.started is None


def test_a_host_runs_ahead_of_its_device_until_the_queue_is_full() -> None:
    kernels = [Kernel(10.0, working(f"kernel {number}"), 0.001) for number in range(5)]
    engine = ran(kernels, kernels, queue=3)
    at = positions(engine, 5.0)[0]
    assert at is not None and (at.frames, at.native, at.waits) == ("kernel 3", "launch", True)
    assert positions(engine, 15.0)[0] == Position("kernel 4", "launch", waits=True)


def test_a_stopped_process_is_where_it_was_and_uses_no_more_time() -> None:
    engine = ran([Run(5.0, working("works"))], step())
    engine.clock.at(2.0, lambda: engine.stop(Rank(0)))
    at = positions(engine, 50.0)[0]
    assert at is not None and (at.frames, at.state) == ("works", "T")
    assert engine.hosts[Rank(0)].cpu_s(50.0) == pytest.approx(2.0)


def test_hosts_that_wait_in_a_collective_themselves_leave_it_together() -> None:
    waits = Position("waits", "gloo", "S", waits=True)
    late: list[Step] = [Run(3.0, working("late")), HostCollective("world", SUM, waits, 0.1)]
    engine = ran([HostCollective("world", SUM, waits, 0.1)], late)
    assert positions(engine, 2.0)[0] == waits
    assert positions(engine, 3.5) == [ENDS, ENDS]


def test_groups_are_laid_out_as_megatron_does() -> None:
    layout = pipelined(("a", "b"), 8, 2, 2, 2)
    of = {dim: layout.groups[layout.group(dim, Rank(5))] for dim in ("tp", "dp", "pp", "ep", "mp")}
    assert of["tp"] == (4, 5) and of["dp"] == (1, 3, 5, 7) and of["pp"] == (5, 13)
    assert of["ep"] == (5, 7) and of["mp"] == (4, 5, 12, 13)


@pytest.mark.parametrize("framework", [name for name in tables() if name not in ("common", "native")])
@pytest.mark.parametrize("newer", [False, True])
def test_every_place_of_a_framework_has_frames(framework: str, newer: bool) -> None:
    schedules = tables()[framework].get("schedules", {"": {}})
    installed = Installation("any", newer=newer, marks_native=False)
    for schedule in schedules:
        places = Places(framework, {"loader": "{loader_pinned}", "team": "ctr"}, schedule)
        for name in set(places) - {"team", "inner"}:
            assert installed.stack(places[name]) or not places[name], name
        assert all(installed.stack(inner) for inner in places.inner)
        assert all(installed.stack(places.schedule(name)) for name in schedules[schedule])


def test_projects_are_named_with_their_versions() -> None:
    for name, project in projects().items():
        assert name and project["versions"] and project["source"].startswith("https://"), name
        assert all(len(of) == len(project["versions"]) for of in project["frames"].values()), name
