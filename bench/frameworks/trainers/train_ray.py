"""Ray Train: a TorchTrainer whose workers train under DistributedDataParallel, each in a thread of its own."""

import os

import ray
import torch
import torch.distributed as dist
from ray import train
from ray.train.torch import TorchConfig, TorchTrainer, prepare_model
from torch import nn
from torch.utils.data import DataLoader

LENGTH, VOCABULARY = 32, 128


def train_loop():
    from by_torch import metrics_apart
    from user_code import Between, Shards

    rank = train.get_context().get_world_rank()
    torch.manual_seed(1)
    model = prepare_model(
        nn.Sequential(nn.Embedding(VOCABULARY, 128), nn.Linear(128, 512), nn.GELU(), nn.Linear(512, VOCABULARY))
    )
    optimizer = torch.optim.AdamW(model.parameters())
    between = Between(
        rank,
        dist.barrier,
        save=lambda file: torch.save(model.state_dict(), file),
        **metrics_apart(),
    )
    for tokens in DataLoader(Shards(rank, 8, LENGTH + 1, VOCABULARY), batch_size=None):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        if between.steps():
            break
    dist.barrier()


def main():
    world = int(os.environ["FRAMEWORKS_WORLD"])
    folder = os.environ["FRAMEWORKS_FOLDER"]
    ray.init(num_cpus=world + 1, include_dashboard=False, object_store_memory=100 << 20, _temp_dir=f"{folder}/ray")
    trainer = TorchTrainer(
        train_loop,
        torch_config=TorchConfig(backend="gloo"),
        scaling_config=train.ScalingConfig(num_workers=world),
        run_config=train.RunConfig(name="frameworks", storage_path=folder),
    )
    trainer.fit()


if __name__ == "__main__":
    main()
