"""What Megatron-Core 0.9 (with Transformer Engine) computes in one micro-batch, forward and backward, and where it communicates."""

from accuracy.simulator.job import Job, Role
from accuracy.simulator.program import Mode, Writer

SCHEDULES = "megatron/core/pipeline_parallel/schedules.py"
MAPPINGS = "megatron/core/tensor_parallel/mappings.py"
BUFFER = "megatron/core/distributed/param_and_grad_buffer.py"
DDP = "megatron/core/distributed/distributed_data_parallel.py"
MODULE = "torch/nn/modules/module.py"
CALL = (f"_wrapped_call_impl {MODULE}:1553", f"_call_impl {MODULE}:1562")
RING = "transformer_engine/pytorch/attention/dot_product_attention/context_parallel.py"
MODEL = (
    "forward_step pretrain_gpt.py:203", *CALL, f"forward {DDP}:204", *CALL,
    "forward megatron/core/transformer/module.py:178", *CALL, "forward megatron/core/models/gpt/gpt_model.py:237", *CALL,
    "forward megatron/core/transformer/transformer_block.py:508", *CALL,
)  # fmt: skip
NEXT_BATCH = (
    "__next__ torch/utils/data/dataloader.py:630", "_next_data torch/utils/data/dataloader.py:1327",
    "_get_data torch/utils/data/dataloader.py:1283",
)  # fmt: skip
#: Elements of one micro-batch's activations, of one layer's gradients, of one parameter bucket.
ACTIVATION, GRADIENT, BUCKET = 4096 * 4096, 40_000_000, 20_000_000
#: Elements that a rank sends to experts in one layer.
ROUTED = ACTIVATION // 2
#: Kernels and seconds of half a layer, forward: 25 kernels, 4 ms; backward takes twice as long.
KERNELS, LAYER_S = 25, 0.004


def forward(writer: Writer, job: Job, role: Role, *, loads: bool = True) -> None:
    with writer.inside(f"forward_step {SCHEDULES}:282"):
        if loads and role.stage in (0, job.stages - 1):
            _batch(writer, role)
        with writer.inside(*MODEL, "forward megatron/core/transformer/transformer_layer.py:332", *CALL):
            for _ in range(job.layers):
                _attention(writer, job)
                _mlp(writer, job)
        if role.stage == job.stages - 1:
            _loss(writer)


def _batch(writer: Writer, role: Role) -> None:
    with writer.inside("forward_step pretrain_gpt.py:192", "get_batch pretrain_gpt.py:140"):
        if role.loader:
            with writer.inside("get_batch_on_this_tp_rank megatron/training/utils.py:263"):
                writer.host("loader", 1e-3, *NEXT_BATCH)
        with writer.inside(
            "get_batch_on_this_tp_rank megatron/training/utils.py:282", "_broadcast megatron/training/utils.py:258"
        ):
            writer.collective("tp", "broadcast", 4096, 3e-5, dtype="Long")


def _attention(writer: Writer, job: Job) -> None:
    with writer.inside("forward megatron/core/transformer/attention.py:410"):
        if "cp" in job.layout.sizes and job.layout.sizes["cp"] > 1:
            with writer.inside(*CALL, f"forward {RING}:3500"):
                if job.ring:
                    for _ in range(job.layout.sizes["cp"] - 1):
                        with writer.inside(f"forward {RING}:890", f"flash_attn_p2p_communicate {RING}:510"):
                            writer.p2p("cp", ((1, True, ""), (-1, False, "")), ACTIVATION // 8, handle="ring")
                        writer.kernels(4, LAYER_S / 4, f"forward {RING}:1022")
                        writer.wait("ring")
                else:
                    with writer.inside(
                        f"forward {RING}:2702", "gather_along_first_dim transformer_engine/pytorch/distributed.py:899"
                    ):
                        writer.collective("cp", "all_gather_into_tensor", ACTIVATION // 8)
        writer.kernels(KERNELS, LAYER_S, *CALL, "forward transformer_engine/pytorch/module/layernorm_linear.py:1170")
        _reduce(writer, 1083)


def _reduce(writer: Writer, line: int) -> None:
    with writer.inside(
        *CALL, f"forward megatron/core/tensor_parallel/layers.py:{line}",
        f"reduce_from_tensor_model_parallel_region {MAPPINGS}:459", "apply torch/autograd/function.py:574",
        f"forward {MAPPINGS}:217", f"_reduce {MAPPINGS}:30",
    ):  # fmt: skip
        writer.collective("tp", "all_reduce", ACTIVATION)


def _mlp(writer: Writer, job: Job) -> None:
    if not job.experts:
        with writer.inside("forward megatron/core/transformer/mlp.py:112"):
            writer.kernels(KERNELS, LAYER_S)
            _reduce(writer, 1083)
        return
    with writer.inside("forward megatron/core/transformer/moe/moe_layer.py:166"):
        dispatcher = "megatron/core/transformer/moe/token_dispatcher.py"
        writer.kernels(KERNELS // 3, LAYER_S / 4, "custom_forward megatron/core/transformer/moe/moe_layer.py:151")
        # How many tokens go where is read back to the host: the dispatcher cannot size its all-to-all otherwise.
        writer.read(f"token_permutation {dispatcher}:494", f"preprocess {dispatcher}:440")
        # Each rank sends what its own tokens ask for, and gets what its experts are asked for; then the way back.
        for line, name, gets, sends in (
            (515, "token_permutation", ROUTED, 0),
            (577, "token_unpermutation", 0, ROUTED),
        ):
            with writer.inside(
                f"{name} {dispatcher}:{line}",
                f"all_to_all {MAPPINGS}:521",
                "apply torch/autograd/function.py:574",
                f"forward {MAPPINGS}:423",
            ):
                writer.collective("ep", "all_to_all_single", ROUTED, 4e-4, gets=gets, sends=sends)
            if line == 515:
                writer.kernels(KERNELS, LAYER_S, "forward megatron/core/transformer/moe/experts.py:250")


def _loss(writer: Writer) -> None:
    """The last stage averages the loss over its replicas and checks it for NaN, which reads it back (XTIMER-8)."""
    writer.kernels(6, 1e-3, "loss_func pretrain_gpt.py:150")
    writer.read("loss_func pretrain_gpt.py:158")
    with writer.inside("loss_func pretrain_gpt.py:170"):
        writer.collective("dp", "all_reduce", 2, 5e-5, dtype="Float")


def backward(writer: Writer, job: Job, *, last: bool) -> None:
    wide = "dp-cp" if "cp" in job.layout.sizes else "dp"
    with writer.inside(f"backward_step {SCHEDULES}:364", f"custom_backward {SCHEDULES}:149"), writer.autograd():
        for layer in range(job.layers):
            _backward_layer(writer, job)
            if last and job.overlap and layer == job.layers - 1:
                with writer.inside(
                    f"hook {DDP}:356", f"register_grad_ready {DDP}:331",
                    f"register_grad_ready {BUFFER}:300", f"start_grad_sync {BUFFER}:268",
                ):  # fmt: skip
                    writer.collective(
                        wide, "reduce_scatter_tensor", GRADIENT, 2e-3, mode=Mode.ASYNC, handle="grads", dtype="Float"
                    )


def _backward_layer(writer: Writer, job: Job) -> None:
    layers = "megatron/core/tensor_parallel/layers.py"
    with writer.inside("apply torch/autograd/function.py:306"):
        if job.experts:
            with writer.inside(
                f"backward {MAPPINGS}:435", "apply torch/autograd/function.py:574", f"forward {MAPPINGS}:423"
            ):
                writer.collective("ep", "all_to_all_single", ROUTED, 4e-4, gets=ROUTED)
        writer.kernels(KERNELS, 2 * LAYER_S, f"backward {layers}:520")
        with writer.inside(f"backward {layers}:541"):
            writer.collective("tp", "all_reduce", ACTIVATION, mode=Mode.ASYNC, handle="tensor")
        writer.kernels(
            KERNELS,
            2 * LAYER_S,
            "backward flash_attn/flash_attn_interface.py:476",
            "_flash_attn_backward flash_attn/flash_attn_interface.py:128",
        )
        writer.wait("tensor", f"backward {layers}:580")
