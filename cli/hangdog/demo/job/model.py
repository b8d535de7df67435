"""A small transformer language model, cut into pipeline stages and spread over a mesh by torch's own parallel APIs."""

# mypy: allow-subclassing-any
# torch is untyped for us, so its classes are Any to mypy.

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of the model; small enough that a step is mostly waiting for the network, as in a large job."""

    tokens: int
    vocabulary: int = 64
    width: int = 64
    heads: int = 4
    layers: int = 4


class Attention(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.head_width = shape.width // shape.heads
        self.query = nn.Linear(shape.width, shape.width, bias=False)
        self.key = nn.Linear(shape.width, shape.width, bias=False)
        self.value = nn.Linear(shape.width, shape.width, bias=False)
        self.out = nn.Linear(shape.width, shape.width, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        """`hidden` is (batch, tokens, width); each tensor-parallel rank holds some of the heads."""
        batch, tokens, _ = hidden.shape
        query, key, value = (
            projection(hidden).view(batch, tokens, -1, self.head_width).transpose(1, 2)
            for projection in (self.query, self.key, self.value)
        )
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        projected: Tensor = self.out(mixed.transpose(1, 2).reshape(batch, tokens, -1))
        return projected


class FeedForward(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.up = nn.Linear(shape.width, 4 * shape.width, bias=False)
        self.down = nn.Linear(4 * shape.width, shape.width, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        lowered: Tensor = self.down(functional.gelu(self.up(hidden)))
        return lowered


class Block(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(shape.width)
        self.attention = Attention(shape)
        self.feed_norm = nn.LayerNorm(shape.width)
        self.feed_forward = FeedForward(shape)

    def forward(self, hidden: Tensor) -> Tensor:
        hidden = hidden + self.attention(self.attention_norm(hidden))
        mixed: Tensor = hidden + self.feed_forward(self.feed_norm(hidden))
        return mixed


class ModelStage(nn.Module):
    """One pipeline stage: the first also embeds the tokens, the last also predicts the next ones."""

    def __init__(self, shape: Shape, stage: int, stages: int) -> None:
        super().__init__()
        self.first, self.last = stage == 0, stage == stages - 1
        if self.first:
            self.embedding = nn.Embedding(shape.vocabulary, shape.width)
            self.positions = nn.Parameter(torch.randn(shape.tokens, shape.width) * 0.02)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers // stages))
        if self.last:
            self.norm = nn.LayerNorm(shape.width)
            self.head = nn.Linear(shape.width, shape.vocabulary, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        """(batch, tokens) token ids or (batch, tokens, width) activations in; activations or logits out."""
        if self.first:
            hidden = self.embedding(hidden) + self.positions
        for block in self.blocks:
            hidden = block(hidden)
        # FSDP2 hooks what a module returns and warns of views, which a gathered DTensor is: hence the clone.
        return self.head(self.norm(hidden)).clone() if self.last else hidden


def spread(stage: ModelStage, tensor: DeviceMesh, data: DeviceMesh) -> ModelStage:
    """Shards a stage's matrices over the `tensor` mesh and its parameters over the `data` mesh (FSDP2)."""
    return shard(cut(stage, tensor), data)


def cut(stage: ModelStage, tensor: DeviceMesh) -> ModelStage:
    """Shards a stage's matrices over the `tensor` mesh: each rank computes with some rows or columns of each."""
    if stage.first:
        parallelize_module(stage, tensor, {"embedding": RowwiseParallel(input_layouts=Replicate())})
    if stage.last:
        parallelize_module(stage, tensor, {"head": ColwiseParallel(output_layouts=Replicate())})
    for block in stage.blocks:
        parallelize_module(
            block,
            tensor,
            {
                "attention.query": ColwiseParallel(),
                "attention.key": ColwiseParallel(),
                "attention.value": ColwiseParallel(),
                "attention.out": RowwiseParallel(),
                "feed_forward.up": ColwiseParallel(),
                "feed_forward.down": RowwiseParallel(),
            },
        )
    return stage


def shard(stage: ModelStage, data: DeviceMesh) -> ModelStage:
    """Shards a stage's parameters over the `data` mesh (FSDP2): they are gathered block by block where they are used."""
    for block in stage.blocks:
        fully_shard(block, mesh=data)
    fully_shard(stage, mesh=data)
    return stage
