"""`hangdog.trace()`: lets a trainer keep the ring of the NCCL profiler plug-in for gloo and other jobs without a GPU."""

import os
import sys
from typing import Any

from hangdog.tracing.c10d_calls import CallHooks
from hangdog.tracing.group_tracer import GroupTracer
from hangdog.tracing.ring_file import SWITCH

#: NCCL loads the plug-in where this is set. Both would write into one file.
_PLUGIN = "NCCL_PROFILER_PLUGIN"

_active: list[GroupTracer] = []


def trace() -> bool:
    """Keeps from now on how far each collective has come, in shared memory; answers whether it does.

    Call it on every rank, before `init_process_group`. It never raises and never waits: what goes wrong turns it off,
    with one line on stderr. `HANGDOG_PROFILER=0` turns it off as well. A second call changes nothing.
    """
    if _active:
        return not _active[0].off
    if os.environ.get(SWITCH) == "0":
        return False
    try:
        if os.environ.get(_PLUGIN):
            print("hangdog.trace is off: NCCL's profiler plug-in keeps the ring", file=sys.stderr, flush=True)
            return False
        _active.append(_install())
    except Exception as error:  # noqa: BLE001 - whatever it is, the trainer goes on
        GroupTracer().fail(error)
        return False
    return True


def _install() -> GroupTracer:
    import torch
    import torch.distributed as dist
    from torch.optim.optimizer import register_optimizer_step_post_hook

    if sys.byteorder != "little":
        raise OSError("a ring holds little-endian numbers, and this machine writes others")
    hooks = CallHooks(torch._C._distributed_c10d.ProcessGroup, torch._C._distributed_c10d.Work)
    tracer = GroupTracer(hooks.remove)
    hooks.install(tracer)

    def stepped(*_: Any) -> None:
        tracer.catch_up()

    register_optimizer_step_post_hook(stepped)
    os.register_at_fork(after_in_child=tracer.forked)
    if dist.is_initialized():
        for group in list(dist.distributed_c10d._world.pg_map):
            tracer.created(group)
    return tracer
