"""PyTorch's own parallelism, put together as torchtitan does it: tensor 2 by DTensor, times pipeline 2 or sharded data 2.

A plan of `parallelize_module` for each block, `fully_shard` around it where data is sharded, and a stage with a schedule of
`torch.distributed.pipelining` where it is cut into stages. The device mesh's dimensions bear torchtitan's names.
"""

import os

import torch
import torch.distributed as dist
from by_torch import metrics_apart
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module
from torch.utils.data import DataLoader
from user_code import Between, Shards

LENGTH, VOCABULARY, WIDTH, LAYERS, BATCH, MICROBATCHES = 32, 128, 64, 4, 8, 4


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.w1, self.w2 = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.w2(nn.functional.silu(self.w1(self.norm(x))))


class Transformer(nn.Module):
    """What is not on this stage is None, as in torchtitan."""

    def __init__(self, layers, first, last):
        super().__init__()
        self.tok_embeddings = nn.Embedding(VOCABULARY, WIDTH) if first else None
        self.layers = nn.ModuleDict({str(number): FeedForward() for number in layers})
        self.output = nn.Linear(WIDTH, VOCABULARY) if last else None

    def forward(self, tokens):
        h = self.tok_embeddings(tokens) if self.tok_embeddings else tokens
        for layer in self.layers.values():
            h = layer(h)
        return self.output(h) if self.output else h


def apply_tp(model, mesh):
    ends = {
        "tok_embeddings": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "output": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
    }
    parallelize_module(model, mesh, {name: plan for name, plan in ends.items() if getattr(model, name)})
    for layer in model.layers.values():
        plan = {
            "norm": SequenceParallel(),
            "w1": ColwiseParallel(input_layouts=Shard(1)),
            "w2": RowwiseParallel(output_layouts=Shard(1)),
        }
        parallelize_module(layer, mesh, plan)


def apply_fsdp(model, mesh):
    for layer in model.layers.values():
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)


def loss_fn(predicted, labels):
    return nn.functional.cross_entropy(predicted.flatten(0, 1), labels.flatten())


def pipelined(mesh):
    pp = mesh["pp"]
    index, half = pp.get_local_rank(), LAYERS // 2
    part = Transformer(range(index * half, (index + 1) * half), first=index == 0, last=index == 1)
    apply_tp(part, mesh["tp"])
    schedule = Schedule1F1B(
        PipelineStage(part, index, 2, torch.device("cpu"), group=pp.get_group()), MICROBATCHES, loss_fn
    )

    def train_step(tokens, labels):
        if index == 0:
            schedule.step(tokens)
        else:
            schedule.step(target=labels, losses=[])

    return part, train_step, lambda: schedule.eval(held_out())


def sharded(mesh):
    model = Transformer(range(LAYERS), first=True, last=True)
    apply_tp(model, mesh["tp"])
    apply_fsdp(model, mesh["dp_shard"])

    def train_step(tokens, labels):
        loss_fn(model(tokens), labels).backward()

    @torch.no_grad()
    def evaluate():
        model(held_out())

    return model, train_step, evaluate


def held_out():
    return torch.randint(VOCABULARY, (BATCH, LENGTH))


def main():
    rank, outer = int(os.environ["RANK"]), os.environ["FRAMEWORKS_OUTER"]
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=(outer, "tp"))
    torch.manual_seed(1)
    model, train_step, evaluate = (pipelined if outer == "pp" else sharded)(mesh)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    between = Between(
        rank, dist.barrier, save=lambda file: torch.save(local(model), file), evaluate=evaluate, **metrics_apart()
    )
    # every rank reads a shard of its own, and all get the same tokens, as ranks of one tensor parallel group must
    for tokens in DataLoader(Shards(rank, BATCH, LENGTH + 1, VOCABULARY), batch_size=None, num_workers=1):
        optimizer.zero_grad()
        train_step(tokens[:, :-1], tokens[:, 1:])
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=False)
        optimizer.step()
        if between.steps():
            break
    dist.barrier()


def local(model):
    """This rank's part of the parameters."""
    return [one.to_local() if hasattr(one, "to_local") else one for one in model.parameters()]


if __name__ == "__main__":
    main()
