"""Hugging Face Transformers: its Trainer under torchrun, distributed data parallel or by accelerate's FSDP2, with a tiny random Llama."""

import os

import torch
import torch.distributed as dist
from accelerate import DistributedType, PartialState
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments
from user_code import FOLDER, Between, Shards

LENGTH, VOCABULARY = 32, 128
SHARD = os.environ["FRAMEWORKS_SHARD"] == "1"
#: Each layer's parameters are gathered for its forward and again for its backward.
FSDP2 = {"version": 2, "transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"], "reshard_after_forward": True}


class Tokens(torch.utils.data.Dataset):
    def __init__(self, rank):
        self.shards = Shards(rank, 2, LENGTH, VOCABULARY)

    def __len__(self):
        return 1 << 20

    def __getitem__(self, index):
        tokens = self.shards[index][0]
        return {"input_ids": tokens, "labels": tokens}


class Duties(TrainerCallback):
    def on_train_begin(self, args, state, control, model=None, **_):
        self.between = Between(
            args.process_index,
            dist.barrier,
            all_reduce,
            lambda file: torch.save(own_part(model), file),
            evaluate=lambda: self.trainer.evaluate(),
        )

    def on_step_end(self, args, state, control, **_):
        if self.between.steps():
            control.should_training_stop = True


def all_reduce(value):
    dist.all_reduce(torch.tensor([value]))


def shard_on_cpu(arguments):
    """Accelerate 1.15 drops FSDP without a word where its ranks are CPUs (`AcceleratorState`), so they are said to be GPUs."""
    assert arguments.device.type == "cpu"  # its state is made by this
    PartialState._shared_state["distributed_type"] = DistributedType.MULTI_GPU


def own_part(model):
    """What of the parameters this rank holds."""
    return [one.to_local() if hasattr(one, "to_local") else one for one in model.parameters()]


def main():
    torch.manual_seed(1)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
        )
    )
    arguments = TrainingArguments(
        str(FOLDER / "out"),
        use_cpu=True,
        per_device_train_batch_size=4,
        max_steps=1 << 20,
        logging_steps=20,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        dataloader_num_workers=1,
        fsdp=SHARD or None,
        fsdp_config=FSDP2 if SHARD else None,
    )
    if SHARD:
        shard_on_cpu(arguments)
    tokens, duties = Tokens(int(os.environ["RANK"])), Duties()
    duties.trainer = Trainer(model, arguments, train_dataset=tokens, eval_dataset=tokens, callbacks=[duties])
    duties.trainer.train()
    dist.barrier()


if __name__ == "__main__":
    main()
