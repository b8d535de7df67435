"""Hugging Face Transformers: its Trainer, distributed data parallel by torchrun, with a tiny random Llama."""

import os

import torch
import torch.distributed as dist
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments
from user_code import FOLDER, Between, Shards

LENGTH, VOCABULARY = 32, 128


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
            args.process_index, dist.barrier, all_reduce, lambda file: torch.save(model.state_dict(), file)
        )

    def on_step_end(self, args, state, control, **_):
        self.between.steps()


def all_reduce(value):
    dist.all_reduce(torch.tensor([value]))


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
    )
    Trainer(model, arguments, train_dataset=Tokens(int(os.environ["RANK"])), callbacks=[Duties()]).train()


if __name__ == "__main__":
    main()
