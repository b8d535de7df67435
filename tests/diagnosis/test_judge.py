"""Incidents in a few lines: who is named, who is spared, and when hangdog says that it does not know."""

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest
from msgspec import structs

from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.diagnosis.options import DEFAULTS, Options
from hangdog_models.stack import ProcessTrace
from hangdog_models.topology import Topology
from hangdog_models.verdict import Kind, StallCause, Verdict
from hangdog_models.views.first_line import order
from support.cases.reasons import codes
from support.cases.stories import first, job, look, snapshot, trace, twice

CUBE = job(tp=2, dp=2, pp=2)
#: Rank 5, stuck in its driver.
STUCK = trace(5, "user", state="D", wchan="uvm_ioctl")


@pytest.mark.parametrize(
    ("culprit", "likeliest", "evicted"),
    [
        ("disk", Kind.MACHINE, ("node-2",)),
        (
            "loader",
            Kind.MACHINE,
            (),
        ),  # a program that deadlocked in a worker, and storage that is silent, look the same
        ("user", Kind.MACHINE, ()),  # a place that no rule knows evicts nobody
        ("write", Kind.DEPENDENCY, ()),  # nor does the one that writes for all
    ],
)
def test_the_one_outside_of_the_collective_is_named_with_the_likeliest_cause(
    culprit: str, likeliest: Kind, evicted: tuple[str, ...]
) -> None:
    verdict = diagnose(twice(look({"0-4,6-7": "metrics", "5": culprit})), CUBE)
    assert (verdict.kind, first(verdict), verdict.evict.machines) == (likeliest, (5,), evicted)
    assert verdict.culprit is not None and verdict.culprit.probability > 0.9


def test_one_look_names_but_does_not_evict() -> None:
    verdict = diagnose(snapshot(look({"0-4,6-7": "metrics", "5": "disk"})), CUBE)
    assert (verdict.kind, first(verdict), verdict.evict.machines) == (Kind.UNDETERMINED, (5,), ())
    assert "collect-looks" in codes(verdict.because)


def test_who_sleeps_at_its_disk_is_surer_stuck_the_less_it_is_known_to_get_on() -> None:
    """By two looks alone, a slow disk and a dead one are alike; that it was woken again and again tells them apart."""

    def judged(state: str, **counts: float) -> Verdict:
        looks = []
        for at in (0, 1):
            one = trace(5, "disk", state=state)
            if one.state is not None:
                used = {name: at * times for name, times in counts.items()}
                one = structs.replace(one, state=structs.replace(one.state, **used))
            looks.append([*look({"0-4,6-7": "metrics"}), one])
        return diagnose(snapshot(*looks), CUBE)

    stuck, asleep, fed = judged("D"), judged("S"), judged("D", ran_s=0.01, wakes=50)
    assert all(first(verdict) == (5,) for verdict in (stuck, asleep))
    assert stuck.evict.machines == ("node-2",) and not asleep.evict.machines and not fed.evict.machines
    assert stuck.causes[StallCause.MACHINE] > asleep.causes[StallCause.MACHINE] > fed.causes[StallCause.MACHINE]


def test_where_nobody_told_the_machine_of_the_culprit_it_is_asked_for() -> None:
    unplaced = replace(CUBE, machines={})
    verdict = diagnose(twice(look({"0-4,6-7": "metrics", "5": "disk"})), unplaced)
    assert (verdict.kind, first(verdict), verdict.evict.machines) == (Kind.MACHINE, (5,), ())
    assert verdict.suspects[0].probability > 0.95
    (kept,) = (one.text for one in verdict.because if one.code == "kept-machine-unknown")
    assert all(one in kept for one in ("rank 5", "gpus_per_node", "[machines]"))
    assert not any(code.startswith("collect-") for code in codes(verdict.because)), "it is certain"
    assert order(verdict).startswith("Evict nobody") and "machine of rank 5" in order(verdict)
    once = diagnose(snapshot(look({"0-4,6-7": "metrics", "5": "disk"})), unplaced)
    assert "collect-looks" in codes(once.because)


@pytest.mark.parametrize("world", [32, 64])
def test_where_it_takes_more_machines_than_the_budget_that_is_said(world: int) -> None:
    """Of the larger job each suspect alone is more certain than an eviction takes."""
    other = ["<module> train.py", "refresh data.py", "read_bytes pathlib.py"]
    stuck = twice(
        [*look({f"0-1,3-4,6-{world - 1}": "metrics", "2": "disk"}), trace(5, other, state="D", wchan="io_schedule")]
    )
    kept = diagnose(stuck, job(dp=world), Options(budget_machines=1))
    assert (kept.kind, kept.evict.machines) == (Kind.MACHINE, ())
    assert kept.because[-1].code == "kept-over-budget" and re.findall(r"\d+", kept.because[-1].text) == ["2", "1"]
    assert diagnose(stuck, job(dp=world)).evict.machines == ("node-1", "node-2")


def test_the_culprit_is_followed_through_tensor_and_pipeline_groups() -> None:
    """Its tensor peer waits for it, the stage below for that, and the largest cluster is a crowd of victims."""
    verdict = diagnose(twice(look({"0": "disk", "1": "tensor", "4-7": "stage", "2-3": "metrics"})), CUBE)
    assert first(verdict) == (0,)
    assert verdict.evict.machines == ("node-0",)
    assert any("1,4-5" in line.text and "pp, tp" in line.text for line in verdict.suspects[0].because)


def test_a_stopped_process_is_named_although_its_stack_looks_like_all_others() -> None:
    traces = [trace(rank, "backward", state="T" if rank == 6 else "S") for rank in range(8)]
    verdict = diagnose(snapshot(traces), CUBE)
    assert (verdict.kind, first(verdict), verdict.evict.machines) == (Kind.MACHINE, (6,), ("node-3",))


def test_ranks_in_different_collectives_wait_for_each_other_that_is_code() -> None:
    verdict = diagnose(twice(look({"0-2,4-7": "metrics", "3": "barrier"})), CUBE)
    assert (verdict.kind, first(verdict), verdict.evict.machines) == (Kind.SOFTWARE, (3,), ())


def test_several_ahead_of_a_collective_may_have_had_what_the_others_lost() -> None:
    """A network that parts ends a collective of gloo on some ranks; one rank that skips a call is ahead alone."""
    parted = diagnose(twice(look({"0,4-7": "backward", "1-3": "metrics"})), job(dp=8, per_machine=4))
    assert (parted.kind, parted.evict.machines) == (Kind.UNDETERMINED, ())
    skipped = diagnose(twice(look({"0-2,4-7": "backward", "3": "metrics"})), job(dp=8, per_machine=4))
    assert (skipped.kind, first(skipped)) == (Kind.SOFTWARE, (3,))


def test_two_equal_sides_say_nothing_about_the_direction() -> None:
    once = diagnose(snapshot(look({"0-3": "gather", "4-7": "scatter"})), job(dp=8))
    assert (once.kind, once.evict.machines) == (Kind.UNDETERMINED, ())
    verdict = diagnose(twice(look({"0-3": "gather", "4-7": "scatter"})), job(dp=8))
    assert (verdict.kind, verdict.suspects, verdict.evict.machines) == (Kind.SOFTWARE, (), ())


def test_a_minority_that_is_ahead_is_not_blamed() -> None:
    verdict = diagnose(twice(look({"0,7,8": "backward", "1-6,9-11": "metrics"})), job(dp=12, per_machine=4))
    assert verdict.kind in (Kind.SOFTWARE, Kind.UNDETERMINED)
    assert verdict.evict.machines == ()


def test_all_alike_calls_for_more_evidence_not_for_a_guess() -> None:
    verdict = diagnose(twice(look({"0-7": "item"})), CUBE)
    assert (verdict.kind, verdict.suspects) == (Kind.UNDETERMINED, ())
    assert "collect-counters" in codes(verdict.because)


def test_joined_by_all_of_one_group_is_a_fault_inside_it() -> None:
    """One tensor group of eight joined and does not complete; other sizes in one of its calls would look the same."""
    topology = job(tp=8, pp=8, per_machine=8)
    verdict = diagnose(twice(look({"0-23,32-63": "stage", "24-31": "tensor"})), topology)
    assert verdict.kind is Kind.GROUP
    assert (first(verdict), verdict.evict.machines) == (tuple(range(24, 32)), ())


def test_where_all_wait_at_start_up_and_nobody_is_late_the_store_does_not_answer() -> None:
    everybody = look({"0-7": "start"})
    verdict = diagnose(twice(everybody), CUBE)
    assert (verdict.kind, verdict.suspects, verdict.evict.machines) == (Kind.DEPENDENCY, (), ())
    assert verdict.because[0].code == "store-silent"
    assert diagnose(snapshot(everybody), CUBE).kind is Kind.UNDETERMINED  # a moment of any start
    late = diagnose(twice(look({"0-6": "start", "7": "user"})), CUBE)
    assert (late.kind, first(late)) == (Kind.MACHINE, (7,))


def test_a_group_wider_than_half_the_job_is_diagnosed_not_evicted() -> None:
    verdict = diagnose(twice(look({"0-7": "gather"})), job(dp=8))
    assert (verdict.kind, verdict.evict.machines) == (Kind.GROUP, ())
    assert "kept-too-wide" in codes(verdict.because)


def test_many_machines_in_the_data_service_are_a_dependency() -> None:
    verdict = diagnose(twice(look({"0,2,4,6": "loader", "1,3,5,7": "metrics"})), CUBE)
    assert (verdict.kind, verdict.evict.machines) == (Kind.DEPENDENCY, ())


def test_sleep_in_a_network_file_system_is_a_dependency() -> None:
    traces = [trace(rank, "metrics") for rank in range(7)]
    traces.append(trace(7, "write", state="D", wchan="nfs_start_io_read"))
    assert diagnose(twice(traces), CUBE).kind is Kind.DEPENDENCY


def test_one_alone_in_backward_for_ever_is_the_code_s_and_no_machine_s() -> None:
    verdict = diagnose(twice(look({"0-4,6-7": "metrics", "5": "backward"})), job(dp=8))
    assert (verdict.kind, verdict.evict.machines) == (Kind.SOFTWARE, ())


def test_a_missing_file_alone_convicts_nobody() -> None:
    verdict = diagnose(twice(look({"0-6": "metrics"})), CUBE)
    assert (verdict.kind, verdict.evict.machines) == (Kind.UNDETERMINED, ())
    assert first(verdict) == (7,)


def test_a_collector_that_failed_everywhere_names_nobody() -> None:
    verdict = diagnose(twice(look({"0-3": "metrics"})), job(dp=64, per_machine=8))
    assert (verdict.kind, verdict.suspects) == (Kind.UNDETERMINED, ())


def test_a_silent_machine_is_named_by_its_silence() -> None:
    verdict = diagnose(twice(look({"0-5": "metrics", "6-7": "no agent answered"})), CUBE)
    assert (verdict.kind, first(verdict)) == (Kind.MACHINE, (6, 7))
    assert verdict.coverage.failed.keys() == {"6", "7"}


def test_two_faults_at_once_are_both_named() -> None:
    traces = [*look({"0-1,3-4,6-7": "metrics", "2": "disk"}), trace(5, "user", state="T")]
    verdict = diagnose(twice(traces), CUBE)
    assert verdict.kind is Kind.MACHINE
    assert {rank for suspect in verdict.suspects for rank in suspect.ranks} == {2, 5}


def test_a_rank_that_never_started_is_named_by_those_who_did() -> None:
    verdict = diagnose(twice(look({"0-2,4-7": "start", "3": "user"})), CUBE)
    assert (verdict.kind, first(verdict)) == (Kind.MACHINE, (3,))


def test_a_world_of_two_is_an_ordinary_input() -> None:
    verdict = diagnose(twice(look({"0": "metrics", "1": "disk"})), job(dp=2, per_machine=1))
    assert (verdict.kind, first(verdict)) == (Kind.MACHINE, (1,))


def test_nothing_known_of_the_shape_still_gives_an_answer() -> None:
    shapeless = Topology(4, {"world": (tuple(range(4)),)}, {})  # type: ignore[arg-type]
    verdict = diagnose(twice(look({"0-2": "metrics", "3": "disk"})), shapeless)
    assert (verdict.kind, first(verdict), verdict.evict.machines) == (Kind.MACHINE, (3,), ())


def test_no_evidence_at_all_is_undetermined() -> None:
    assert diagnose(snapshot([]), CUBE).kind is Kind.UNDETERMINED


def test_the_coverage_target_is_a_setting() -> None:
    story = snapshot([*look({"0-4,6-7": "metrics"}), STUCK])
    assert diagnose(story, CUBE, Options(coverage_target=0.8)).evict.machines == ("node-2",)


def test_sending_here_and_receiving_there_is_how_a_pipeline_works() -> None:
    sending = [
        "<module> train.py",
        "_batch_p2p torch/distributed/pipelining/schedules.py",
        "isend torch/distributed/distributed_c10d.py",
    ]
    waiting = ["<module> train.py", "_wait_batch_p2p torch/distributed/pipelining/schedules.py"]
    verdict = diagnose(snapshot([trace(rank, sending if rank == 2 else waiting) for rank in range(4)]), job(pp=4))
    assert (verdict.kind, verdict.evict.machines) == (Kind.UNDETERMINED, ())


def test_ranks_on_their_way_out_are_victims_of_a_dead_one() -> None:
    leaving = ["_shutdown threading.py"]
    traces = [trace(0, "backward"), trace(1, leaving), trace(2, "exited", state="Z"), trace(3, leaving)]
    verdict = diagnose(twice(traces), job(dp=4, per_machine=1))
    assert first(verdict) == (2,)
    assert {rank for suspect in verdict.suspects for rank in suspect.ranks} == {2}


def test_a_program_that_ended_by_itself_is_named() -> None:
    traces = [*look({"0-2": "metrics"}), trace(3, ["_shutdown threading.py"])]
    verdict = diagnose(twice(traces), job(dp=4, per_machine=1))
    assert (verdict.kind, first(verdict), verdict.evict.machines) == (Kind.SOFTWARE, (3,), ())
    assert 0.5 < verdict.confidence < 0.65
    assert 0.07 < verdict.causes[StallCause.DEPENDENCY] < 0.13 and verdict.causes[StallCause.MACHINE] < 0.35


def test_a_peer_outside_of_the_job_that_does_not_answer_is_a_dependency() -> None:
    def asking(rank: int) -> ProcessTrace:
        one = trace(rank, "user", state="S")
        assert one.state
        return structs.replace(one, state=structs.replace(one.state, syscall="45 0xb 0x55 0x10000"))  # recvfrom

    everybody = [asking(rank) for rank in range(4)]
    assert diagnose(twice(everybody), job(dp=4, per_machine=1)).kind is Kind.DEPENDENCY
    some = [*look({"0,2": "metrics"}), asking(1), asking(3)]
    assert diagnose(twice(some), job(dp=4, per_machine=1)).kind is Kind.DEPENDENCY


def test_asleep_at_one_line_on_two_machines_is_no_fault_of_either() -> None:
    verdict = diagnose(twice(look({"0,2": "backward", "1,3": "user"})), job(dp=4, per_machine=1))
    assert verdict.kind in (Kind.SOFTWARE, Kind.DEPENDENCY) and not verdict.evict.machines
    assert verdict.culprit is not None and verdict.culprit.ranks == (1, 3)
    assert verdict.confidence < 0.5 and verdict.causes[StallCause.MACHINE] < 0.1


def test_one_line_of_code_does_not_say_which_group_is_meant() -> None:
    """Two ranks that take groups A, B and two that take B, A stand at one line; so do four in a group that is stuck."""
    verdict = diagnose(twice(look({"0-3": "metrics"})), job(dp=4, per_machine=1))
    assert (verdict.kind, verdict.evict.machines) == (Kind.UNDETERMINED, ())


def test_a_forgotten_breakpoint_is_code() -> None:
    prompt = ["step train.py", "trace_dispatch bdb.py", "interaction pdb.py", "cmdloop cmd.py"]
    verdict = diagnose(twice([trace(0, prompt), *look({"1-7": "backward"})]), CUBE)
    assert (verdict.kind, first(verdict), verdict.evict.machines) == (Kind.SOFTWARE, (0,), ())


@pytest.mark.parametrize("stack", ["backward", "user", "write", "loader"])
def test_who_is_held_by_a_debugger_has_no_sick_machine(stack: str) -> None:
    traces = [trace(rank, stack if rank == 6 else "backward", state="t" if rank == 6 else "S") for rank in range(8)]
    for verdict in (diagnose(twice(traces), CUBE), diagnose(snapshot(traces), CUBE)):
        assert (verdict.kind, first(verdict), verdict.evict.machines) == (Kind.SOFTWARE, (6,), ())
        assert "held by a debugger" in " ".join(map(str, verdict.because))


def test_everybody_in_a_lock_of_its_own_is_code() -> None:
    own = ["step train.py", "add stats.py", "put queue.py", "wait threading.py"]
    verdict = diagnose(twice([trace(rank, own) for rank in range(4)]), job(dp=4, per_machine=1))
    assert (verdict.kind, verdict.evict.machines) == (Kind.SOFTWARE, ())


def test_a_root_that_few_wait_for_explains_less_than_one_that_all_wait_for() -> None:
    """Rank 0 holds its stage and all behind it; rank 7 holds nobody: its group is complete elsewhere."""
    topology = job(tp=2, pp=4, per_machine=1)
    traces = [trace(0, "user"), trace(1, "tensor"), *look({"2-6": "stage"}), trace(7, "other")]
    verdict = diagnose(twice(traces), topology)
    assert first(verdict) == (0,)


def test_a_verdict_of_machine_names_one_that_is_more_likely_than_not() -> None:
    running = [trace(rank, stack, active=True) for rank, stack in ((2, "user"), (3, "other"))]
    verdict = diagnose(twice([*look({"0-1": "backward"}), *running]), job(dp=4, per_machine=1))
    assert verdict.kind is Kind.UNDETERMINED


def test_half_a_pipeline_may_wait_for_what_was_lost_as_well_as_for_code() -> None:
    """Both pairs of stage 0 stand at one line, stage 1 waits: for what was not sent, or was and is lost, or the pairs are stuck."""
    verdict = diagnose(twice(look({"0-3": "metrics", "4-7": "stage"})), CUBE)
    assert (verdict.kind, verdict.evict.machines) == (Kind.UNDETERMINED, ())
    assert 0 < verdict.confidence <= 0.5
    assert "message-may-be-lost" in codes(verdict.because)


def test_the_order_of_operations_is_not_blamed_for_those_who_wait_for_others() -> None:
    """A parted network: 4 and 5 had what they waited for and went on; 2 and 6, 3 and 7 wait for each other."""
    verdict = diagnose(twice(look({"0-3,6-7": "stage", "4-5": "metrics"})), CUBE)
    assert (verdict.kind, verdict.evict.machines) == (Kind.UNDETERMINED, ())


@pytest.mark.parametrize("others", ["stage", "item"])
def test_a_barrier_that_some_ranks_of_many_machines_are_at_is_the_code_and_no_lost_message(others: str) -> None:
    """A link has two ends. On the other machines its ranks have all had what they waited for, or none has."""
    verdict = _barred(others, (1, 6, 11))
    assert (verdict.kind, verdict.evict.machines) == (Kind.SOFTWARE, ())
    assert not verdict.causes[StallCause.GROUP]


@pytest.mark.parametrize("others", ["stage", "item"])
def test_a_barrier_that_half_a_tensor_group_is_at_may_follow_a_lost_message(others: str) -> None:
    """A loop that ends early for some is commoner than a collective that ends on some of its ranks only, but both occur."""
    verdict = _barred(others, (4, 5))
    assert (verdict.kind, verdict.evict.machines) == (Kind.SOFTWARE, ())
    assert verdict.confidence < DEFAULTS.coverage_target and verdict.causes[StallCause.GROUP] > 0.05


def _barred(others: str, barred: Sequence[int]) -> Verdict:
    """Some of 32 ranks are at a barrier, and the others in the middle of a step."""
    wide = job(tp=4, pp=2, dp=4, per_machine=4)
    at = dict.fromkeys(map(str, range(32)), others) | dict.fromkeys(map(str, barred), "barrier")
    return diagnose(twice(look(at)), wide)


def test_a_layer_that_no_tool_saw_running_may_be_stopped() -> None:
    layer = ["step train.py", "forward torch/nn/modules/linear.py"]
    unseen = [structs.replace(t, threads=(structs.replace(t.threads[0], active=None),)) for t in (trace(2, layer),)]
    verdict = diagnose(snapshot([*look({"0-1,3": "metrics"}), *unseen]), job(dp=4, per_machine=1))
    assert (verdict.kind, first(verdict)) == (Kind.MACHINE, (2,))
    running = diagnose(snapshot([*look({"0-1,3": "metrics"}), trace(2, layer, active=True)]), job(dp=4, per_machine=1))
    assert running.kind is Kind.UNDETERMINED
