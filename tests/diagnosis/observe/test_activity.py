"""What a rank is doing is read off frames of many frameworks, kernel states and failed captures."""

import pytest
from msgspec import structs

from hangdog_models.diagnosis.observe.activity import CHILD, FROZEN, LOCK_FILE, read
from hangdog_models.diagnosis.observe.kernel_sleep import KernelWait
from hangdog_models.diagnosis.observe.rank_state_reader import RankStateReader
from hangdog_models.ranks import Rank
from hangdog_models.rules.ruleset import Wait, packaged
from hangdog_models.stack import Frame, Missing, ProcessState, ProcessTrace, Reason, Thread
from hangdog_models.verdict import Activity
from support.cases.stories import C10D, trace

RULES = packaged()
ENGINE = "deepspeed/runtime/pipe/engine.py"


JAX = ["<module> train.py", "cache_miss jax/_src/pjit.py"]


@pytest.mark.parametrize(
    ("stack", "activity", "operation", "dim"),
    [
        ("metrics", "collective", "all_reduce", None),
        ("tensor", "collective", "all_reduce", "tp"),
        ("gather", "collective", "all_gather_into_tensor", "dp"),
        ("stage", "p2p", "_communicate", "pp"),
        ("backward", "device_sync", "backward", None),
        ("loader", "dataloader", "_next_data", None),
        ("item", "device_sync", "synchronize", None),
        ("write", "checkpoint", "save", None),
        ("start", "rendezvous", "init_process_group", None),
        (["train train.py", f"_aggregate_total_loss {ENGINE}", f"broadcast {C10D}"], "collective", "broadcast", "pp"),
        (["train train.py", f"_reduce_outputs {ENGINE}", f"all_reduce {C10D}"], "collective", "all_reduce", "dp"),
        (["fetch_sub_module deepspeed/runtime/zero/partitioned_param_coordinator.py", f"all_gather_coalesced {C10D}"],
         "collective", "all_gather_coalesced", "dp"),
        # Of the model-parallel group, or with the distributed optimizer of everybody: the frames do not tell which.
        (["train train.py", "get_grad_norm_fp32 megatron/core/optimizer/clip_grads.py", f"all_reduce {C10D}"],
         "collective", "all_reduce", None),
        (["step train.py", "step torch/distributed/pipelining/schedules.py",
          "_wait_batch_p2p torch/distributed/pipelining/schedules.py"], "p2p", "_wait_batch_p2p", "pp"),
        (["train train.py", "_sync_params torch/nn/parallel/distributed.py", f"broadcast {C10D}"],
         "collective", "broadcast", "dp"),
        # Planning a checkpoint is a collective, not I/O.
        (["save torch/distributed/checkpoint/state_dict_saver.py", "reduce_scatter torch/distributed/checkpoint/utils.py",
          f"gather_object {C10D}"], "collective", "gather_object", None),
        # The collective of a layer inside a pipeline stage is not the pipeline's.
        (["step torch/distributed/pipelining/schedules.py", "_call_impl torch/nn/modules/module.py",
          "forward model.py", "all_reduce torch/distributed/_functional_collectives.py"], "collective", "all_reduce", None),
        (["f train.py", "_fn torch/_dynamo/eval_frame.py", "_compile torch/_dynamo/convert_frame.py"], "compile", "_compile", None),
        (["step train.py", "foreach_all_gather_copy_out torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py"],
         "compute", "foreach_all_gather_copy_out", "dp"),
        (["main_loop ray/_private/worker.py"], "idle", "main_loop", None),
        (["step train.py", "trace_dispatch bdb.py", "cmdloop cmd.py"], "idle", "debugger", None),
        ([*JAX, "from_hlo jax/_src/interpreters/pxla.py", "compile_or_get_cached jax/_src/compiler.py",
          "backend_compile_and_load jax/_src/compiler.py"], "compile", "compile_or_get_cached", None),
        ([*JAX, "lower_jaxpr_to_module jax/_src/interpreters/mlir.py"], "compile", "lower_jaxpr_to_module", None),
        ([*JAX, "process_allgather jax/experimental/multihost_utils.py", "tree_map jax/_src/tree_util.py",
          "_handle_array_process_allgather jax/experimental/multihost_utils.py"], "collective",
         "_handle_array_process_allgather", None),
        ([*JAX, "sync_global_devices jax/experimental/multihost_utils.py", "assert_equal jax/experimental/multihost_utils.py",
          "broadcast_one_to_all jax/experimental/multihost_utils.py"], "collective", "broadcast_one_to_all", None),
        ([*JAX, "sync_global_devices jax/experimental/multihost_utils.py"], "collective", "barrier", None),
        ([*JAX, "initialize jax/_src/distributed.py"], "rendezvous", "initialize", None),
    ],
)  # fmt: skip
def test_frames_tell_activity_operation_and_group(stack: str, activity: str, operation: str, dim: str | None) -> None:
    standing = RankStateReader(RULES).look([trace(0, stack)])[Rank(0)]
    assert (standing.activity, standing.operation, standing.dim) == (activity, operation, dim)


MAPPINGS = "megatron/core/tensor_parallel/mappings.py"
HELPERS = "transformer_engine/pytorch/distributed.py"
RING = "transformer_engine/pytorch/attention/dot_product_attention/context_parallel.py"


@pytest.mark.parametrize(
    ("stack", "dim"),
    [
        ([f"all_to_all {MAPPINGS}", "apply torch/autograd/function.py", f"forward {MAPPINGS}"], "ep"),
        ([f"reduce_from_region {MAPPINGS}", f"forward {MAPPINGS}", f"_reduce {MAPPINGS}"], "tp"),
        ([f"forward {MAPPINGS}"], "tp"),
        ([f"forward {RING}", f"gather_along_first_dim {HELPERS}"], "cp"),
        ([f"gather_along_first_dim {HELPERS}"], "tp"),
    ],
)
def test_a_helper_of_many_groups_is_told_by_its_caller(stack: list[str], dim: str) -> None:
    assert read(trace(0, ["train train.py", *stack, f"all_reduce {C10D}"]), RULES).dim == dim


@pytest.mark.parametrize(
    ("stack", "dim"),
    [
        ([f"backward {MAPPINGS}", "apply torch/autograd/function.py", f"forward {MAPPINGS}"], "ep"),
        ([f"all_to_all_sp2hp {MAPPINGS}", "apply torch/autograd/function.py", f"forward {MAPPINGS}"], "tp"),
    ],
)
def test_tokens_that_go_back_to_their_ranks_go_through_the_expert_group(stack: list[str], dim: str) -> None:
    """Nobody calls a backward pass who tells its group; the operation does."""
    assert read(trace(0, ["train train.py", *stack, f"all_to_all_single {C10D}"]), RULES).dim == dim


@pytest.mark.parametrize(
    ("file", "activity"),
    [
        ("megatron/core/pipeline_parallel/p2p_communication.py", Activity.P2P),
        ("core/pipeline_parallel/p2p_communication.py", Activity.P2P),  # as py-spy shortens it: no `__init__.py` above
        ("myown/core/pipeline_parallel/p2p_communication.py", Activity.UNKNOWN),  # somebody else's
    ],
)
def test_a_namespace_package_is_known_without_its_name(file: str, activity: Activity) -> None:
    state = read(trace(0, ["train train.py", f"_communicate {file}"]), RULES)
    assert state.activity is activity


def test_gradients_are_summed_over_context_too_where_a_job_splits_it() -> None:
    standing = RankStateReader(RULES, ("dp", "cp", "dp-cp")).look([trace(0, "scatter")])[Rank(0)]
    assert standing.dim == "dp-cp"
    assert RankStateReader(RULES, ("dp",)).look([trace(0, "scatter")])[Rank(0)].dim == "dp"


@pytest.mark.parametrize(
    ("state", "stack", "expected"),
    [
        ("T", "backward", Activity.STOPPED),
        ("Z", "backward", Activity.DEAD),
        ("D", "user", Activity.STORAGE),
        ("D", "metrics", Activity.COLLECTIVE),
        ("D", "timed out", Activity.STORAGE),
        ("R", "user", Activity.COMPUTE),
        ("S", "user", Activity.UNKNOWN),
    ],
)
def test_the_kernel_has_its_say(state: str, stack: str, expected: Activity) -> None:
    assert read(trace(0, stack, state=state), RULES).activity is expected


STARTING = [
    "<module> train.py",
    "_call_user_compiler torch/_dynamo/output_graph.py",
    "Popen._execute_child subprocess.py",
]


@pytest.mark.parametrize(
    ("wchan", "stack", "expected"),
    [
        ("", STARTING, Activity.COMPILE),  # by vfork: its parent sleeps until the child has started
        ("kernel_clone", "user", Activity.UNKNOWN),
        ("kernel_clone", "timed out", Activity.MISSING),
        ("nfs_wait_bit_killable", STARTING, Activity.STORAGE),
        ("nvidia_unlocked_ioctl", "user", Activity.DEVICE_SYNC),
        ("uvm_va_block_retry", "timed out", Activity.DEVICE_SYNC),
        ("folio_wait_bit_common", "user", Activity.STORAGE),
    ],
)
def test_uninterruptible_sleep_is_read_by_where_it_sleeps(
    wchan: str, stack: str | list[str], expected: Activity
) -> None:
    assert read(trace(0, stack, state="D", wchan=wchan), RULES).activity is expected


@pytest.mark.parametrize(
    ("wchan", "activity", "operation", "awaits"),
    [
        ("wait_for_partner", Activity.UNKNOWN, None, KernelWait.PIPE),
        ("anon_pipe_read", Activity.UNKNOWN, None, KernelWait.PIPE),
        ("do_wait", Activity.UNKNOWN, CHILD, KernelWait.CHILD),
        ("do_wait.constprop.0", Activity.UNKNOWN, CHILD, KernelWait.CHILD),
        ("locks_lock_inode_wait", Activity.IDLE, LOCK_FILE, KernelWait.FILE_LOCK),
        ("inet_csk_accept", Activity.NETWORK, None, KernelWait.SOCKET),
        ("__x64_sys_pause", Activity.UNKNOWN, None, KernelWait.SIGNAL),
        ("do_wait_for_common", Activity.UNKNOWN, None, None),
        ("futex_wait_queue", Activity.UNKNOWN, None, None),
        ("poll_schedule_timeout.constprop.0", Activity.UNKNOWN, None, None),
        ("0", Activity.UNKNOWN, None, None),
    ],
)
def test_what_a_sleeper_in_an_unknown_place_waits_for_is_what_its_kernel_says(
    wchan: str, activity: Activity, operation: str | None, awaits: KernelWait | None
) -> None:
    state = read(trace(0, "user", state="S", wchan=wchan), RULES)
    assert (state.activity, state.operation, state.awaits) == (activity, operation, awaits)


def test_the_kernel_says_nothing_of_a_place_that_a_rule_knows_nor_of_one_that_runs() -> None:
    assert read(trace(0, "gather", state="S", wchan="anon_pipe_read"), RULES).awaits is None
    assert read(trace(0, "user", state="R", wchan="anon_pipe_read", active=True), RULES).awaits is None


@pytest.mark.parametrize(
    ("letter", "wchan", "throughout", "activity"),
    [
        ("S", "do_freezer_trap", False, Activity.STOPPED),
        ("D", "__refrigerator", False, Activity.STOPPED),
        ("D", "hrtimer_nanosleep", True, Activity.STOPPED),
        ("D", "futex_wait_queue", True, Activity.STOPPED),
        ("D", "futex_wait_queue", False, Activity.STORAGE),
        ("S", "hrtimer_nanosleep", False, Activity.UNKNOWN),
        ("D", "io_schedule", True, Activity.STORAGE),
    ],
)
def test_the_freezer_of_a_cgroup_is_told_from_storage(
    letter: str, wchan: str, throughout: bool, activity: Activity
) -> None:
    """State and wait channel are read one after the other: what was in state D for a moment may sleep for a lock by then."""
    seen = trace(0, "user", state=letter, wchan=wchan)
    if throughout:
        seen = structs.replace(seen, missing=Missing(Reason.UNINTERRUPTIBLE, ""))
    state = read(seen, RULES)
    assert (state.activity, state.operation == FROZEN) == (activity, activity is Activity.STOPPED)


def test_a_capture_refused_in_uninterruptible_sleep_is_read_alike() -> None:
    starting = trace(0, Reason.UNINTERRUPTIBLE, state="D", wchan="kernel_clone")
    assert read(starting, RULES).activity is Activity.UNKNOWN
    assert read(trace(0, Reason.UNINTERRUPTIBLE, state="D"), RULES).activity is Activity.STORAGE


def test_holding_the_interpreter_lock_asleep_is_a_deadlock() -> None:
    assert read(trace(0, "user", gil=True), RULES).activity is Activity.GIL
    assert read(trace(0, "user", gil=True, active=True), RULES).activity is Activity.COMPUTE


def test_a_failed_capture_is_never_read_as_healthy() -> None:
    for reason in Reason:
        standing = read(ProcessTrace(Rank(0), missing=Missing(reason, "")), RULES)
        assert standing.wait is Wait.NONE and standing.activity in (
            Activity.MISSING, Activity.STOPPED, Activity.DEAD, Activity.STORAGE
        )  # fmt: skip


def test_helper_threads_do_not_vote() -> None:
    helper = Thread(
        "QueueFeederThread", 7, (Frame("_feed", "multiprocessing/queues.py"), Frame("wait", "threading.py"))
    )
    main = trace(0, "metrics").threads[0]
    assert read(ProcessTrace(Rank(0), threads=(helper, main)), RULES).activity is Activity.COLLECTIVE
    assert read(ProcessTrace(Rank(0), pid=5, threads=(helper,)), RULES).activity is Activity.MISSING


def test_backward_is_told_by_the_autograd_thread() -> None:
    main = trace(0, "backward").threads[0]
    work = Thread(
        None, 9, (Frame("apply", "torch/autograd/function.py"), *(f for f in trace(0, "tensor").threads[0].frames[1:]))
    )
    standing = read(ProcessTrace(Rank(0), threads=(work, main)), RULES)
    assert (standing.activity, standing.dim) == (Activity.COLLECTIVE, "tp")


@pytest.mark.parametrize(
    ("functions", "activity"),
    [
        (["do_syscall_64", "vfs_read", "nfs_file_read", "folio_wait_bit_common", "io_schedule"], "storage"),
        (["do_syscall_64", "fuse_file_write_iter", "request_wait_answer"], "storage"),
        (["do_syscall_64", "ext4_sync_file", "jbd2_log_wait_commit"], "storage"),
        (["do_syscall_64", "nvidia_unlocked_ioctl", "os_acquire_rwlock_write", "schedule"], "device_sync"),
        (["do_syscall_64", "sock_recvmsg", "inet_recvmsg", "tcp_recvmsg"], "network"),
        (["do_syscall_64", "unix_stream_recvmsg", "unix_stream_read_generic"], "unknown"),
        # Every wait of a thread for another: it may well wait in a collective.
        (["entry_SYSCALL_64_after_hwframe", "do_syscall_64", "__x64_sys_futex", "do_futex", "futex_wait"], "unknown"),
        (["do_syscall_64", "__x64_sys_poll", "do_sys_poll", "poll_schedule_timeout.constprop.0"], "unknown"),
    ],
)
def test_frames_of_the_kernel_tell_what_is_awaited_there(functions: list[str], activity: str) -> None:
    frames = tuple(Frame(function, "kernel", 0, "kernel") for function in functions)
    standing = read(ProcessTrace(Rank(0), pid=7, threads=(Thread("MainThread", 7, frames),)), RULES)
    assert standing.activity == activity
    assert standing.wait is (Wait.SOME if activity == "device_sync" else Wait.NONE)


def test_native_frames_name_the_reducer() -> None:
    native = Frame("c10d::Reducer::finalize_backward", "libtorch_cpu.so", 0, "libtorch_cpu.so")
    thread = Thread("MainThread", 1, (*trace(0, "backward").threads[0].frames, native))
    standing = read(ProcessTrace(Rank(0), pid=1, threads=(thread,), state=ProcessState(1, "S")), RULES)
    assert (standing.activity, standing.dim, standing.operation) == (Activity.COLLECTIVE, "dp", "all_reduce")


@pytest.mark.parametrize("function", ["lock_PyThread_acquire_lock", "rlock_acquire", "_PyMutex_LockTimed"])
def test_a_lock_taken_in_the_users_own_function_is_told_by_the_interpreters_own(function: str) -> None:
    """`with lock:` calls C at once: no frame of threading.py is between."""
    native = Frame(function, "Modules/_threadmodule.c", 190, "python3.12")
    thread = Thread("MainThread", 1, (*trace(0, "user").threads[0].frames, native), active=False)
    standing = read(ProcessTrace(Rank(0), pid=1, threads=(thread,)), RULES)
    assert (standing.activity, standing.label) == (Activity.LOCK, "augment")
