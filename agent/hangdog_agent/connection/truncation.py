"""Makes a look fit into one message: the largest stacks give way, one process at a time, and say so."""

from collections.abc import Callable, Sequence

from msgspec import structs

from hangdog_models.stack import Missing, ProcessTrace, Reason
from hangdog_proto.codec.traces import pack
from hangdog_proto.generated import hangdog_pb2 as pb

Pack = Callable[[Sequence[ProcessTrace]], pb.Capture]


def fitting(traces: Sequence[ProcessTrace], most: int, pack: Pack = pack) -> pb.Capture:
    """The look as a message of at most `most` bytes (0: no bound); states and reasons always travel."""
    kept = list(traces)
    while True:
        capture = pack(kept)
        sizes = [sum(len(thread.frames) for thread in trace.threads) for trace in kept]
        if not most or capture.ByteSize() <= most or not any(sizes):
            return capture
        at = sizes.index(max(sizes))
        words = f"{sizes[at]} frames would make the answer larger than the {most} bytes the server takes"
        missing = kept[at].missing or Missing(Reason.TOOL_FAILED, words)
        kept[at] = structs.replace(kept[at], threads=(), missing=missing)
