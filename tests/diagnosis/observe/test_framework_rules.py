"""What a rank is doing is read off frames of each framework's own source, in the versions that its rule file names."""

import pytest

from hangdog_models.diagnosis.observe.activity import read
from hangdog_models.diagnosis.observe.call_site import place_of
from hangdog_models.ranks import Rank
from hangdog_models.reading.stacks import pyspy_text
from hangdog_models.rules.ruleset import packaged
from hangdog_models.stack import Frame, ProcessState, ProcessTrace, Thread
from support.cases.stories import C10D, trace

RULES = packaged()
JAX = ["<module> train.py", "train train.py"]
MULTIHOST = "jax/experimental/multihost_utils.py"
ARRAY = "jax/_src/array.py"
ORBAX = "orbax/checkpoint/_src"
RAY = "ray/_private/worker.py"
SHM = "vllm/distributed/device_communicators/shm_broadcast.py"
CLIENT = "vllm/v1/engine/core_client.py"
SERVED = "trl/generation/vllm_client.py"
AOT = "torch/_functorch/_aot_autograd"
CODEGEN = f"{AOT}/subclass_codegen.py:codegen(compiled_function_forward)"
INDUCTOR = "/tmp/torchinductor_user/3t/c3tlmjy7zdxgw3.py"
#: A compiled model that runs, as recorded with torch 2.13: nothing of it compiles.
COMPILED = [
    "<module> train.py", "train train.py", "__call__ torch/_dynamo/eval_frame.py", "forward model.py",
    "_fn torch/_dynamo/eval_frame.py", "forward torch/_functorch/aot_autograd.py", f"runtime_wrapper {AOT}/runtime_wrappers.py",
    f"g {AOT}/utils.py", "apply torch/autograd/function.py", f"forward {AOT}/runtime_wrappers.py", f"_compiled_forward {CODEGEN}",
    "__call__ torch/_inductor/output_code.py", f"call {INDUCTOR}",
]  # fmt: skip
#: Its backward, in the same recording.
COMPILED_BACKWARD = [
    "<module> train.py", "train train.py", "backward torch/_tensor.py", "backward torch/autograd/__init__.py",
    "_engine_run_backward torch/autograd/graph.py", "apply_boxed torch/autograd/function.py",
    f"backward {AOT}/runtime_wrappers.py", f"_backward_impl {AOT}/runtime_wrappers.py",
    f"call_func_at_runtime_with_args {AOT}/utils.py", "_fn torch/_dynamo/eval_frame.py",
    "__call__ torch/_inductor/output_code.py", f"call {INDUCTOR}",
]  # fmt: skip
HEURISTICS = "torch/_inductor/runtime/triton_heuristics.py"
MODEL = ["train train.py", "forward model.py"]
SCHEDULER = "sglang/srt/managers/scheduler.py"
RECEIVER = "sglang/srt/managers/scheduler_components/request_receiver.py"
PADDLE = "paddle/distributed/communication"
DEEPSPEED = "deepspeed/runtime"
MEGATRON = ["train megatron/training/training.py", "train_step megatron/training/training.py"]
TRAINER = "transformers/trainer.py"
DTENSOR, FSDP2 = "torch/distributed/tensor", "torch/distributed/fsdp/_fully_shard"
FUNCTIONAL, PYTREE = "torch/distributed/_functional_collectives.py", "torch/utils/_pytree.py"
LOADER = "torch/utils/data/dataloader.py"
NEXT = [f"__next__ {LOADER}", f"_next_data {LOADER}"]
FETCHED = [*NEXT, "fetch torch/utils/data/_utils/fetch.py"]
DATASETS = "datasets/arrow_dataset.py"

SENDS = """Process 4711: /usr/bin/python3 grpo.py
Python v3.12.3 (/usr/bin/python3.12)

Thread 4711 (active): "MainThread"
    barrier (vllm/distributed/utils.py:412)
    update_named_param (trl/generation/vllm_client.py:741)
    sync_weights (trl/generation/vllm_generation.py:655)
    _generate_single_turn (trl/trainer/grpo_trainer.py:1301)
    training_step (trl/trainer/grpo_trainer.py:1129)
    train (transformers/trainer.py:2325)
    <module> (grpo.py:41)
Thread 4780 (idle): "Thread-1"
    wait (threading.py:359)
    run (tqdm/_monitor.py:60)
"""
WAITS = """Process 4712: /usr/bin/python3 grpo.py
Python v3.12.3 (/usr/bin/python3.12)

Thread 4712 (idle): "MainThread"
    barrier (torch/distributed/distributed_c10d.py:4818)
    wrapper (torch/distributed/c10d_logger.py:81)
    wait_for_everyone (accelerate/state.py:409)
    _generate_single_turn (trl/trainer/grpo_trainer.py:1304)
    training_step (trl/trainer/grpo_trainer.py:1129)
    train (transformers/trainer.py:2325)
    <module> (grpo.py:41)
"""


def _frame(written: str) -> Frame:
    function, file = written.split(" ")
    return Frame(function, file)


@pytest.mark.parametrize(
    ("stack", "activity", "wait", "operation"),
    [
        # JAX 0.10.2
        ([*JAX, f"__float__ {ARRAY}", f"_value {ARRAY}"], "device_sync", "some", "__float__"),
        ([*JAX, f"__array__ {ARRAY}", f"_value {ARRAY}"], "device_sync", "some", "__array__"),
        ([*JAX, "device_get jax/_src/api.py", "tree_map jax/_src/tree_util.py", f"__array__ {ARRAY}"],
         "device_sync", "some", "__array__"),
        ([*JAX, "block_until_ready jax/_src/api.py"], "device_sync", "some", "block_until_ready"),
        ([*JAX, "effects_barrier jax/_src/api.py", "block_until_ready jax/_src/dispatch.py"],
         "device_sync", "some", "effects_barrier"),
        ([*JAX, "cache_miss jax/_src/pjit.py", "_pjit_call_impl jax/_src/pjit.py", "__call__ jax/_src/interpreters/pxla.py"],
         "launch", "none", "cache_miss"),
        ([*JAX, "_compile_and_share_module jax/_src/compiler.py"], "compile", "some", "_compile_and_share_module"),
        ([*JAX, "_compile_and_share_module jax/_src/compiler.py", "_compile_and_write_cache jax/_src/compiler.py",
          "backend_compile_and_load jax/_src/compiler.py"], "compile", "none", "_compile_and_share_module"),
        ([*JAX, "wait_until_finished jax/experimental/array_serialization/serialization.py", "join threading.py"],
         "checkpoint", "none", "wait_until_finished"),
        ([*JAX, "wait_until_finished jax/experimental/array_serialization/serialization.py"],
         "checkpoint", "some", "wait_until_finished"),
        # Orbax 0.11
        ([*JAX, f"wait_until_finished {ORBAX}/checkpointers/async_checkpointer.py", "join threading.py",
          "_wait_for_tstate_lock threading.py"], "checkpoint", "none", "wait_until_finished"),
        ([*JAX, f"save {ORBAX}/checkpointers/async_checkpointer.py", f"sync_global_processes {ORBAX}/multihost/multihost.py",
          f"_fn {ORBAX}/multihost/multihost.py"], "collective", "group", "barrier"),
        ([*JAX, f"save {ORBAX}/checkpointers/checkpointer.py", f"__array__ {ARRAY}", f"_value {ARRAY}"],
         "device_sync", "some", "__array__"),
        # Grain 0.2
        ([*JAX, "__next__ grain/_src/python/dataset/transformations/process_prefetch.py", "get multiprocessing/queues.py"],
         "dataloader", "none", "__next__"),
        # vLLM 0.12, SGLang 0.5
        (["worker_busy_loop vllm/v1/executor/multiproc_executor.py", f"dequeue {SHM}", f"acquire_read {SHM}", f"wait {SHM}",
          "poll zmq/sugar/poll.py"], "idle", "none", "poll"),
        (["worker_busy_loop vllm/v1/executor/multiproc_executor.py", f"dequeue {SHM}", f"acquire_read {SHM}", f"wait {SHM}"],
         "idle", "none", "dequeue"),
        (["broadcast_tensor_dict vllm/distributed/parallel_state.py", f"broadcast_object {SHM}", f"dequeue {SHM}",
          f"acquire_read {SHM}"], "collective", "group", "broadcast"),
        (["step vllm/v1/engine/core.py", "get_response vllm/v1/executor/multiproc_executor.py", f"dequeue {SHM}",
          f"acquire_read {SHM}"], "idle", "some", "answer"),
        (["run_busy_loop vllm/v1/engine/core.py", "_process_input_queue vllm/v1/engine/core.py", "get queue.py",
          "wait threading.py"], "idle", "none", "_process_input_queue"),
        (["generate vllm/entrypoints/llm.py", "step vllm/v1/engine/llm_engine.py", f"get_output {CLIENT}", "get queue.py",
          "wait threading.py"], "idle", "some", "answer"),
        (["sleep vllm/v1/engine/llm_engine.py", f"call_utility {CLIENT}", "result concurrent/futures/_base.py",
          "wait threading.py"], "idle", "some", "answer"),
        (["__init__ vllm/entrypoints/llm.py", f"__init__ {CLIENT}", "launch_core_engines vllm/v1/engine/utils.py",
          "wait_for_engine_startup vllm/v1/engine/utils.py", "poll zmq/sugar/poll.py"], "idle", "some", "answer"),
        (["step_with_batch_queue vllm/v1/engine/core.py", "result vllm/v1/executor/multiproc_executor.py",
          "_wait_for_response vllm/v1/executor/multiproc_executor.py"], "idle", "some", "answer"),
        (["collective_rpc vllm/v1/executor/multiproc_executor.py", f"enqueue {SHM}", f"acquire_write {SHM}"],
         "collective", "group", "broadcast"),
        # an engine inside of the process that asks it is no other process
        (["generate vllm/entrypoints/llm.py", f"get_output {CLIENT}", "step vllm/v1/engine/core.py",
          "execute_model vllm/v1/worker/gpu_model_runner.py"], "unknown", "none", None),
        (["llm_worker trl/scripts/vllm_serve.py", "generate vllm/entrypoints/llm.py", "tokenize text.py"], "unknown", "none", None),
        (["train train.py", "generate sglang/srt/entrypoints/engine.py", "run_until_complete asyncio/base_events.py",
          "generate_request sglang/srt/managers/tokenizer_manager.py"], "unknown", "none", None),
        # weights on their way to vLLM: OpenRLHF 0.8, TRL 1.6
        (["update_weight openrlhf/trainer/ray/vllm_worker_wrap.py", "broadcast vllm/distributed/device_communicators/pynccl.py"],
         "collective", "group", "broadcast"),
        ([f"init_communicator {SERVED}", "create vllm/distributed/utils.py"], "rendezvous", "some", "init"),
        ([f"init_communicator {SERVED}", "__init__ vllm/distributed/device_communicators/pynccl.py",
          "broadcast_obj vllm/distributed/utils.py"], "collective", "some", "broadcast_obj"),
        ([f"update_named_param {SERVED}", "broadcast vllm/distributed/device_communicators/pynccl.py"],
         "collective", "group", "broadcast"),
        ([f"update_named_param {SERVED}", "barrier vllm/distributed/utils.py"], "collective", "some", "barrier"),
        ([f"generate {SERVED}", f"_post {SERVED}", "urlopen urllib3/connectionpool.py", "readinto socket.py"],
         "network", "none", "urlopen"),
        ([f"chat {SERVED}", "result concurrent/futures/_base.py", "wait threading.py"],
         "network", "none", "generation server"),
        (["llm_worker trl/scripts/vllm_serve.py", "recv multiprocessing/connection.py", "_recv multiprocessing/connection.py"],
         "idle", "none", "llm_worker"),
        (["train train.py", "generate sglang/srt/entrypoints/engine.py", "run_until_complete asyncio/base_events.py",
          "select selectors.py"], "idle", "some", "answer"),
        (["_batch_level_generate_sequences verl/workers/rollout/sglang_rollout/sglang_rollout.py",
          "run_until_complete asyncio/base_events.py", "select selectors.py"], "idle", "some", "answer"),
        (["forward model.py", "tensor_model_parallel_all_reduce vllm/distributed/communication_op.py",
          "all_reduce vllm/distributed/device_communicators/pynccl.py"], "collective", "group", "all_reduce"),
        (["forward model.py", "send sglang/srt/distributed/device_communicators/pynccl.py"], "p2p", "peer", "send"),
        ([f"event_loop_normal {SCHEDULER}", f"recv_requests {RECEIVER}", "recv_pyobj zmq/sugar/socket.py"],
         "idle", "none", "recv_pyobj"),
        ([f"event_loop_overlap {SCHEDULER}", f"recv_requests {RECEIVER}"], "idle", "none", "recv_requests"),
        ([f"event_loop_normal {SCHEDULER}", f"recv_requests {RECEIVER}", "broadcast_pyobj sglang/srt/utils/common.py",
          f"broadcast {C10D}"], "collective", "group", "broadcast"),
        # DeepEP 1.2 under Megatron-Core
        (["forward megatron/core/transformer/moe/fused_a2a.py", "dispatch deep_ep/buffer.py",
          "internode_dispatch deep_ep/buffer.py"], "collective", "group", "all_to_all"),
        (["forward megatron/core/transformer/moe/fused_a2a.py", "combine deep_ep/buffer.py"], "launch", "none", "combine"),
        # Ray 2.60, verl, OpenRLHF
        ([f"main_loop {RAY}"], "idle", "none", "main_loop"),
        (["fit verl/trainer/ppo/ray_trainer.py", "func verl/single_controller/ray/base.py",
          "wrapper ray/_private/client_mode_hook.py", f"get {RAY}", f"get_objects {RAY}"], "idle", "some", "ray.get"),
        (["do_exec_tasks ray/dag/compiled_dag_node.py", "read ray/experimental/channel/shared_memory_channel.py",
          f"get_objects {RAY}"], "idle", "none", "read"),
        (["result vllm/v1/executor/ray_utils.py", "get ray/experimental/compiled_dag_ref.py",
          "_execute_until ray/dag/compiled_dag_node.py", "read ray/experimental/channel/shared_memory_channel.py",
          f"get_objects {RAY}"], "idle", "some", "ray.get"),
        (["train train.py", "__next__ ray/data/_internal/block_batching/iter_batches.py", f"get {RAY}", f"get_objects {RAY}"],
         "dataloader", "none", "__next__"),
        (["train train.py", "barrier ray/train/v2/_internal/execution/collective_impl.py", f"get {RAY}", f"get_objects {RAY}"],
         "collective", "group", "barrier"),
        (["train train.py", "report ray/train/_internal/session.py", "_report_training_result ray/train/_internal/session.py",
          "acquire threading.py"], "collective", "group", "report"),
        (["train train.py", "allreduce ray/util/collective/collective.py"], "collective", "group", "allreduce"),
        # Horovod, PaddlePaddle, torch_npu, PyTorch/XLA
        (["train train.py", "allreduce_ horovod/torch/mpi_ops.py", "synchronize horovod/torch/mpi_ops.py"],
         "collective", "group", "allreduce_"),
        (["train train.py", f"all_reduce {PADDLE}/all_reduce.py", f"all_reduce {PADDLE}/stream/all_reduce.py",
          f"_all_reduce_in_dygraph {PADDLE}/stream/all_reduce.py"], "collective", "group", "all_reduce"),
        # TensorFlow, XGBoost, LightGBM
        (["train train.py", "ensure_initialized tensorflow/python/eager/context.py"], "rendezvous", "store", "ensure_initialized"),
        (["train train.py", "all_reduce_v2 tensorflow/python/ops/collective_ops.py"], "collective", "group", "all_reduce_v2"),
        (["train train.py", "call_function tensorflow/python/eager/context.py", "quick_execute tensorflow/python/eager/execute.py"],
         "device_sync", "some", "quick_execute"),
        (["train train.py", "allreduce xgboost/collective.py"], "collective", "group", "allreduce"),
        (["train train.py", "__enter__ xgboost/collective.py", "init xgboost/collective.py"], "rendezvous", "store", "init"),
        (["train train.py", "train xgboost/training.py", "update xgboost/core.py"], "device_sync", "some", "update"),
        (["train train.py", "set_network lightgbm/basic.py"], "rendezvous", "store", "set_network"),
        (["train train.py", "train lightgbm/engine.py", "update lightgbm/basic.py"], "device_sync", "some", "update"),
        (["train train.py", f"recv {PADDLE}/recv.py", f"recv {PADDLE}/stream/recv.py"], "p2p", "peer", "recv"),
        (["train train.py", f"barrier {PADDLE}/group.py"], "collective", "group", "barrier"),
        (["train train.py", "init_parallel_env paddle/distributed/parallel.py"], "rendezvous", "store", "init_parallel_env"),
        (["train train.py", "synchronize torch_npu/npu/streams.py"], "device_sync", "some", "synchronize"),
        (["train train.py", "rendezvous torch_xla/core/xla_model.py"], "collective", "group", "rendezvous"),
        (["train train.py", "mark_step torch_xla/core/xla_model.py"], "launch", "none", "mark_step"),
        # DeepSpeed 0.19
        (["train train.py", f"fetch_sub_module {DEEPSPEED}/zero/partitioned_param_coordinator.py",
          f"_fetch_sub_module_impl {DEEPSPEED}/zero/partitioned_param_coordinator.py",
          "wrapped_fn deepspeed/utils/nvtx.py", f"wait {DEEPSPEED}/zero/partition_parameters.py"],
         "device_sync", "some", "parameters"),
        (["train train.py", f"_post_step {DEEPSPEED}/zero/stage3.py", f"all_gather {DEEPSPEED}/zero/partition_parameters.py",
          f"_allgather_params_coalesced {DEEPSPEED}/zero/partition_parameters.py"], "device_sync", "some", "parameters"),
        (["train train.py", f"step {DEEPSPEED}/zero/stage3.py", f"has_overflow {DEEPSPEED}/zero/stage3.py"],
         "device_sync", "some", "item"),
        (["train train.py", f"synchronize_reads {DEEPSPEED}/swap_tensor/partitioned_param_swapper.py"],
         "storage", "none", "synchronize_reads"),
        # Inductor and Triton: what compiles, and what runs
        (COMPILED, "launch", "none", "call"),
        (COMPILED_BACKWARD, "launch", "none", "call"),
        ([*COMPILED, f"run {HEURISTICS}"], "launch", "none", "run"),
        ([*COMPILED, f"all_reduce {C10D}"], "collective", "group", "all_reduce"),
        ([*COMPILED, f"run {HEURISTICS}", f"autotune_to_one_config {HEURISTICS}", f"bench {HEURISTICS}",
          "synchronize torch/cuda/__init__.py"], "compile", "none", "run"),
        (["train train.py", "_compile torch/_dynamo/convert_frame.py", "wait torch/_inductor/async_compile.py",
          "_wait_futures torch/_inductor/async_compile.py", "result concurrent/futures/_base.py", "wait threading.py"],
         "compile", "none", "_compile"),
        ([*MODEL, "<lambda> triton/runtime/jit.py", "run triton/runtime/jit.py"], "launch", "none", "<lambda>"),
        ([*MODEL, "run triton/runtime/jit.py", "_do_compile triton/runtime/jit.py", "compile triton/compiler/compiler.py",
          "make_ptx triton/backends/nvidia/compiler.py", "run subprocess.py", "communicate subprocess.py"],
         "compile", "none", "_do_compile"),
        ([*MODEL, "run triton/runtime/autotuner.py", "_bench triton/runtime/autotuner.py", "do_bench triton/testing.py",
          "synchronize torch/cuda/__init__.py"], "compile", "none", "_bench"),
        ([*MODEL, "run triton/runtime/jit.py", "_init_handles triton/compiler/compiler.py"], "compile", "none", "load"),
        # Lock files: of an extension's build, of a data set, of a download
        (["load ops.py", "_jit_compile torch/utils/cpp_extension.py", "wait torch/utils/file_baton.py"],
         "idle", "none", "lock file"),
        (["load train.py", "download_and_prepare datasets/builder.py", "__enter__ filelock/_api.py", "acquire filelock/_api.py"],
         "idle", "none", "lock file"),
        # Builds that last: of an extension, of a Neuron program (frames: vllm-project/vllm-neuron issue 11)
        (["load ops.py", "_jit_compile torch/utils/cpp_extension.py", "_run_ninja_build torch/utils/cpp_extension.py",
          "run subprocess.py", "communicate subprocess.py"], "compile", "none", "_run_ninja_build"),
        (["mark_step torch_xla/core/xla_model.py", "neuron_xla_compile_impl libneuronxla/neuron_cc_wrapper.py",
          "call_neuron_compiler libneuronxla/neuron_cc_wrapper.py", "wait subprocess.py"], "compile", "none",
         "neuron_xla_compile_impl"),
        # Hugging Face
        (["prepare train.py", "map datasets/arrow_dataset.py", "iflatmap_unordered datasets/utils/py_utils.py",
          "_callmethod multiprocess/managers.py", "recv multiprocess/connection.py"], "dataloader", "none", "iflatmap_unordered"),
        ([f"_run_epoch {TRAINER}", "__iter__ accelerate/data_loader.py"], "dataloader", "none", "__iter__"),
        ([f"train {TRAINER}", f"_run_epoch {TRAINER}"], "device_sync", "some", "item"),
        # A process of its own, a service
        (["train train.py", "forward model.py", "join multiprocessing/process.py", "wait multiprocessing/popen_fork.py",
          "poll multiprocessing/popen_fork.py"], "unknown", "none", "subprocess"),
        (["train train.py", "forward model.py", "run subprocess.py", "communicate subprocess.py", "_communicate subprocess.py",
          "select selectors.py"], "unknown", "none", "subprocess"),
        (["train train.py", "forward model.py", "poll subprocess.py", "_internal_poll subprocess.py"],
         "unknown", "none", "subprocess"),
        (["train train.py", "forward model.py", "result concurrent/futures/_base.py", "wait threading.py"],
         "lock", "none", "wait"),
        (["train train.py", "fetch data.py", "__call__ grpc/_channel.py", "_blocking grpc/_channel.py"],
         "network", "none", "__call__"),
        (["train train.py", "fetch data.py", "_next grpc/_channel.py", "wait grpc/_common.py", "_wait_once grpc/_common.py",
          "wait threading.py"], "network", "none", "_next"),
        # Values that are read back from a device
        ([*MEGATRON, "get_grad_norm_fp32 megatron/core/optimizer/clip_grads.py"], "device_sync", "some", "item"),
        ([*MEGATRON, "logical_and_across_model_parallel_group megatron/training/utils.py"], "device_sync", "some", "item"),
        (["train megatron/training/training.py", "training_log megatron/training/training.py"], "device_sync", "some", "item"),
        ([*MEGATRON, "check_grads megatron/core/distributed/param_and_grad_buffer.py",
          "validate_result megatron/core/rerun_state_machine.py"], "device_sync", "some", "item"),
        (["log train.py", "__format__ torch/_tensor.py"], "device_sync", "some", "item"),
        (["step train.py", "step torch/amp/grad_scaler.py", "_maybe_opt_step torch/amp/grad_scaler.py",
          "<genexpr> torch/amp/grad_scaler.py"], "device_sync", "some", "item"),
    ],
)  # fmt: skip
def test_frames_of_what_people_run(stack: list[str], activity: str, wait: str, operation: str) -> None:
    state = read(trace(0, stack), RULES)
    assert (state.activity, state.wait, state.operation) == (activity, wait, operation)


@pytest.mark.parametrize(
    "stack",
    [
        # torch 2.9, a loader with workers: their queue, its connection, and what the thread that pins memory hands over
        [*NEXT, f"_get_data {LOADER}", f"_try_get_data {LOADER}", "get multiprocessing/queues.py", "poll multiprocessing/connection.py",
         "_poll multiprocessing/connection.py", "wait multiprocessing/connection.py", "select selectors.py"],
        [*NEXT, f"_get_data {LOADER}", f"_try_get_data {LOADER}", "get /usr/lib/python3.12/queue.py", "wait /usr/lib/python3.12/threading.py"],
        [*NEXT, "get queue.py", "wait threading.py"],
        # datasets 4, with processes of its own; Grain 0.2; Ray 2.50; fairseq 0.12
        [f"map {DATASETS}", "iflatmap_unordered datasets/utils/py_utils.py", "get multiprocess/pool.py", "wait threading.py"],
        ["__next__ grain/_src/python/dataset/transformations/prefetch.py", "result concurrent/futures/_base.py", "wait threading.py"],
        ["get_next_batch_context ray/data/_internal/block_batching/iter_batches.py", "get_next ray/data/iterator.py",
         "get ray/_private/worker.py"],
        ["__next__ fairseq/data/iterators.py", "get queue.py", "wait threading.py"],
    ],
)  # fmt: skip
def test_a_wait_for_what_others_load_is_one(stack: list[str]) -> None:
    assert read(trace(0, ["train train.py", *stack], state="S"), RULES).activity == "dataloader"


def test_a_tool_that_calls_a_wait_active_or_writes_native_frames_as_python_changes_no_wait() -> None:
    waits = [*NEXT, f"_get_data {LOADER}", "get queue.py", "wait threading.py"]
    for stack in (waits, [*waits, "lock_PyThread_acquire_lock python", "pthread_cond_timedwait libc.so.6"]):
        assert read(trace(0, ["train train.py", *stack], active=True), RULES).activity == "dataloader"


@pytest.mark.parametrize(
    "stack",
    [
        # torch 2.9, a loader without workers: the data set, the function that collates, the sampler, torch's own of these
        [*FETCHED, "__getitem__ data.py", "_batch_encode_plus transformers/tokenization_utils_fast.py"],
        [*FETCHED, "collate data.py"],
        [*FETCHED, "default_collate torch/utils/data/_utils/collate.py", "collate_tensor_fn torch/utils/data/_utils/collate.py"],
        [*(f"{f.split()[0]} /opt/venv/lib/python3.12/site-packages/{f.split()[1]}" for f in FETCHED), "__getitem__ /opt/train/data.py"],
        [f"__next__ {LOADER}", f"_next_index {LOADER}", "__iter__ torch/utils/data/sampler.py", "shuffle data.py"],
        [f"_run_epoch {TRAINER}", "__iter__ accelerate/data_loader.py", *FETCHED, "__getitem__ data.py"],
        [f"_run_epoch {TRAINER}", "__iter__ accelerate/data_loader.py", "batches data.py"],
        # datasets 4 without processes of its own; Grain 0.2; Ray 2.50; fairseq 0.12; WebDataset 1.0; Mosaic streaming 0.13
        [f"map {DATASETS}", f"_map_single {DATASETS}", f"apply_function_on_filtered_inputs {DATASETS}", "encode data.py"],
        ["__iter__ datasets/iterable_dataset.py", "_iter_arrow datasets/iterable_dataset.py", "tokens data.py"],
        ["__next__ grain/_src/python/dataset/transformations/map.py", "map data.py"],
        ["__next__ ray/data/_internal/block_batching/iter_batches.py", "collate ray/data/_internal/block_batching/util.py", "pad data.py"],
        ["__next__ fairseq/data/iterators.py", *FETCHED, "__getitem__ fairseq/data/token_block_dataset.py"],
        ["__iter__ webdataset/pipeline.py", "map webdataset/filters.py", "decode data.py"],
        ["__iter__ streaming/base/dataset.py", "__getitem__ streaming/base/dataset.py", "decode streaming/base/format/mds/reader.py"],
    ],
)  # fmt: skip
def test_a_batch_that_the_rank_makes_itself_is_its_own_work(stack: list[str]) -> None:
    made = ["train train.py", *stack]
    assert read(trace(0, made, state="S"), RULES).activity == "unknown"
    assert read(trace(0, made, state="R", active=True), RULES).activity == "compute"
    assert read(trace(0, made, state="D", wchan="nfs_wait_on_request"), RULES).activity == "storage"


@pytest.mark.parametrize(
    "stack",
    [
        ["__getitem__ megatron/core/datasets/gpt_dataset.py", "get megatron/core/datasets/indexed_dataset.py",
         "read megatron/core/datasets/indexed_dataset.py"],
        [f"__getitem__ {DATASETS}", "query_table datasets/formatting/formatting.py", "fast_slice datasets/table.py"],
    ],
)  # fmt: skip
def test_who_takes_its_samples_from_a_mapped_file_reads(stack: list[str]) -> None:
    assert read(trace(0, ["train train.py", *FETCHED, *stack]), RULES).activity == "storage"


@pytest.mark.parametrize(
    ("symbols", "activity", "wait"),
    [
        (["c10d_npu::ProcessGroupHCCL::WorkHCCL::synchronizeInternal(std::chrono::duration<long>)"], "collective", "group"),
        (["aclrtSynchronizeStreamWithTimeout"], "device_sync", "some"),
        (["c10_npu::Repository::Enqueue(void*)"], "launch", "some"),
        (["paddle::distributed::ProcessGroupNCCL::NCCLTask::Wait(std::chrono::duration<long>)"], "collective", "group"),
        (["CommOverlapHelper::ub_barrier(char*)"], "collective", "group"),
        (["THPVariable_item(_object*, _object*)", "at::_ops::item::call(at::Tensor const&)"], "device_sync", "some"),
        (["at::native::_local_scalar_dense_cuda(at::Tensor const&)"], "device_sync", "some"),
        (["PMPI_Barrier"], "collective", "group"),
        (["MPI_Allreduce", "ompi_coll_base_allreduce_intra_recursivedoubling", "opal_progress"], "collective", "group"),
        (["MPI_Sendrecv", "MPIDI_progress_test"], "p2p", "peer"),
        (["PMPI_Init_thread", "ompi_mpi_init"], "rendezvous", "store"),
        # oneCCL, as in https://github.com/intel/torch-xpu-ops/issues/1536
        (["ccl_comm::allgather", "ccl_allgather", "ccl_allgather_impl", "ccl_coll_create", "ccl_executor::wait"], "collective", "group"),
        (["ccl_recv", "ccl_recv_impl", "ccl_executor::wait"], "p2p", "peer"),
        (["at::_ops::is_nonzero::call(at::Tensor const&)"], "device_sync", "some"),
    ],
)  # fmt: skip
def test_native_frames_of_what_people_run(symbols: list[str], activity: str, wait: str) -> None:
    frames = (*trace(0, "user").threads[0].frames, *(Frame(symbol, "lib.so", 0, "lib.so") for symbol in symbols))
    thread = Thread("MainThread", 1, frames)
    state = read(ProcessTrace(Rank(0), pid=1, threads=(thread,), state=ProcessState(1, "S")), RULES)
    assert (state.activity, state.wait) == (activity, wait)


def test_a_value_is_not_read_back_where_python_runs() -> None:
    norm = [*MEGATRON, "get_grad_norm_fp32 megatron/core/optimizer/clip_grads.py"]
    assert read(trace(0, norm, active=True, gil=True), RULES).activity == "compute"


@pytest.mark.parametrize(
    ("wrapper", "caller"),
    [
        ("log_wrapper deepspeed/comm/comm.py", "average"),
        ("all_reduce deepspeed/comm/torch.py", "average"),
        ("_torch_reduce_scatter_fn deepspeed/runtime/comm/coalesced_collectives.py", "average"),
        ("gather accelerate/accelerator.py", "average"),
        ("_gpu_gather_one accelerate/utils/operations.py", "average"),
    ],
)
def test_a_wrapper_of_a_collective_is_not_its_caller(wrapper: str, caller: str) -> None:
    """Else all collectives of a program would be at one place."""
    frames = tuple(_frame(written) for written in ("step train.py", "average train.py", wrapper, f"all_reduce {C10D}"))
    assert place_of(frames, RULES).label == caller


@pytest.mark.parametrize(
    "wrapper",
    [
        "forward accelerate/utils/operations.py",
        "new_forward accelerate/hooks.py",
        "wrapper transformers/utils/generic.py",
        "__call__ transformers/modeling_layers.py",
        "decorate_autocast torch/amp/autocast_mode.py",
        "backend_impl torch/_library/custom_ops.py",
        f"runtime_wrapper {AOT}/runtime_wrappers.py",
    ],
)
def test_wrappers_around_a_layer_are_no_place(wrapper: str) -> None:
    inside = tuple(_frame(written) for written in ("train train.py", wrapper, "attend model.py"))
    assert place_of(inside, RULES).signature.places == (("train", "train.py"), ("attend", "model.py"))


@pytest.mark.parametrize(
    ("outer", "dim"),
    [
        ([f"_prepare_input_fn {DTENSOR}/parallel/style.py"], "tp"),
        ([f"post_backward {FSDP2}/_fsdp_param_group.py", f"_get_grad_inner_tensor {FSDP2}/_fsdp_param.py"], "tp"),
        ([f"post_backward {FSDP2}/_fsdp_param_group.py"], "dp-cp"),
        (["forward model.py"], None),
    ],
)
def test_who_redistributes_a_tensor_tells_the_group(outer: list[str], dim: str | None) -> None:
    """As recorded with torch 2.13, tensor parallel times FSDP2."""
    inner = [
        f"redistribute {DTENSOR}/_api.py",
        f"redistribute_local_tensor {DTENSOR}/_redistribute.py",
        f"wait_tensor {FUNCTIONAL}",
    ]
    place = place_of(tuple(_frame(written) for written in ["step train.py", *outer, *inner]), RULES)
    assert (place.operation, place.dim) == ("wait_tensor", dim)


def test_a_result_that_is_waited_for_where_it_is_used_is_waited_for_there() -> None:
    """Not in the walk over the arguments of that call; as recorded with torch 2.13."""
    walk = [f"tree_map_only {PYTREE}", f"tree_map {PYTREE}", f"unflatten {PYTREE}", f"wrapped {PYTREE}"]
    waits = [f"__torch_dispatch__ {FUNCTIONAL}", *walk, f"unwrap {FUNCTIONAL}", f"trigger_wait {FUNCTIONAL}"]
    stack = ["step train.py", "layer_norm torch/nn/functional.py", *waits, f"wait_tensor {FUNCTIONAL}"]
    assert place_of(tuple(map(_frame, stack)), RULES).label == "layer_norm"


def test_a_dump_of_py_spy_of_a_trainer_that_sends_weights_to_vllm() -> None:
    """TRL 1.6: the other trainers wait for rank 0, and it for a server which has not taken the weights."""
    (sends,) = pyspy_text.read(SENDS)
    (waits,) = pyspy_text.read(WAITS)
    sending, waiting = (
        read(ProcessTrace(Rank(at), pid=one.pid, threads=one.threads), RULES) for at, one in enumerate((sends, waits))
    )
    assert (sending.activity, sending.wait, sending.operation) == ("collective", "some", "barrier")
    assert (waiting.activity, waiting.wait) == ("collective", "group")
