"""Trains a small GPT, dense or with experts, for one step from fixed weights and inputs, and tells the digest of every tensor.

Losses are not compared: a wrong bit in a weight need not show in them, while gradients and updated weights show it.
"""

# mypy: allow-subclassing-any
# torch is untyped for us, so its classes are Any to mypy.

from __future__ import annotations

import hashlib
import math
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from hangdog_agent.machine_tests.programs.device import digest, key, steady, uniform, wait
from hangdog_agent.machine_tests.programs.layout import Enter, Leave, ParallelLayout
from hangdog_agent.machine_tests.programs.report_line import ReportLines

_VOCABULARY, _HEADS, _EXPERTS = 256, 4, 4
#: Outcomes and items told; with more than two outcomes nobody needs the rest.
_REPORTED = 4


class GptAttention(nn.Module):
    """Some of the heads on each tensor-parallel rank; written out, so that no library chooses among kernels."""

    def __init__(self, width: int, layout: ParallelLayout) -> None:
        super().__init__()
        self.layout, self.each = layout, width // _HEADS
        self.mix = nn.Parameter(torch.empty(3 * width // layout.tp, width))
        self.out = nn.Parameter(torch.empty(width, width // layout.tp))

    def forward(self, hidden: Any) -> Any:
        batch, tokens, _ = hidden.shape
        hidden = Enter.apply(hidden, self.layout.tensor)
        mixed = functional.linear(hidden, self.mix).view(batch, tokens, 3, -1, self.each)
        query, keys, values = mixed.permute(2, 0, 3, 1, 4)
        scores = query @ keys.transpose(-1, -2) / math.sqrt(self.each)
        later = torch.ones(tokens, tokens, dtype=torch.bool, device=hidden.device).triu(1)
        weights = torch.softmax(scores.masked_fill(later, -math.inf), dim=-1)
        joined = (weights @ values).transpose(1, 2).reshape(batch, tokens, -1)
        return Leave.apply(functional.linear(joined, self.out), self.layout.tensor)


class GptFeedForward(nn.Module):
    """Two matrices, cut over the tensor-parallel ranks."""

    def __init__(self, width: int, layout: ParallelLayout) -> None:
        super().__init__()
        self.layout = layout
        self.up = nn.Parameter(torch.empty(4 * width // layout.tp, width))
        self.down = nn.Parameter(torch.empty(width, 4 * width // layout.tp))

    def forward(self, hidden: Any) -> Any:
        inside = functional.gelu(functional.linear(Enter.apply(hidden, self.layout.tensor), self.up))
        return Leave.apply(functional.linear(inside, self.down), self.layout.tensor)


class Experts(nn.Module):
    """Each token goes to one expert; each rank of the group holds some of the experts."""

    def __init__(self, width: int, layout: ParallelLayout) -> None:
        super().__init__()
        self.layout, self.mine = layout, _EXPERTS // layout.tp
        self.router = nn.Parameter(torch.empty(_EXPERTS, width))
        self.up = nn.Parameter(torch.empty(self.mine, 2 * width, width))
        self.down = nn.Parameter(torch.empty(self.mine, width, 2 * width))

    def forward(self, hidden: Any) -> Any:
        flat = Enter.apply(hidden.reshape(-1, hidden.shape[-1]), self.layout.tensor)
        chance, chosen = torch.softmax(functional.linear(flat, self.router), dim=-1).max(dim=-1)
        made = torch.zeros_like(flat)
        for at in range(self.mine):
            tokens = (chosen == self.layout.tp_at * self.mine + at).nonzero().view(-1)
            inside = functional.gelu(functional.linear(flat[tokens], self.up[at]))
            made = made.index_copy(0, tokens, functional.linear(inside, self.down[at]) * chance[tokens, None])
        return Leave.apply(made, self.layout.tensor).view_as(hidden)


class GptBlock(nn.Module):
    def __init__(self, kind: str, width: int, layout: ParallelLayout) -> None:
        super().__init__()
        self.before_attention, self.before_feeding = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = GptAttention(width, layout)
        self.feeding = Experts(width, layout) if kind == "moe" else GptFeedForward(width, layout)

    def forward(self, hidden: Any) -> Any:
        hidden = hidden + self.attention(self.before_attention(hidden))
        return hidden + self.feeding(self.before_feeding(hidden))


class GptStage(nn.Module):
    """One pipeline stage: the first embeds the tokens, the last predicts the next ones."""

    def __init__(self, kind: str, width: int, layers: int, layout: ParallelLayout) -> None:
        super().__init__()
        if layout.first:
            self.embedding = nn.Parameter(torch.empty(_VOCABULARY, width))
        self.blocks = nn.ModuleList(GptBlock(kind, width, layout) for _ in range(layers // layout.pp))
        if layout.last:
            self.norm = nn.LayerNorm(width)
            self.head = nn.Parameter(torch.empty(_VOCABULARY, width))

    def forward(self, given: Any) -> Any:
        hidden = functional.embedding(given, self.embedding) if hasattr(self, "embedding") else given
        for block in self.blocks:
            hidden = block(hidden)
        return functional.linear(self.norm(hidden), self.head) if hasattr(self, "head") else hidden


def weights(stage: GptStage, layout: ParallelLayout) -> dict[str, Any]:
    """The stage's share, made on the host from the name of each parameter alone: equal on every machine."""
    made = {}
    for name, parameter in stage.named_parameters():
        seed = int.from_bytes(hashlib.sha256(f"{layout.stage} {layout.tp_at} {name}".encode()).digest()[:6], "big")
        maker = torch.Generator().manual_seed(seed)
        scale = 1.0 if parameter.dim() == 1 else parameter.shape[-1] ** -0.5
        made[name] = uniform(maker, *parameter.shape) * scale
    return made


def update(parameter: Any) -> None:
    """The first step of AdamW; torch's own would load its compiler, which takes longer than all the steps."""
    with torch.no_grad():
        mean, square = 0.1 * parameter.grad / (1 - 0.9), 0.001 * parameter.grad**2 / (1 - 0.999)
        parameter.mul_(1 - 1e-5).sub_(1e-3 * mean / (square.sqrt() + 1e-8))


def step(
    kind: str, asked: dict[str, Any], layout: ParallelLayout, device: str, start: dict[str, Any]
) -> dict[str, str]:
    """One step of training from the weights of `start`; the digests of what came of it, by item."""
    width, kept = asked["width"], getattr(torch, asked["type"])
    stage = GptStage(kind, width, asked["layers"], layout)
    stage.load_state_dict(start)
    stage.to(device=device, dtype=kept)
    maker = torch.Generator().manual_seed(layout.dp_at)
    tokens = torch.randint(0, _VOCABULARY, (asked["batch"], asked["tokens"] + 1), generator=maker).to(device)
    shape = (asked["batch"], asked["tokens"], width)
    given = tokens[:, :-1]
    if not layout.first:
        given = layout.receive(torch.empty(shape, dtype=kept, device=device), -1).requires_grad_()
    out = stage(given)
    items = {"output": digest(out)}
    if layout.last:
        functional.cross_entropy(out.float().view(-1, _VOCABULARY), tokens[:, 1:].reshape(-1)).backward()
    else:
        layout.send(out.detach(), 1)
        out.backward(layout.receive(torch.empty_like(out), 1))
    if not layout.first:
        layout.send(given.grad, -1)
    for name, parameter in stage.named_parameters():
        items[f"gradient of {name}"] = digest(parameter.grad)
        if layout.data is not None:
            torch.distributed.all_reduce(parameter.grad, group=layout.data)
        update(parameter)
    wait(device)
    return items | {f"updated {name}": digest(parameter) for name, parameter in stage.named_parameters()}


def main() -> None:
    stated = ReportLines()
    asked = stated.asked
    device = asked["device"]
    stated.at(f"start of {asked['name']}")
    steady(asked["threads"])
    layout = ParallelLayout(asked["layout"], device)
    parts = []
    for kind in asked["kinds"]:
        outcomes: Counter[tuple[tuple[str, str], ...]] = Counter()
        start = weights(GptStage(kind, asked["width"], asked["layers"], layout), layout)
        for turn in range(asked["repetitions"]):
            stated.at(f"step {turn} of {kind} on {asked['name']}")
            outcomes[tuple(step(kind, asked, layout, device, start).items())] += 1
        (most, times), *rest = outcomes.most_common(_REPORTED)
        usual = dict(most)
        odd = [name for other, _ in rest for name, mark in other if usual[name] != mark]
        reported = {"kind": kind, "items": usual, "times": times, "repetitions": asked["repetitions"]}
        parts.append({**reported, "kinds": len(outcomes), "odd": sorted(set(odd))[:_REPORTED]})
    sizes = [f"{name} {asked[name]}" for name in ("type", "width", "layers", "batch", "tokens")]
    shape = f"tp {layout.tp} pp {layout.pp} dp {layout.dp}"
    stated.found(
        {
            "key": ", ".join([key(device, __file__, str(Path(__file__).with_name("layout.py"))), *sizes, shape]),
            "parts": parts,
        }
    )
    if asked["layout"] is not None:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
