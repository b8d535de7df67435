"""Megatron-Core: a tiny GPT, tensor 2 x pipeline 2, trained by its own pipeline schedule over gloo."""

import os

import torch
from cuda_on_cpu import redirect
from user_code import Between, Shards

redirect()

from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.pipeline_parallel.schedules import get_forward_backward_func
from megatron.core.tensor_parallel import model_parallel_cuda_manual_seed
from megatron.core.transformer import TransformerConfig

LENGTH, VOCABULARY, MICROBATCHES = 32, 128, 4


def model_provider(config):
    model = GPTModel(
        config,
        get_gpt_layer_local_spec(),
        vocab_size=VOCABULARY,
        max_sequence_length=LENGTH,
        pre_process=parallel_state.is_pipeline_first_stage(),
        post_process=parallel_state.is_pipeline_last_stage(),
        share_embeddings_and_output_weights=False,
    )
    return DistributedDataParallel(config, DistributedDataParallelConfig(overlap_grad_reduce=False), model)


def get_batch(data_iterator):
    tokens = next(data_iterator)
    return tokens[:, :-1], tokens[:, 1:], torch.arange(LENGTH).expand(len(tokens), LENGTH)


def loss_func(output):
    loss = output.float().mean()
    return loss, {"lm loss": loss.detach()}


def forward_step(data_iterator, model):
    tokens, labels, positions = get_batch(data_iterator)
    mask = torch.triu(torch.ones(1, 1, LENGTH, LENGTH), diagonal=1).bool()
    return model(tokens, positions, mask, labels=labels), loss_func


def train_step(config, data_iterator, model, optimizer):
    optimizer.zero_grad()
    model.zero_grad_buffer()
    run_schedule(data_iterator, model, forward_only=False)
    optimizer.step()


def run_schedule(data_iterator, model, forward_only):
    get_forward_backward_func()(
        forward_step_func=forward_step,
        data_iterator=data_iterator,
        model=model,
        num_microbatches=MICROBATCHES,
        seq_length=LENGTH,
        micro_batch_size=2,
        forward_only=forward_only,
    )


def pretrain():
    torch.distributed.init_process_group("gloo")
    parallel_state.initialize_model_parallel(2, 2, create_gloo_process_groups=False)
    model_parallel_cuda_manual_seed(1)
    config = TransformerConfig(
        num_layers=2,
        hidden_size=64,
        num_attention_heads=4,
        tensor_model_parallel_size=2,
        pipeline_model_parallel_size=2,
        use_cpu_initialization=True,
        pipeline_dtype=torch.float32,
        gradient_accumulation_fusion=False,
        bias_dropout_fusion=False,
        masked_softmax_fusion=False,
        apply_rope_fusion=False,
    )
    model = model_provider(config)
    config.finalize_model_grads_func = finalize_model_grads
    optimizer = get_megatron_optimizer(
        OptimizerConfig(optimizer="adam", lr=1e-4), [model], use_gloo_process_groups=False
    )
    rank = torch.distributed.get_rank()
    data_iterator = iter(Shards(rank, 2, LENGTH + 1, VOCABULARY))
    between = Between(
        rank,
        torch.distributed.barrier,
        all_reduce,
        lambda file: torch.save(model.state_dict(), file),
        evaluate=lambda: run_schedule(data_iterator, model, forward_only=True),
    )
    while not between.out_of_data:
        train_step(config, data_iterator, model, optimizer)
        between.steps()
    torch.distributed.barrier()


def all_reduce(value):
    torch.distributed.all_reduce(torch.tensor([value]))


if __name__ == "__main__":
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "1")
    pretrain()
