"""What users do by torch beside the step; torch is imported where it is needed, as JAX trains without it."""

import time
from functools import partial


def metrics_apart():
    """An all-reduce and an all-gather in a group of their own, as metrics have one; in the default group gloo itself finds a mismatch and raises."""
    import torch
    import torch.distributed as dist

    group = dist.new_group()
    return {
        "all_reduce": lambda value: dist.all_reduce(torch.tensor([value]), group=group),
        "all_gather": partial(gather_by_torch, group=group),
    }


def gather_by_torch(value, group=None):
    import torch
    import torch.distributed as dist

    value = torch.tensor([value])
    dist.all_gather([torch.empty_like(value) for _ in range(dist.get_world_size())], value, group=group)


def wait_in_store():
    from datetime import timedelta

    import torch.distributed as dist

    dist.distributed_c10d._get_default_store().wait(["prepared"], timedelta(hours=1))


def torch_compile():
    import torch

    torch._dynamo.reset()
    torch.compile(deep_function, fullgraph=True)(torch.randn(8, int(time.monotonic() * 10) % 1000 + 8))


def deep_function(x):
    for turn in range(30):
        x = (x * 1.01 + turn).sin().softmax(-1).cumsum(-1)
    return x
