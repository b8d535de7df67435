"""Where a trainer's calls of torch.distributed pass: the methods of its process groups and of their work handles.

All functions of `torch.distributed`, and the libraries above it, end in these methods. So it does not matter who imported
which function before. What C++ calls by itself (DDP's reducer, functional collectives) does not pass here, and is counted
by the groups.
"""

import functools
from collections.abc import Callable
from typing import Any

from hangdog.tracing.group_tracer import GroupTracer, TracedCall


def _second(args: Any) -> int:
    return int(args[1])


def _root(args: Any) -> int:
    return int(getattr(args[-1], "rootRank", 0))


#: By the name of the method. A backend of another version may lack some, and then has no call to pass.
_CALLS = {
    "allreduce": TracedCall("AllReduce", 0),
    "allreduce_coalesced": TracedCall("AllReduce", 0),
    "broadcast": TracedCall("Broadcast", 0, peer=_root),
    "reduce": TracedCall("Reduce", 0, peer=_root),
    "allgather": TracedCall("AllGather", 1),
    "_allgather_base": TracedCall("AllGather", 1),
    "all_gather_single": TracedCall("AllGather", 1),
    "allgather_coalesced": TracedCall("AllGather", 1),
    "all_gather_single_coalesced": TracedCall("AllGather", 1),
    "allgather_into_tensor_coalesced": TracedCall("AllGather", 1),
    "gather": TracedCall("Gather", 1, peer=_root),
    "scatter": TracedCall("Scatter", 0, peer=_root),
    "reduce_scatter": TracedCall("ReduceScatter", 0),
    "_reduce_scatter_base": TracedCall("ReduceScatter", 0),
    "reduce_scatter_single": TracedCall("ReduceScatter", 0),
    "reduce_scatter_single_coalesced": TracedCall("ReduceScatter", 0),
    "reduce_scatter_tensor_coalesced": TracedCall("ReduceScatter", 0),
    "alltoall": TracedCall("AlltoAll", 1),
    "alltoall_base": TracedCall("AlltoAll", 1),
    "all_to_all_single": TracedCall("AlltoAll", 1),
    "barrier": TracedCall("Barrier", None),
    "send": TracedCall("Send", 0, collective=False, peer=_second),
    "recv": TracedCall("Recv", 0, collective=False, peer=_second),
    "recv_anysource": TracedCall("Recv", 0, collective=False, peer=lambda _: -1),
}
#: Methods of a work handle that show that its operation has ended: by returning, or by answering true.
_RETURNS, _ANSWERS = ("wait",), ("is_completed",)


class CallHooks:
    """The methods that are replaced while a trainer is traced, and how they were."""

    def __init__(self, process_group: Any, work: Any) -> None:
        """Takes the classes of torch, or ones that stand for them."""
        self._process_group, self._work = process_group, work
        self._plain: list[tuple[Any, str, Any]] = []

    def install(self, tracer: GroupTracer) -> None:
        """Lets every call pass through the tracer."""
        for name, call in _CALLS.items():
            self._replace(self._process_group, name, functools.partial(_traced, tracer, call))
        self._replace(self._process_group, "_set_group_desc", lambda plain: _after(plain, tracer.created))
        for name in ("shutdown", "abort"):
            self._replace(self._process_group, name, lambda plain: _before(plain, tracer.ended))
        for name in _RETURNS:
            self._replace(self._work, name, lambda plain: _waits(plain, tracer))
        for name in _ANSWERS:
            self._replace(self._work, name, lambda plain: _answers(plain, tracer))

    def remove(self) -> None:
        """Puts back what was there."""
        while self._plain:
            owner, name, plain = self._plain.pop()
            setattr(owner, name, plain)

    def _replace(self, owner: Any, name: str, made: Callable[[Any], Any]) -> None:
        kept = owner.__dict__.get(name)
        if kept is None:
            return
        setattr(owner, name, functools.wraps(getattr(owner, name))(made(getattr(owner, name))))
        self._plain.append((owner, name, kept))


def _traced(tracer: GroupTracer, call: TracedCall, plain: Any) -> Any:
    begin, under_way = tracer.begin, tracer.under_way

    def traced(group: Any, *args: Any, **kwargs: Any) -> Any:
        begun = begin(group, call, (*args, *kwargs.values()) if kwargs else args)
        if begun is None:
            return plain(group, *args, **kwargs)
        work = None
        try:
            work = plain(group, *args, **kwargs)
        finally:
            under_way(begun, work)
        return work

    return traced


def _waits(plain: Any, tracer: GroupTracer) -> Any:
    over = tracer.over

    def wait(work: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return plain(work, *args, **kwargs)
        finally:
            over(work)

    return wait


def _answers(plain: Any, tracer: GroupTracer) -> Any:
    def is_completed(work: Any) -> Any:
        answer = plain(work)
        if answer:
            tracer.over(work)
        return answer

    return is_completed


def _after(plain: Any, then: Callable[[Any], None]) -> Any:
    def named(group: Any, *args: Any, **kwargs: Any) -> Any:
        answer = plain(group, *args, **kwargs)
        then(group)
        return answer

    return named


def _before(plain: Any, first: Callable[[Any], None]) -> Any:
    def ending(group: Any, *args: Any, **kwargs: Any) -> Any:
        first(group)
        return plain(group, *args, **kwargs)

    return ending
