"""DeepSpeed ZeRO-3 under a plain training loop: parameters are gathered layer by layer, gradients reduced and scattered."""

from accuracy.simulator.job import Job, Role
from accuracy.simulator.program import Mode, Writer

ENGINE = "deepspeed/runtime/engine.py"
NVTX = "wrapped_fn deepspeed/utils/nvtx.py:18"
ZERO = "deepspeed/runtime/zero"
COMM = ("log_wrapper deepspeed/comm/comm.py:117",)
CALL = ("_wrapped_call_impl torch/nn/modules/module.py:1553", "_call_impl torch/nn/modules/module.py:1603")
NEXT_BATCH = (
    "__next__ deepspeed/runtime/dataloader.py:158", "__next__ torch/utils/data/dataloader.py:630",
    "_next_data torch/utils/data/dataloader.py:1327", "_get_data torch/utils/data/dataloader.py:1283",
)  # fmt: skip
LAYER = 60_000_000
KERNELS, LAYER_S = 110, 0.012


def write(job: Job, role: Role) -> Writer:
    writer = Writer(role.slots)
    with writer.inside("<module> finetune.py:318", "main finetune.py:284"):
        for step in job.plan:
            writer.mark()
            if step == "eval":
                with writer.inside("evaluation finetune.py:201"):
                    _forward(writer, job)
                with writer.inside("evaluation finetune.py:212", "get_all_reduce_mean finetune.py:71", "all_reduce deepspeed/comm/comm.py:496",
                                   "all_reduce deepspeed/comm/torch.py:162"):  # fmt: skip
                    writer.collective("world", "all_reduce", 1, 1e-4, dtype="Float")
                writer.read("evaluation finetune.py:214")
            elif step == "save":
                _save(writer, role)
            else:
                _step(writer, job)
    return writer


def _step(writer: Writer, job: Job) -> None:
    for _ in range(job.microbatches):
        writer.host("loader", 1e-3, *NEXT_BATCH)
        _forward(writer, job)
        with writer.inside(
            NVTX, f"backward {ENGINE}:2011", NVTX, f"backward {ZERO}/stage3.py:2221",
            "backward deepspeed/runtime/fp16/loss_scaler.py:63", "backward torch/_tensor.py:521",
            "backward torch/autograd/__init__.py:289", "_engine_run_backward torch/autograd/graph.py:769",
        ), writer.autograd():  # fmt: skip
            _backward(writer, job)
    with writer.inside(f"step {ENGINE}:2150", f"_take_model_step {ENGINE}:2053", NVTX, f"step {ZERO}/stage3.py:2047"):
        with writer.inside(
            f"_overflow_check_and_loss_scale_update {ZERO}/stage3.py:1990", f"has_overflow {ZERO}/stage3.py:2185"
        ):
            with writer.inside(
                *COMM, "all_reduce deepspeed/comm/comm.py:496", "all_reduce deepspeed/comm/torch.py:162"
            ):
                writer.collective("world", "all_reduce", 1, 1e-4, dtype="Byte")
            writer.read()
        with writer.inside(
            f"_get_norm_groups {ZERO}/stage3.py:1900",
            f"complete_grad_norm_calculation_for_cpu_offload {ZERO}/stage3.py:1451",
        ):
            writer.read()
        writer.kernels(30, 3e-3, "step deepspeed/ops/adam/fused_adam.py:172")
    writer.read("main finetune.py:301")


def _gather(writer: Writer) -> None:
    coordinator, partition = f"{ZERO}/partitioned_param_coordinator.py", f"{ZERO}/partition_parameters.py"
    with writer.inside(
        f"fetch_sub_module {coordinator}:303", f"__all_gather_params {coordinator}:468",
        f"__all_gather_params_ {coordinator}:497", f"all_gather_coalesced {partition}:1277",
        f"_dist_allgather_fn {partition}:96", "allgather_fn deepspeed/comm/comm.py:320", *COMM,
        "all_gather_into_tensor deepspeed/comm/comm.py:305", "all_gather_into_tensor deepspeed/comm/torch.py:219",
    ):  # fmt: skip
        writer.collective(
            "world", "all_gather_into_tensor", LAYER, 2e-3, mode=Mode.ASYNC, handle="gather", dtype="Half"
        )
    writer.wait("gather", f"fetch_sub_module {coordinator}:323", f"wait {partition}:634")


def _forward(writer: Writer, job: Job) -> None:
    with writer.inside(*CALL, NVTX, f"forward {ENGINE}:1852", *CALL):
        for _ in range(job.layers):
            with writer.inside(
                f"_pre_forward_module_hook {ZERO}/parameter_offload.py:278",
                f"pre_sub_module_forward_function {ZERO}/parameter_offload.py:452",
            ):
                _gather(writer)
            writer.kernels(
                KERNELS,
                LAYER_S,
                "forward transformers/models/llama/modeling_llama.py:740",
                *CALL,
                "forward torch/nn/modules/linear.py:117",
            )


def _backward(writer: Writer, job: Job) -> None:
    for _ in range(job.layers):
        with writer.inside("backward torch/autograd/function.py:306", f"_run_before_backward_function {ZERO}/parameter_offload.py:340",
                           f"pre_sub_module_backward_function {ZERO}/parameter_offload.py:475"):  # fmt: skip
            _gather(writer)
        writer.kernels(
            2 * KERNELS, 2 * LAYER_S, "apply torch/autograd/function.py:306", f"backward {ZERO}/linear.py:95"
        )
        with writer.inside(
            f"reduce_partition_and_remove_grads {ZERO}/stage3.py:1145", f"reduce_ready_partitions_and_remove_grads {ZERO}/stage3.py:1427",
            f"__reduce_and_partition_ipg_grads {ZERO}/stage3.py:1224", f"__avg_scatter_grads {ZERO}/stage3.py:1293", NVTX,
            "reduce_scatter_coalesced deepspeed/runtime/comm/coalesced_collectives.py:118", "reduce_scatter_fn deepspeed/comm/comm.py:257",
            *COMM, "reduce_scatter_tensor deepspeed/comm/comm.py:289", "reduce_scatter_tensor deepspeed/comm/torch.py:265",
        ):  # fmt: skip
            writer.collective("world", "reduce_scatter_tensor", LAYER, 2e-3, dtype="Half")


def _save(writer: Writer, role: Role) -> None:
    with writer.inside("main finetune.py:310", f"save_checkpoint {ENGINE}:3150"):
        with writer.inside("_checkpoint_tag_validation deepspeed/runtime/engine.py:3080"):
            writer.collective("world", "all_reduce", 40, 1e-4, dtype="Byte")
        with writer.inside(
            f"_save_zero_checkpoint {ENGINE}:3470",
            "save deepspeed/runtime/checkpoint_engine/torch_checkpoint_engine.py:22",
        ):
            writer.saves(4.0, "save torch/serialization.py:651", "_save torch/serialization.py:886")
        with writer.inside("barrier deepspeed/comm/comm.py:413", "barrier deepspeed/comm/torch.py:385"):
            writer.collective("world", "barrier", 1, 1e-4, mode=Mode.HOST)
