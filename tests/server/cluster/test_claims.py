"""Who runs which job and which rank of it: the first that says so, of the owner that the kernel names."""

import asyncio
from contextlib import AsyncExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hangdog_models.owner import UNKNOWN, Owner, OwnerKind
from hangdog_models.ranks import Rank
from hangdog_server.cluster.job_registry import Roster
from hangdog_server.cluster.rank_claims import Claims
from hangdog_server.incidents.fair_queue import Turns
from hangdog_server.protocol.jobs import AnnouncedJob
from support.worded import names

ALICE, MALLORY = Owner(OwnerKind.USER, "1000", 1000), Owner(OwnerKind.USER, "1001", 1001)
FIRST, SECOND = Owner(OwnerKind.SLURM, "1", 1000), Owner(OwnerKind.SLURM, "2", 1000)


def local(
    *ranks: int, world: int | None = None, owner: Owner = UNKNOWN, job: str = "run7", at: str = ""
) -> AnnouncedJob:
    return AnnouncedJob(job, tuple(map(Rank, ranks)), world, "", owner, at)


def owned(claims: Claims) -> dict[str, tuple[int, ...]]:
    return {machine: one.ranks for machine, one in claims.owned().items()}


def test_the_first_keeps_a_rank_until_it_gives_it_up() -> None:
    claims = Claims()
    claims.announce("z", local(0, 1))
    claims.announce("a", local(1, 2))
    assert owned(claims) == {"a": (2,), "z": (0, 1)}
    (conflict,) = claims.conflicts()
    assert names(conflict, "a claims rank 1", "z announced")
    claims.announce("z", local(0))  # its process ended
    assert owned(claims) == {"a": (1, 2), "z": (0,)} and not claims.conflicts()
    claims.announce("z", local(0, 1))
    assert owned(claims) == {"a": (1, 2), "z": (0,)}
    claims.withdraw("a")  # its agent is gone
    assert owned(claims) == {"z": (0, 1)} and not claims.conflicts()


def test_a_job_that_starts_again_on_other_machines_is_in_conflict_only_until_the_first_are_told_of() -> None:
    claims = Claims()
    for machine, ranks in (("a", (0, 1)), ("b", (2, 3))):
        claims.announce(machine, local(*ranks, world=4))
    claims.announce("b", local(0, 1, world=4))  # they change places
    assert claims.conflicts()
    claims.announce("a", local(2, 3, world=4))
    assert owned(claims) == {"a": (2, 3), "b": (0, 1)} and not claims.conflicts()
    claims.announce("a", local(0, world=2))  # and it shrinks
    claims.announce("b", local(1, world=2))
    assert owned(claims) == {"a": (0,), "b": (1,)} and not claims.conflicts()


def test_a_job_s_size_is_what_most_say_and_who_says_another_has_no_part() -> None:
    claims = Claims()
    claims.announce("liar", local(900, world=1000))
    claims.announce("a", local(0, world=2))
    assert claims.world() == 1000, "the first, of as many"
    claims.announce("b", local(1, world=2))
    assert claims.world() == 2 and owned(claims) == {"a": (0,), "b": (1,)}
    (conflict,) = claims.conflicts()
    assert names(conflict, "liar", "1000 ranks", "2")
    claims.announce("liar", local(900, world=2))
    assert owned(claims) == {"a": (0,), "b": (1,)}
    (conflict,) = claims.conflicts()
    assert names(conflict, "liar", "rank 900", "2 ranks")


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sets(st.integers(0, 3))), max_size=20))
def test_every_rank_that_is_announced_belongs_to_one_of_those_that_announce_it(
    story: list[tuple[str, set[int]]],
) -> None:
    claims, said = Claims(), dict[str, set[int]]()
    for machine, ranks in story:
        claims.announce(machine, local(*sorted(ranks)))
        said[machine] = ranks
    held = [rank for ranks in owned(claims).values() for rank in ranks]
    assert sorted(held) == sorted(set().union(*said.values()))
    assert all(claims.holds(Rank(rank)) in {m for m, ranks in said.items() if rank in ranks} for rank in held)
    assert bool(claims.conflicts()) == (sum(map(len, said.values())) > len(held))
    for machine in "abc":
        claims.withdraw(machine)
    assert claims == Claims()


def called(roster: Roster, machine: str, *jobs: AnnouncedJob) -> list[str]:
    return list(roster.announce(machine, jobs))


def test_one_name_of_one_owner_is_one_job_and_of_two_owners_two() -> None:
    roster = Roster()
    assert called(roster, "a", local(0, owner=ALICE)) == ["run7"]
    assert called(roster, "b", local(1, owner=ALICE)) == ["run7"]
    assert called(roster, "c", local(0, owner=MALLORY)) == ["run7@user-1001"]
    assert called(roster, "a", local(0, owner=MALLORY), local(0, owner=ALICE)) == ["run7@user-1001", "run7"]
    assert called(roster, "d", local(0, owner=FIRST), local(0, owner=SECOND)) == ["run7@slurm-1", "run7@slurm-2"]
    for machine in "abd":
        roster.withdraw(machine)
    assert roster.labels() == ("run7@user-1001",), "it keeps its name for as long as it runs"
    assert called(roster, "e", local(0, owner=ALICE)) == ["run7"]


def test_nobody_takes_a_name_beforehand_that_another_is_to_be_told_apart_by() -> None:
    roster = Roster()
    assert called(roster, "c", local(0, owner=MALLORY, job="run7@user-1000")) == ["run7@user-1000"]
    assert called(roster, "c", local(0, owner=MALLORY), local(0, owner=MALLORY, job="run7@user-1000"))
    assert called(roster, "a", local(0, owner=ALICE)) == ["run7@user-1000@a"]
    assert roster.label("a", "run7", ALICE) == "run7@user-1000@a" and roster.label("c", "run7", ALICE) is None


def test_machines_of_an_older_agent_are_of_the_job_whose_ranks_they_complete() -> None:
    roster = Roster()
    assert called(roster, "a", local(0, world=3)) == ["run7"]
    assert called(roster, "b", local(1, world=3, owner=ALICE)) == ["run7"], "the first that can tell, does"
    assert called(roster, "c", local(2, world=3)) == ["run7"]
    assert called(roster, "d", local(2, world=3, owner=MALLORY)) == ["run7@user-1001"]
    assert called(roster, "e", local(1, world=3)) == ["run7@unknown"]
    assert called(roster, "a", local(0, world=3, owner=ALICE)) == ["run7"], "it was brought up to date"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (local(0, world=2, at="m", job="default"), local(1, world=2, at="m", job="default"), True),
        (local(0, world=2, job="default"), local(1, world=2, job="default"), True),
        (local(0, world=2, job="default"), local(1, world=4, job="default"), False),
        (local(0, world=1, at="m", job="default"), local(0, world=1, at="m", job="default"), False),
        (local(0, at="m", job="default"), local(1, at="m", job="default"), True),
        (local(0, at="m", job="default"), local(1, at="c", job="default"), False),
        (local(0, job="default"), local(1, job="default"), False),
    ],
)
def test_unnamed_jobs_of_two_machines_are_one_where_something_says_so(
    one: AnnouncedJob, other: AnnouncedJob, same: bool
) -> None:
    roster = Roster()
    assert called(roster, "a", one) == ["default"]
    assert called(roster, "b", other) == (["default"] if same else ["default@b"])


def test_jobs_that_only_their_port_names_are_two_on_two_machines_where_each_is_whole() -> None:
    roster = Roster()
    here, first, second = (local(0, 1, world=2, job="port-12355"), local(0, 1, world=4, job="port-29500"), local(2, 3, world=4, job="port-29500"))  # fmt: skip
    assert called(roster, "a", here, first) == ["port-12355", "port-29500"]
    assert called(roster, "b", here, second) == ["port-12355@b", "port-29500"]


def test_two_sets_of_ranks_under_one_name_are_two_jobs_and_neither_is_in_conflict() -> None:
    """Trainers and rollout workers in one Slurm job: each has a rank 0, and one may hang while the other lives."""
    roster = Roster()
    trainers = [local(0, 1, world=4, owner=FIRST, at="a:29500"), local(2, 3, world=4, owner=FIRST, at="a:29500")]
    rollouts = [local(0, 1, world=4, owner=FIRST, at="c:29500"), local(2, 3, world=4, owner=FIRST, at="c:29500")]
    for _ in range(2):  # said again, it is no restart
        for machine, one in zip("abcd", trainers + rollouts, strict=True):
            roster.announce(machine, [one])
    assert roster.labels() == ("run7", "run7#2")
    for label, machines in (("run7", "ab"), ("run7#2", "cd")):
        entry = roster.get(label)
        assert entry is not None and owned(entry.claims) == {machines[0]: (0, 1), machines[1]: (2, 3)}
        assert not entry.claims.conflicts()
    assert roster.label("d", "run7", FIRST) == "run7#2"
    assert called(roster, "e", local(3, world=4, owner=FIRST, at="c:29500")) == ["run7#2"], "it is known by now"


def test_sets_of_two_sizes_are_told_apart_though_no_rank_is_in_both() -> None:
    roster = Roster()
    for _ in range(2):
        roster.announce("a", [local(0, 1, world=4, owner=FIRST, at="a:29500")])
        roster.announce("b", [local(2, world=3, owner=FIRST, at="c:29500")])
    assert roster.labels() == ("run7", "run7#2")


def test_a_run_of_its_own_on_each_machine_is_told_apart_by_the_machine() -> None:
    """`torchrun --standalone` on each: all of them meet at localhost."""
    roster = Roster()
    for _ in range(2):
        for machine in "ab":
            roster.announce(machine, [local(0, 1, world=2, owner=FIRST, at="localhost:29500")])
    assert roster.labels() == ("run7", "run7#2")


def test_a_job_that_starts_again_and_meets_elsewhere_stays_one() -> None:
    """Its ranks change places, and its machines tell so one after the other."""
    roster = Roster()
    for _ in range(2):
        roster.announce("a", [local(0, 1, world=4, owner=FIRST, at="a:29500")])
        roster.announce("b", [local(2, 3, world=4, owner=FIRST, at="a:29500")])
    for _ in range(3):
        roster.announce("b", [local(0, 1, world=4, owner=FIRST, at="b:41123")])
        roster.announce("a", [local(2, 3, world=4, owner=FIRST, at="b:41123")])
        assert roster.labels() == ("run7",)


async def test_turns_are_counted_and_nobody_waits_for_more_than_one_of_another() -> None:
    """Sixty-four jobs of one user are before it in the queue; the other one has the next turn that there is."""
    turns, order, ends = Turns(1), list[str](), asyncio.Semaphore(0)

    async def capture(user: str, machine: str) -> None:
        async with turns.turn(user, machine):
            order.append(user)
            await ends.acquire()

    async with asyncio.TaskGroup() as group:
        for _ in range(64):
            group.create_task(capture("mallory", "m"))
        await asyncio.sleep(0)
        group.create_task(capture("alice", "a"))
        for _ in range(65):
            await asyncio.sleep(0)
            ends.release()
    assert order.index("alice") == 1 and len(order) == 65


async def test_a_machine_that_invents_users_has_no_more_turns_than_one_that_does_not() -> None:
    turns = Turns(16)
    begun: list[str] = []

    async def capture(user: str, machine: str) -> None:
        async with turns.turn(user, machine):
            begun.append(user)
            await asyncio.sleep(60)

    tasks = [asyncio.create_task(capture(f"invented {number}", "m")) for number in range(64)]
    await asyncio.sleep(0.01)
    assert len(begun) == 9, "of sixteen four are left to people, and three to those who have none"
    tasks.append(asyncio.create_task(capture("alice", "a")))
    await asyncio.sleep(0.01)
    assert begun[-1] == "alice"
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    async with AsyncExitStack() as again:  # whoever was cancelled, waiting or not, holds no turn
        for number in range(12):
            await asyncio.wait_for(again.enter_async_context(turns.turn(f"{number}", f"{number}")), 5)
