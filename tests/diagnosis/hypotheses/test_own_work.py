"""A rank that others wait for, and that gets on: an evaluation, an upload, a compilation, or a loop that does not end."""

from dataclasses import replace

import pytest
from msgspec import structs

from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.ranks import Rank, parse_ranks
from hangdog_models.snapshot import Job
from hangdog_models.stack import Missing, ProcessState, ProcessTrace, Reason
from hangdog_models.verdict import Kind, StallCause, Verdict
from support.cases.reasons import codes
from support.cases.stories import first, job, look, snapshot, trace

WIDE = job(dp=16, per_machine=1)
EVALUATION = ["<module> train.py", "evaluate evaluation.py", "edit_distance evaluation.py"]
UPLOAD = ["<module> train.py", "save checkpoint.py", "send http/client.py"]
WRITER = ["<module> train.py", "save torch/serialization.py", "_save torch/serialization.py"]
COMPILER = ["<module> train.py", "_compile torch/_dynamo/convert_frame.py"]


def counted(trace_: ProcessTrace, number: int, *, ran_s: float | None, wakes: int | None) -> ProcessTrace:
    """The same process in look `number`: what its thread used the processor, and how often it was woken, so far."""
    assert trace_.state is not None
    so_far = structs.replace(
        trace_.state,
        ran_s=None if ran_s is None else 100 + number * ran_s,
        wakes=None if wakes is None else 1000 + number * wakes,
    )
    return structs.replace(trace_, state=so_far)


def in_call(one: ProcessTrace, syscall: str) -> ProcessTrace:
    """The same process in a system call."""
    assert one.state is not None
    return structs.replace(one, state=structs.replace(one.state, syscall=syscall))


def beside_a_barrier(
    odd: ProcessTrace, *, ran_s: float | None = None, wakes: int | None = None, waits: str = "gather"
) -> Verdict:
    """Three looks a second apart at 16 ranks: rank 3 as it stands, and all others where they wait."""
    seen = [look({"0-2,4-15": waits}) for _ in range(3)]
    looks = [[*each, counted(odd, at, ran_s=ran_s, wakes=wakes)] for at, each in enumerate(seen)]
    return diagnose(snapshot(*looks), WIDE)


def test_whoever_runs_code_of_its_own_is_slow_and_evicts_nobody() -> None:
    own = ["<module> train.py", "refine policy.py", "edit_distance policy.py"]
    verdict = beside_a_barrier(trace(3, own, state="R", active=True, gil=True), ran_s=0.9, wakes=5)
    assert (verdict.kind, first(verdict), verdict.evict.machines) == (Kind.SLOW, (3,), ())
    evaluates = beside_a_barrier(trace(3, EVALUATION, state="R", active=True, gil=True), ran_s=0.9, wakes=5)
    assert evaluates.kind is Kind.NONE and evaluates.culprit is not None and evaluates.culprit.ranks == (3,)


def test_whose_thread_does_not_run_is_not_at_work() -> None:
    """The tool's word that it is active is one moment; the kernel counts."""
    verdict = beside_a_barrier(trace(3, EVALUATION, state="R", active=True, gil=True), ran_s=0.0, wakes=0)
    assert (verdict.kind, first(verdict), verdict.evict.machines) == (Kind.SOFTWARE, (3,), ())


@pytest.mark.parametrize("stack", [UPLOAD, WRITER])
def test_who_sleeps_in_a_transfer_and_is_woken_again_and_again_gets_on(stack: list[str]) -> None:
    sleeper = in_call(trace(3, stack, state="S"), "44")  # sendto
    assert beside_a_barrier(sleeper, ran_s=0.01, wakes=40).kind is not Kind.MACHINE
    stuck = beside_a_barrier(sleeper, ran_s=0.0, wakes=0)
    assert first(stuck) == (3,) and stuck.culprit is not None and stuck.culprit.probability >= 0.5


def test_who_sleeps_by_its_own_timer_asks_again_and_again_and_is_not_said_to_get_on() -> None:
    """Its wakes are the ends of its own sleeps: nothing that it waits for has come."""
    sleeper = trace(3, ["<module> train.py", "wait_for_flag own.py"], state="S")
    assert sleeper.state is not None
    sleeper = structs.replace(sleeper, state=structs.replace(sleeper.state, wchan="hrtimer_nanosleep"))
    verdict = beside_a_barrier(sleeper, ran_s=0.001, wakes=20)
    assert (first(verdict), verdict.evict.machines) == ((3,), ())
    assert verdict.kind is not Kind.NONE and "gets-on" not in codes(verdict.because)


def test_who_waits_for_its_pool_while_all_others_wait_for_its_lock_file_prepares_for_all() -> None:
    """Processes that map a data set are no loader of batches: what holds them is code or a service more often than a machine."""
    waits = ["get multiprocess/pool.py", "wait multiprocess/pool.py", "wait threading.py"]
    pool = [
        "<module> train.py",
        "prepare own.py",
        "map datasets/arrow_dataset.py",
        "iflatmap_unordered datasets/utils/py_utils.py",
        *waits,
    ]
    locked = ["<module> train.py", "prepare own.py", "__enter__ filelock/_api.py", "acquire filelock/_api.py"]

    def judged(others: list[str]) -> Verdict:
        seen = [trace(rank, pool if rank == 0 else others, state="S") for rank in range(16)]
        return diagnose(snapshot(seen, seen, seen), WIDE)

    verdict = judged(locked)
    assert (verdict.suspects[0].ranks, verdict.evict.machines) == ((0,), ())
    assert verdict.culprit is not None and verdict.culprit.probability > 0.9


def test_a_sleeper_that_nobody_counted_is_named_and_not_evicted() -> None:
    writer = trace(3, WRITER, state="S")
    verdict = beside_a_barrier(writer)
    assert (verdict.kind, first(verdict), verdict.evict.machines) == (Kind.DEPENDENCY, (3,), ())
    stuck = beside_a_barrier(writer, ran_s=0.0, wakes=0)
    assert stuck.kind is Kind.DEPENDENCY and stuck.causes[StallCause.SLOW] < verdict.causes[StallCause.SLOW]


def test_a_compiler_that_runs_compiles_and_nothing_is_stuck() -> None:
    compiler = trace(3, COMPILER, state="R", active=True)
    verdict = beside_a_barrier(compiler, ran_s=0.9, wakes=5)
    assert (verdict.kind, verdict.suspects, verdict.evict.machines) == (Kind.NONE, (), ())
    assert verdict.because[0].text.startswith("rank 3 is compiling") and verdict.because[0].code == "gets-on"
    stuck = beside_a_barrier(compiler, ran_s=0.0, wakes=0)
    assert (stuck.kind, first(stuck), stuck.evict.machines) == (Kind.SOFTWARE, (3,), ())


@pytest.mark.parametrize(
    "compiler",
    [
        ["compile_fx torch/_inductor/compile_fx.py", "wait torch/_inductor/async_compile.py", "wait threading.py"],
        ["run triton/runtime/autotuner.py", "do_bench triton/testing.py", "synchronize torch/cuda/__init__.py"],
        ["make_cubin triton/backends/nvidia/compiler.py", "run subprocess.py", "communicate subprocess.py"],
        ["cache_miss jax/_src/pjit.py", "backend_compile_and_load jax/_src/compiler.py"],
        ["_run_ninja_build torch/utils/cpp_extension.py", "run subprocess.py", "communicate subprocess.py"],
        ["call_neuron_compiler libneuronxla/neuron_cc_wrapper.py", "wait subprocess.py"],
    ],
)
@pytest.mark.parametrize("looks", [1, 3])
def test_a_compiler_that_has_run_for_half_an_hour_is_named_and_its_machine_stays(
    compiler: list[str], looks: int
) -> None:
    """Where all of them compile, nobody is named."""
    stack = ["<module> train.py", "step train.py", *compiler]

    def judged(ranks: str) -> Verdict:
        at_it = set(parse_ranks(ranks))
        seen = [trace(rank, stack if rank in at_it else "gather") for rank in range(16)]
        return diagnose(replace(snapshot(*[seen] * looks), job=Job("half an hour", stalled_s=1800.0)), WIDE)

    one, every = judged("3"), judged("0-15")
    assert one.kind in (Kind.SOFTWARE, Kind.SLOW) and first(one) == (3,) and not one.evict.machines
    assert every.kind is Kind.UNDETERMINED and not (every.suspects or every.evict.machines)


def test_one_that_polls_among_many_alike_is_one_of_them() -> None:
    """Its lines change, those of the others do not: waits that poll have lines, too."""
    place = ["<module> train.py", "train loop.py", "poll loop.py"]

    def moved(at: int) -> list[ProcessTrace]:
        polling = [trace(rank, place, state="S") for rank in range(16)]
        (thread,) = polling[3].threads
        frames = (*thread.frames[:-1], structs.replace(thread.frames[-1], line=at + 1))
        polling[3] = structs.replace(polling[3], threads=(structs.replace(thread, frames=frames),))
        return polling

    verdict = diagnose(snapshot(*[moved(at) for at in range(3)]), WIDE)
    assert not verdict.evict.machines and verdict.kind is not Kind.MACHINE


def test_an_address_outside_of_the_job_is_no_sick_machine() -> None:
    verdict = beside_a_barrier(in_call(trace(3, UPLOAD, state="S"), "45"))  # recvfrom
    assert (verdict.kind, first(verdict), verdict.evict.machines) == (Kind.DEPENDENCY, (3,), ())


def test_a_job_whose_own_progress_went_on_between_the_looks_is_sound() -> None:
    """All looks met it where its loader is waited for; that its step lines went on says that these were different steps."""
    loads, progress = ["<module> train.py", "__next__ torch/utils/data/dataloader.py"], (7, 8, 9)

    def judged(steps: tuple[int | None, ...]) -> Verdict:
        looks = []
        for counted_ in steps:
            one = trace(3, loads, state="S")
            assert one.state is not None
            one = structs.replace(one, state=structs.replace(one.state, steps=counted_, ran_s=1.0, wakes=5))
            looks.append([*look({"0-2,4-15": "gather"}), one])
        return diagnose(snapshot(*looks), WIDE)

    sound = judged(progress)
    assert sound.kind is Kind.NONE and not sound.suspects and sound.because[0].code == "job-progressed"
    for stalled in ((9, 9, 9), (7, 9, 9), (None, None, None)):
        assert judged(stalled).kind is Kind.MACHINE


@pytest.mark.parametrize(
    ("made", "waits"),
    [
        (["fetch torch/utils/data/_utils/fetch.py", "__getitem__ data.py", "encode_batch tokens.py"], False),
        (["_get_data torch/utils/data/dataloader.py", "get queue.py", "wait threading.py"], True),
    ],
)
def test_who_makes_its_batch_itself_waits_for_no_loader(made: list[str], waits: bool) -> None:
    """A tokeniser in C stood in the same call in three looks, and asleep in the queue of its workers a rank does.

    Neither evicts its machine: who waits is held up by code or by storage as often as by its machine.
    """
    wait = ["<module> train.py", "__next__ torch/utils/data/dataloader.py", "_next_data torch/utils/data/dataloader.py"]
    one = trace(3, [*wait, *made], state="S") if waits else trace(3, [*wait, *made], state="R", active=True)
    verdict = diagnose(snapshot(*[[*look({"0-2,4-15": "gather"}), one]] * 3), WIDE)
    assert first(verdict) == (3,) and not verdict.evict.machines
    assert ("waits-for-loader" in codes(verdict.suspects[0].because)) is waits


@pytest.mark.parametrize(
    ("stack", "idle"),
    [(COMPILER, Kind.SOFTWARE), (["<module> train.py", "__next__ torch/utils/data/dataloader.py"], Kind.MACHINE)],
)
def test_whose_children_are_at_work_is_served(stack: list[str], idle: Kind) -> None:
    """It sleeps while a compiler or a loader's worker of its own uses the processor; one of them began between the looks."""

    def judged(used_s: float) -> Verdict:
        looks = []
        for at in range(2):
            child = ProcessTrace(Rank(3), "child-0", 77, state=ProcessState(77, "S", cpu_s=5 + at * used_s))
            started = ProcessTrace(Rank(3), "child-1", 78, state=ProcessState(78, "S", cpu_s=used_s))
            waiting = counted(trace(3, stack, state="S"), at, ran_s=0.0, wakes=0)
            looks.append([*look({"0-2,4-15": "gather"}), waiting, child, *[started] * at])
        return diagnose(snapshot(*looks), WIDE)

    assert judged(0.0).kind is idle
    at_work = judged(0.8)
    assert at_work.kind in (Kind.NONE, Kind.SLOW, Kind.SOFTWARE, Kind.UNDETERMINED) and at_work.kind is not idle
    assert not at_work.evict.machines and (at_work.kind is Kind.NONE or first(at_work) == (3,))


def test_a_writer_that_a_slow_file_system_wakes_twice_a_second_writes() -> None:
    writer = trace(3, WRITER, state="S", wchan="pipe_write")
    assert beside_a_barrier(writer, ran_s=0.0, wakes=2).kind is not Kind.MACHINE
    asleep = trace(3, WRITER, state="S", wchan="hrtimer_nanosleep")
    again = beside_a_barrier(asleep, ran_s=0.0, wakes=2)
    assert again.kind is Kind.DEPENDENCY and first(again) == (3,), "it tries again and again, and writes nothing"


def test_who_waits_for_a_thread_of_its_own_waits_for_what_that_one_does() -> None:
    """A writer, an upload or a prefetch runs beside the thread that trains, which asks for its result."""
    result = ["<module> train.py", "flush metrics.py", "result concurrent/futures/_base.py", "wait threading.py"]
    verdict = beside_a_barrier(trace(3, result, state="S"))
    assert first(verdict) == (3,) and not verdict.evict.machines
    lock = ["<module> train.py", "flush metrics.py", "acquire logging/__init__.py"]
    assert verdict.causes[StallCause.SLOW] > beside_a_barrier(trace(3, lock, state="S")).causes[StallCause.SLOW]


def test_the_longer_a_standstill_the_less_it_is_a_duty() -> None:
    own = trace(3, ["<module> train.py", "refine policy.py"], state="R", active=True, gil=True)
    seen = snapshot([*look({"0-2,4-15": "gather"}), own])

    def duty(stalled_s: float) -> float:
        return diagnose(replace(seen, job=replace(seen.job, stalled_s=stalled_s)), WIDE).causes[StallCause.SLOW]

    assert duty(600.0) > duty(1800.0) > duty(6000.0)


def test_who_sleeps_while_the_others_gather_does_no_duty() -> None:
    sleeper = trace(3, ["<module> train.py", "main train.py"], state="S")
    store = [
        "<module> train.py",
        "_store_based_barrier torch/distributed/distributed_c10d.py",
        "doWait libtorch_cpu.so",
    ]
    gathering = diagnose(snapshot([*(trace(rank, store, state="S") for rank in range(16) if rank != 3), sleeper]), WIDE)
    training = diagnose(snapshot([*look({"0-2,4-15": "gather"}), sleeper]), WIDE)
    assert first(gathering) == (3,) and gathering.kind is Kind.SOFTWARE
    assert training.kind is Kind.UNDETERMINED and first(training) == (3,)


def five_seconds_apart(sleeper: ProcessTrace, wakes: int) -> Verdict:
    """Three looks at a rank that sleeps by its own timer, while all others wait for it."""
    seen = [[*look({"0-2,4-15": "gather"}), counted(sleeper, at, ran_s=0.0, wakes=wakes)] for at in range(3)]
    return diagnose(replace(snapshot(*seen), interval_s=5.0), WIDE)


def test_who_sleeps_by_its_own_timer_and_wakes_once_a_second_is_not_stuck() -> None:
    own = ["<module> train.py", "watch_budget hooks.py"]
    sleeper = trace(3, own, state="S", wchan="hrtimer_nanosleep")
    wakes, sleeps = five_seconds_apart(sleeper, 5), five_seconds_apart(sleeper, 1)
    assert (wakes.kind, first(wakes), wakes.evict.machines) == (Kind.SLOW, (3,), ())
    assert sleeps.kind is Kind.SOFTWARE
    answered = trace(3, own, state="S", wchan="wait_woken")  # a look that stops it wakes it as well
    assert five_seconds_apart(answered, 5).kind is not Kind.SLOW


def test_who_looks_again_and_again_whether_a_lock_file_is_gone_is_stuck_though_it_wakes() -> None:
    poller = trace(3, ["<module> train.py", "wait torch/utils/file_baton.py"], state="S", wchan="hrtimer_nanosleep")
    assert five_seconds_apart(poller, 5).causes == five_seconds_apart(poller, 1).causes


def test_one_look_tells_who_holds_the_job_up_where_it_does_not_tell_why() -> None:
    """Whether it compiles for a while or for ever, all others wait for rank 3."""
    verdict = diagnose(snapshot([*look({"0-2,4-15": "gather"}), trace(3, COMPILER)]), WIDE)
    assert (verdict.kind, verdict.evict.machines) == (Kind.UNDETERMINED, ())
    assert verdict.culprit is not None and verdict.culprit.ranks == (3,) and verdict.culprit.probability > 0.95
    assert verdict.culprit.because[0].text.startswith("rank 3 is compiling")
    assert verdict.culprit.causes[StallCause.UNKNOWN] > 0.5 > max(one.probability for one in verdict.suspects)


def test_who_gets_on_is_who_the_others_wait_for_though_nothing_is_stuck() -> None:
    verdict = beside_a_barrier(trace(3, WRITER, state="R", active=True), ran_s=0.5, wakes=5)
    assert (verdict.kind, verdict.suspects[:1]) == (Kind.NONE, ())
    assert verdict.culprit is not None and verdict.culprit.ranks == (3,) and verdict.culprit.probability > 0.9
    assert verdict.culprit.causes[StallCause.HEALTHY] > 0.5


def test_that_who_does_not_answer_is_elsewhere_makes_it_no_less_sure_who_waits_for_the_answer() -> None:
    verdict = beside_a_barrier(trace(3, UPLOAD, state="S"), ran_s=0.0, wakes=0)
    assert verdict.culprit is not None and verdict.culprit.ranks == (3,) and verdict.culprit.probability > 0.99
    assert verdict.causes[StallCause.MACHINE] < 0.15 and verdict.evict.machines == ()


def test_that_a_loaders_worker_was_stopped_is_said() -> None:
    wait = ["<module> train.py", "_next_data torch/utils/data/dataloader.py", "get queue.py", "wait threading.py"]

    def judged(state: str) -> Verdict:
        worker = ProcessTrace(Rank(3), "dataloader-0", 77, state=ProcessState(77, state))
        return diagnose(snapshot(*[[*look({"0-2,4-15": "gather"}), trace(3, wait, state="S"), worker]] * 3), WIDE)

    stopped = judged("T")
    assert (stopped.kind, first(stopped)) == (Kind.MACHINE, (3,))
    assert "child-stopped" in codes(stopped.because)
    assert "child-stopped" not in codes(judged("S").because)


def test_who_waits_for_another_process_is_held_up_by_code_and_not_by_its_machine() -> None:
    own = ["<module> train.py", "read_plan train.py"]

    def judged(wchan: str) -> Verdict:
        return beside_a_barrier(trace(3, own, state="S", wchan=wchan), ran_s=0.0, wakes=0)

    known, unknown = judged("wait_for_partner"), judged("futex_wait_queue")
    assert (known.kind, first(known), known.evict.machines) == (Kind.SOFTWARE, (3,), ())
    assert known.causes[StallCause.SOFTWARE] > 0.7 > unknown.causes[StallCause.SOFTWARE]
    assert known.causes[StallCause.MACHINE] < 0.1
    assert known.because[0].code == "asleep" and "at a pipe" in known.because[0].text
    assert "collect-native-stacks" in codes(unknown.because)
    assert "collect-native-stacks" not in codes(known.because)


def test_that_a_remote_call_wakes_by_its_own_timer_is_no_answer() -> None:
    grpc = ["<module> train.py", "fetch train.py", "__call__ grpc/_channel.py", "_blocking grpc/_channel.py"]
    verdict = beside_a_barrier(trace(3, grpc, state="S", wchan="do_epoll_wait"), ran_s=0.0, wakes=25)
    assert (verdict.kind, first(verdict), verdict.evict.machines) == (Kind.DEPENDENCY, (3,), ())
    plain = ["<module> train.py", "fetch train.py", "readinto socket.py"]
    served = beside_a_barrier(trace(3, plain, state="S", wchan="do_epoll_wait"), ran_s=0.0, wakes=25)
    assert served.kind is Kind.NONE, "what a plain socket is woken by has arrived"


def test_one_line_of_a_duty_for_minutes_may_be_a_loop_whatever_its_function_is_called() -> None:
    own = ["<module> train.py", "tokenize train.py", "match re/__init__.py"]

    def judged(stalled_s: float | None) -> Verdict:
        stuck = trace(3, own, state="R", active=True, gil=True)
        seen = [look({"0-2,4-15": "gather"}) for _ in range(3)]
        looks = [[*each, counted(stuck, at, ran_s=0.99, wakes=0)] for at, each in enumerate(seen)]
        whole = snapshot(*looks)
        return diagnose(replace(whole, job=replace(whole.job, stalled_s=stalled_s)), WIDE)

    assert judged(None).kind is Kind.NONE
    stood = judged(300.0)
    assert (stood.kind, first(stood), stood.evict.machines) == (Kind.UNDETERMINED, (3,), ())


def test_a_pipe_that_is_opened_like_a_file_is_no_storage() -> None:
    opens = ["<module> train.py", "read_plan train.py", "open pathlib.py"]

    def judged(wchan: str) -> Verdict:
        return beside_a_barrier(trace(3, opens, state="S", wchan=wchan), ran_s=0.0, wakes=0)

    pipe, mount = judged("wait_for_partner"), judged("request_wait_answer")
    assert (pipe.kind, first(pipe), pipe.evict.machines) == (Kind.SOFTWARE, (3,), ())
    assert mount.kind is not Kind.SOFTWARE and "storage" in mount.because[0].text


@pytest.mark.parametrize(
    ("wchan", "reason", "kind", "evicts"),
    [
        ("nvidia_unlocked_ioctl", Reason.UNINTERRUPTIBLE, Kind.MACHINE, True),
        (
            "rpc_wait_bit_killable",
            Reason.UNINTERRUPTIBLE,
            Kind.MACHINE,
            True,
        ),  # as of a rank that reads there itself, alone
        ("hrtimer_nanosleep", Reason.NOT_PYTHON, Kind.SOFTWARE, False),
    ],
)
def test_who_waits_for_a_program_is_held_up_by_what_that_one_waits_for(
    wchan: str, reason: Reason, kind: Kind, evicts: bool
) -> None:
    own = ["<module> train.py", "health train.py", "communicate subprocess.py"]
    letter = "D" if reason is Reason.UNINTERRUPTIBLE else "S"
    program = ProcessTrace(
        Rank(3), "child-0", 99, (), ProcessState(99, letter, wchan, comm="nvidia-smi"), Missing(reason, "")
    )
    waits = trace(3, own, state="S", wchan="do_wait")
    seen = [[*look({"0-2,4-15": "gather"}), counted(waits, at, ran_s=0.0, wakes=0), program] for at in range(3)]
    verdict = diagnose(snapshot(*seen), WIDE)
    assert (verdict.kind, first(verdict), bool(verdict.evict.machines)) == (kind, (3,), evicts)
    assert "its child process nvidia-smi (99)" in verdict.because[0].text


def test_of_several_programs_none_speaks_for_the_rank_that_started_them() -> None:
    own = ["<module> train.py", "health train.py", "communicate subprocess.py"]
    asleep = Missing(Reason.UNINTERRUPTIBLE, "")
    logger = ProcessTrace(Rank(3), "child-0", 98, (), ProcessState(98, "D", "io_schedule", comm="tee"), asleep)
    awaited = ProcessTrace(Rank(3), "child-1", 99, (), ProcessState(99, "S", "hrtimer_nanosleep", comm="sleep"))
    waits = trace(3, own, state="S", wchan="do_wait")
    both = [logger, awaited]
    seen = [[*look({"0-2,4-15": "gather"}), counted(waits, at, ran_s=0.0, wakes=0), *both] for at in range(3)]
    verdict = diagnose(snapshot(*seen), WIDE)
    assert (verdict.kind, first(verdict), verdict.evict.machines) == (Kind.SOFTWARE, (3,), ())


def test_who_runs_inside_of_c_in_its_own_code_is_looked_at_natively() -> None:
    """As a rank in MPI's barrier, which polls: Python shows its own function only, and holds no lock of the interpreter."""
    busy = [trace(rank, ["<module> train.py", "train train.py"], state="R", active=True) for rank in (3,)]
    others = [trace(rank, ["<module> train.py", "average train.py"], state="R", active=True) for rank in (0, 1, 2)]
    looks = [[*busy, *others]] * 3
    verdict = diagnose(snapshot(*looks), job(dp=4, per_machine=1))
    assert first(verdict) == (3,) and verdict.evict.machines == ()
    assert "collect-native-stacks" in codes(verdict.because), verdict.because
