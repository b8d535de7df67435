"""Megatron-LM with Megatron-Core 0.9: training steps, evaluation and checkpoints."""

from accuracy.simulator.job import Job, Role
from accuracy.simulator.program import Mode, Writer
from accuracy.simulator.schedules.megatron_layers import BUCKET, BUFFER, DDP, GRADIENT, MODEL, SCHEDULES
from accuracy.simulator.schedules.megatron_pipeline import pipeline

TRAINING = "megatron/training/training.py"
PRETRAIN = ("<module> pretrain_gpt.py:272", f"pretrain {TRAINING}:349")


def write(job: Job, role: Role) -> Writer:
    writer = Writer(role.slots)
    with writer.inside(*PRETRAIN):
        for step in job.plan:
            writer.mark()
            if step == "eval":
                with writer.inside(
                    f"train {TRAINING}:1301", f"evaluate_and_print_results {TRAINING}:1490", f"evaluate {TRAINING}:1406"
                ):
                    pipeline(writer, job, role, forward_only=True)
            elif step == "save":
                _save(writer, role)
            else:
                with writer.inside(f"train {TRAINING}:1232"):
                    _step(writer, job, role, compiles=step == "start")
    return writer


def _step(writer: Writer, job: Job, role: Role, *, compiles: bool) -> None:
    with writer.inside(f"train_step {TRAINING}:716"):
        if compiles:  # fused kernels are compiled at the first forward pass; each rank for itself
            with writer.inside(f"forward_step {SCHEDULES}:282", *MODEL):
                writer.compiles(20.0, "_fn torch/_dynamo/eval_frame.py:574")
        pipeline(writer, job, role)
        _finalize(writer, job)
    _optimizer(writer, job)
    with writer.inside(f"train {TRAINING}:1260"), writer.inside(f"training_log {TRAINING}:971"):
        writer.host("log", 2e-3)
        if role.stage == job.stages - 1:
            writer.read()


def _finalize(writer: Writer, job: Job) -> None:
    final = "megatron/core/distributed/finalize_model_grads.py"
    wide = "dp-cp" if "cp" in job.layout.sizes else "dp"
    name = "forward_backward_pipelining_without_interleaving" if job.stages > 1 else "forward_backward_no_pipelining"
    with writer.inside(f"{name} {SCHEDULES}:1530"):
        with writer.inside(
            f"finalize_model_grads {final}:232",
            f"finish_grad_sync {DDP}:421",
            f"finish_grad_sync {BUFFER}:1010",
            f"finish_grad_sync {BUFFER}:285",
        ):
            if job.overlap:
                writer.wait("grads")
            else:
                with writer.inside(f"start_grad_sync {BUFFER}:268"):
                    writer.collective(wide, "reduce_scatter_tensor", GRADIENT, 2e-3, dtype="Float")
        if job.experts:
            with writer.inside(
                f"finalize_model_grads {final}:232", f"finish_grad_sync {DDP}:421", f"start_grad_sync {BUFFER}:268"
            ):
                writer.collective("edp", "all_reduce", GRADIENT // 4, 2e-3, dtype="Float")
        with writer.inside(f"finalize_model_grads {final}:247", f"_allreduce_word_embedding_grads {final}:120"):
            writer.collective("emb", "all_reduce", GRADIENT, 2e-3, dtype="Float")


def _optimizer(writer: Writer, job: Job) -> None:
    clip = "megatron/core/optimizer/clip_grads.py"
    wide = "dp-cp" if "cp" in job.layout.sizes else "dp"
    with writer.inside(
        f"train {TRAINING}:1232", f"train_step {TRAINING}:743", "step megatron/core/optimizer/optimizer.py:466"
    ):
        with writer.inside(
            "clip_grad_norm megatron/core/optimizer/optimizer.py:190",
            "get_grad_norm megatron/core/optimizer/optimizer.py:175",
        ):
            with writer.inside(f"get_grad_norm_fp32 {clip}:133"):
                # With the distributed optimizer gradients are spread over all ranks, so the norm is summed over all.
                writer.collective("world", "all_reduce", 1, 1e-4, dtype="Float")
            writer.read(f"get_grad_norm_fp32 {clip}:137")
        writer.kernels(
            60, 3e-3, "step_with_ready_grads megatron/core/optimizer/optimizer.py:420", "step torch/optim/adam.py:220"
        )
        with writer.inside(
            "step_with_ready_grads megatron/core/optimizer/distrib_optimizer.py:1530",
            f"start_param_sync {DDP}:380",
            f"start_param_sync {BUFFER}:200",
        ):
            writer.collective(wide, "all_gather_into_tensor", BUCKET, 2e-3)


def _save(writer: Writer, role: Role) -> None:
    saving = "megatron/training/checkpointing.py"
    with writer.inside(f"train {TRAINING}:1320", f"save_checkpoint_and_time {TRAINING}:1080"):
        with writer.inside(f"save_checkpoint {saving}:392"):
            writer.read("generate_state_dict megatron/training/checkpointing.py:610")
            with writer.inside("save torch/serialization.py:651"):
                writer.saves(4.0, "_save torch/serialization.py:886")
        with writer.inside(f"save_checkpoint {saving}:455"):
            writer.collective("world", "barrier", 1, 1e-4, mode=Mode.HOST)
