"""What looks like guilt and is none: nobody is evicted for it, and the true culprit beside it still is."""

from dataclasses import replace

from msgspec import structs

from hangdog_models.collectives import RankCounters
from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.ranks import Rank
from hangdog_models.stack import Frame, ProcessTrace
from hangdog_models.topology import Layout, Topology, build
from hangdog_models.verdict import Act, Kind, StallCause, Verdict
from support.cases.stories import C10D, first, job, look, snapshot, trace, twice

WIDE = job(dp=64, per_machine=8)


def once(*odd: ProcessTrace, topology: Topology = WIDE) -> Verdict:
    """One look at a job in which all but these ranks wait."""
    elsewhere = {one.rank for one in odd}
    waiting = [trace(rank, "gather") for rank in range(topology.world_size) if Rank(rank) not in elsewhere]
    return diagnose(snapshot([*waiting, *odd]), topology)


def test_in_one_look_a_root_is_evicted_alone_and_not_beside_a_rank_that_runs_python() -> None:
    stuck = trace(5, "disk", state="D", wchan="os_acquire_mutex")
    assert once(stuck).evict.machines == ("node-0",)
    assert once(stuck, trace(40, "gather", active=True, gil=True)).evict.machines == ()


def test_a_job_whose_ranks_are_all_stopped_was_suspended() -> None:
    everywhere = [trace(rank, "backward" if rank % 2 else "gather", state="T") for rank in range(64)]
    for seen in ([everywhere], [everywhere, everywhere]):
        verdict = diagnose(snapshot(*seen), WIDE)
        assert (verdict.kind, verdict.evict.machines, verdict.culprit) == (Kind.DEPENDENCY, (), None)
        assert verdict.because[0].code == "job-suspended" and verdict.next[0].do is Act.ASK_PEOPLE
    on_one = diagnose(snapshot(everywhere[:8]), job(dp=8, per_machine=8))
    assert (on_one.kind, on_one.evict.machines) == (Kind.DEPENDENCY, ()), "nor does the only machine stop all of them"


def test_where_one_machine_stopped_or_somebody_was_not_seen_the_job_was_not_suspended() -> None:
    machine = [trace(rank, "backward", state="T" if rank < 8 else "S") for rank in range(64)]
    assert diagnose(snapshot(machine, machine), WIDE).evict.machines == ("node-0",)
    but_one = [trace(rank, "backward", state="T") for rank in range(63)]
    assert diagnose(snapshot(but_one, but_one), WIDE).because[0].code != "job-suspended"


def test_ranks_that_are_stopped_on_two_machines_are_not_stopped_by_the_code() -> None:
    small = job(dp=8, per_machine=2)
    for topology, ranks in ((small, (1, 5)), (WIDE, (5, 40))):
        waiting = [trace(rank, "gather") for rank in range(topology.world_size) if rank not in ranks]
        seen = [*waiting, *(trace(rank, "user", state="T") for rank in ranks)]
        verdict = diagnose(snapshot(seen, seen), topology)
        assert verdict.kind is Kind.MACHINE, topology.world_size
        assert set(verdict.evict.machines) <= set(topology.machines_of(map(Rank, ranks)))


def test_two_ranks_that_sleep_in_the_driver_are_not_there_by_the_code() -> None:
    """No signal reaches them, so the machines have to be started anew either way."""
    waiting = [trace(rank, "gather") for rank in range(WIDE.world_size) if rank not in (5, 40)]
    held = [trace(rank, "uninterruptible sleep", state="D", wchan="uvm_va_space_down_read") for rank in (5, 40)]
    verdict = diagnose(twice([*waiting, *held]), WIDE)
    assert (verdict.kind, verdict.culprit and verdict.culprit.ranks) == (Kind.MACHINE, (5, 40))
    assert verdict.causes[StallCause.SOFTWARE] < 0.3


def test_one_that_runs_where_it_loads_in_the_one_look_there_is_loads() -> None:
    for stack in ("loader", "disk"):
        verdict = once(trace(5, stack, active=True, gil=True))
        assert (verdict.kind, verdict.evict.machines) == (Kind.UNDETERMINED, ())


def test_who_sleeps_while_all_others_are_at_a_barrier_may_wait_for_calls_they_make_no_more() -> None:
    def beside(waiting: str, state: str) -> tuple[str, ...]:
        seen = [*look({"0-4,6-63": waiting}), trace(5, "user", state=state)]
        verdict = diagnose(snapshot(seen, seen), WIDE)
        assert first(verdict) == (5,)
        return verdict.evict.machines

    assert beside("barrier", "S") == beside("gather", "S") == (), "no rule knows where it sleeps"
    assert beside("barrier", "") == (), "nor does any kernel tell whether it is stopped"
    assert beside("barrier", "T") == ("node-0",)


def test_who_sleeps_in_a_function_on_the_way_to_the_barrier_of_the_others_is_stuck_there() -> None:
    """A recorded job: a writer that tries again and again on a full disk, and all others at the barrier behind the save."""
    save = ["<module> train.py", "run loop.py", "save duties.py"]
    barrier = [*save, "save loop.py", f"barrier {C10D}"]
    seen = [trace(rank, save if rank == 5 else barrier, state="S") for rank in range(64)]
    sleep = Frame("clock_nanosleep", "libc.so.6", 0, "/usr/lib/libc.so.6")
    (thread,) = seen[5].threads
    native = structs.replace(seen[5], threads=(structs.replace(thread, frames=(*thread.frames, sleep)),))
    for stuck in (seen[5], native):
        looks = [*seen[:5], stuck, *seen[6:]]
        verdict = diagnose(snapshot(looks, looks), WIDE)
        assert verdict.kind in (Kind.SOFTWARE, Kind.SLOW) and first(verdict) == (5,) and not verdict.evict.machines


def test_who_spins_or_was_not_captured_is_looked_at_first_and_not_accused() -> None:
    """A device that is waited for keeps its host spinning, and captures fail for reasons of their own."""
    optimizer = ["<module> train.py", "step torch/optim/adamw.py"]
    for odd in (trace(5, "user", active=True), trace(5, optimizer, active=True), trace(5, "timed out")):
        seen = [*look({"0-4,6-63": "gather"}), odd]
        verdict = diagnose(snapshot(seen, seen), WIDE)
        assert (first(verdict), verdict.evict.machines) == ((5,), ())
        assert all(suspect.probability < 0.5 for suspect in verdict.suspects)


def test_who_could_not_be_read_because_it_moves_is_no_suspect() -> None:
    seen = [*look({"0-4,6-63": "gather"}), trace(5, "moved while it was read")]
    verdict = diagnose(snapshot(seen, seen), WIDE)
    assert verdict.evict.machines == ()
    assert verdict.because[0].code == "moved-while-read"
    failed = diagnose(snapshot(*[[*look({"0-4,6-63": "gather"}), trace(5, "capture tool failed")]] * 2), WIDE)
    assert verdict.causes[StallCause.MACHINE] < failed.causes[StallCause.MACHINE] / 4


def test_two_machines_at_one_place_of_a_service_are_one_matter() -> None:
    wider = job(dp=256, per_machine=8)  # of so many, a service would hardly fail just two
    looks = [look({"0-4,6-39,41-255": "gather", "5,40": "disk"})] * 2
    assert diagnose(snapshot(*looks), wider).evict.machines == ()
    apart = [[*look({"0-4,6-39,41-255": "gather", "5": "disk"}), trace(40, "user", state="T")]] * 2
    assert diagnose(snapshot(*apart), wider).evict.machines == ("node-0", "node-5")


def test_machines_at_work_at_one_place_are_no_fault_of_the_code() -> None:
    looks = [
        [*look({"0-3,5,7": "metrics"}), trace(4, [*stack], active=True), trace(6, [*stack], active=True)]
        for stack in (["<module> train.py", "read data.py"], ["<module> train.py", "layer model.py"])
    ]
    assert diagnose(snapshot(*looks), job(dp=8, per_machine=2)).kind in (Kind.NONE, Kind.UNDETERMINED)


def test_a_machine_that_does_not_answer_is_not_taken_for_lost_dumps() -> None:
    seen = look({"0-55": "gather", "56-63": "no agent answered"})
    counters = tuple(RankCounters(Rank(r), {"0": 7}, {"0": 6}, (), {}, {}, {"0": 7}) for r in range(56))
    verdict = diagnose(replace(snapshot(seen, seen), counters=counters), WIDE)
    assert (verdict.kind, verdict.evict.machines) == (Kind.MACHINE, ("node-7",))


def test_the_default_group_is_the_worlds_however_few_used_it() -> None:
    four = job(dp=2, tp=2, per_machine=2)
    seen = look({"0-1": "barrier", "2-3": "gather"})
    counters = tuple(RankCounters(Rank(r), {"0": 1}, {"0": 0}, (), {}, {"0": "default_pg"}, {"0": 1}) for r in range(2))
    verdict = diagnose(replace(snapshot(seen, seen), counters=counters), four)
    assert verdict.kind is not Kind.GROUP and not verdict.evict.machines


def test_an_idle_worker_of_a_pool_of_actors_is_no_suspect() -> None:
    """verl and OpenRLHF on Ray: the driver waits in `ray.get` for its workers, and a pool of them has nothing to do."""
    ray = "ray/_private/worker.py"
    idle = ["<module> ray/_private/workers/default_worker.py", f"main_loop {ray}"]
    driver = ["<module> main.py", "fit verl/trainer/ppo/ray_trainer.py", f"get {ray}", f"get_objects {ray}"]
    eight = tuple(map(Rank, range(8)))
    pools = build(Layout(world_size=8, ranks_per_machine=1, groups={"dp": (eight[:4], eight[4:])}), None)[0]
    stuck = twice([*look({"0-1,3": "gather", "2": "user"}), *(trace(rank, idle, state="S") for rank in range(4, 8))])
    verdict = diagnose(stuck, pools)
    assert verdict.culprit is not None and verdict.culprit.ranks == (2,)
    assert {rank for suspect in verdict.suspects for rank in suspect.ranks} == {2}
    waits = twice([trace(0, driver, state="S"), *(trace(rank, idle, state="S") for rank in range(1, 8))])
    assert not diagnose(waits, pools).suspects


def test_no_worker_is_blamed_for_idling_as_all_do() -> None:
    """All wait to be given work, and another thread of rank 0 runs meanwhile: what gives them work is not among them."""
    idle = ["<module> ray/_private/workers/default_worker.py", "main_loop ray/_private/worker.py"]
    seen = [trace(0, idle, active=True, gil=True), *(trace(rank, idle) for rank in range(1, 8))]
    verdict = diagnose(twice(seen), job(dp=8, per_machine=2))
    assert verdict.kind is Kind.UNDETERMINED and not verdict.suspects, verdict.because


def test_who_waits_for_itself_and_for_whom_nobody_waits_is_not_accused() -> None:
    """A call that keeps the interpreter's lock until all ranks have come, while the other rank still loads its program."""
    keeps = trace(0, ["<module> train.py", "start cluster.py"], gil=True, state="S")
    loads = trace(1, ["<module> train.py"], state="S")
    verdict = diagnose(snapshot([keeps, loads], [keeps, loads]), job(dp=2, per_machine=1))
    assert verdict.evict.machines == () and verdict.kind is not Kind.MACHINE


def test_ranks_that_are_all_there_is_have_more_in_common_than_their_machine() -> None:
    lock = "acquire threading.py"
    seen = [
        trace(rank, ["<module> train.py", f"{'push' if rank else 'pull'} rpc.py", lock], state="S") for rank in range(3)
    ]
    verdict = diagnose(snapshot(seen, seen), job(dp=3, per_machine=3))
    assert verdict.evict.machines == ()


def test_who_is_last_in_a_step_in_few_looks_is_not_called_slow() -> None:
    """Two healthy jobs of the timed simulator: one rank came from elsewhere, and computes while all others wait."""
    way = ["<module> train.py", "step train.py"]
    lates = ([*way, f"{layer} model.py"] for layer in ("attention", "experts", "norm"))
    looks = [[*look({"0-39,41-63": "item"}), trace(40, late, state="R", active=True)] for late in lates]
    few = diagnose(snapshot(*looks[:2]), WIDE)
    assert (few.kind, few.evict.machines, first(few)) == (Kind.UNDETERMINED, (), (40,))
    assert StallCause.SLOW not in few.causes or few.causes[StallCause.SLOW] < 0.2
