"""DeepSpeed: its engine with ZeRO-2 or ZeRO-3 on the CPU, over gloo."""

import os
from functools import partial

import deepspeed
import torch
import torch.distributed as dist
from by_torch import metrics_apart
from torch import nn
from torch.utils.data import DataLoader
from user_code import Between, Shards

LENGTH, VOCABULARY = 32, 128
STAGE = int(os.environ["FRAMEWORKS_ZERO"])
CONFIG = {
    "train_micro_batch_size_per_gpu": 8,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
    "zero_optimization": {"stage": STAGE},
    "gradient_clipping": 1.0,
    "steps_per_print": 50,
}


def main():
    rank = int(os.environ["RANK"])
    # ranks of one host would else exchange through shared memory, by an operator that takes minutes to build
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed("gloo")
    torch.manual_seed(1)
    model = nn.Sequential(nn.Embedding(VOCABULARY, 128), nn.Linear(128, 512), nn.GELU(), nn.Linear(512, VOCABULARY))
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=CONFIG)
    held_out = torch.randint(VOCABULARY, (8, LENGTH))
    between = Between(
        rank,
        dist.barrier,
        save=lambda file: torch.save(own_part(engine.module), file),
        evaluate=partial(engine, held_out) if STAGE == 3 else None,
        **metrics_apart(),
    )
    for tokens in DataLoader(Shards(rank, 8, LENGTH + 1, VOCABULARY), batch_size=None, num_workers=1):
        loss = nn.functional.cross_entropy(engine(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        engine.backward(loss)
        engine.step()
        if between.steps():
            break
    dist.barrier()


def own_part(module):
    """What of the parameters this rank holds: all of them, or its partition by ZeRO-3."""
    return [one.ds_tensor if STAGE == 3 else one.detach() for one in module.parameters()]


if __name__ == "__main__":
    main()
