"""Answers one order to look: a message for each look, and what the libraries counted at the time of the last one.

The counters are asked for while the last look is taken, so that both are of one moment. They travel with it when they are
there by then; else it goes ahead, and they follow: stacks never wait for what a sick library may not tell. Light looks
and native ones ask no library: the former must cost a job nothing, the latter come behind looks that asked.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from msgspec import structs

from hangdog_agent.capture.capture_rounds import CaptureSeries
from hangdog_agent.capture.library_counters import parcels
from hangdog_agent.metrics.metrics import AgentMetrics
from hangdog_models.findings import Finding
from hangdog_models.stack import Missing, ProcessTrace, Reason
from hangdog_proto.codec import findings as found
from hangdog_proto.codec import traces as codec
from hangdog_proto.generated import hangdog_pb2 as pb

Found = Callable[[], Sequence[Finding]]
Pack = Callable[[Sequence[ProcessTrace]], pb.Capture]

#: The last look's message waits so long for the counters: mostly that saves a message, and nobody notices.
_MOMENT_S = 0.05
#: More looks than any server asks for; a number beyond would not fit the wire together with those behind it.
_MOST_ROUNDS = 1 << 31


class CaptureAnswer:
    """One order being answered: `most` bytes fit into a message (0: no bound), `lookers` is where looks are taken.

    `findings` says what the checks of this machine have found, `pack` writes a look.
    """

    def __init__(
        self,
        series: CaptureSeries,
        order: pb.CaptureOrder,
        lookers: ThreadPoolExecutor,
        most: int,
        findings: Found = tuple,
        pack: Pack = codec.pack,
        metrics: AgentMetrics | None = None,
    ) -> None:
        self._metrics = metrics or AgentMetrics()
        self._findings = findings
        self._series = series
        self._order = order
        self._lookers = lookers
        self._most = most
        self._pack = pack

    async def messages(self, rounds: int, interval_s: float) -> AsyncGenerator[pb.Captured, None]:
        """All messages, the starts of the looks at least an interval apart; ends early when the job is not here."""
        loop = asyncio.get_running_loop()
        begin = loop.time()
        hearers = ThreadPoolExecutor(1, "hangdog-hear")
        try:
            for number in range(rounds):
                await asyncio.sleep(max(0.0, begin - loop.time()))
                begin = max(begin, loop.time()) + interval_s
                final = number == rounds - 1
                hears = final and not (self._order.light or self._order.native)
                hearing = loop.run_in_executor(hearers, self._series.hear) if hears else None
                look = await loop.run_in_executor(self._lookers, self._look)
                if final:
                    look.findings.extend(found.pack(self._findings()))
                if hears:
                    look.addresses.extend(await loop.run_in_executor(self._lookers, self._series.addresses))
                nobody = not (look.traces or look.alike)
                if hearing is None or nobody:
                    yield self._captured(number, look, last=final or nobody)
                    if nobody:
                        return
                    continue
                await asyncio.wait((hearing,), timeout=_MOMENT_S)
                ahead = not hearing.done()
                if ahead:
                    yield self._captured(number, look, more=True)
                for message in self._closing(number, None if ahead else look, await hearing):
                    yield message
        finally:
            hearers.shutdown(wait=False, cancel_futures=True)

    def _look(self) -> pb.Capture:
        if self._order.native:
            traces = self._series.native(self._order.native)
        else:
            traces = self._series.light_sample() if self._order.light else self._series.look()
        self._metrics.looked(traces)
        return fitting(traces, self._most, self._pack)

    def _closing(self, number: int, look: pb.Capture | None, received: Sequence[pb.Statement]) -> list[pb.Captured]:
        """The last look, unless it went ahead, and what was heard with it and behind it.

        What does not fit into the look's message is numbered on behind the last look that was ordered, so that no two
        messages of an order have one number.
        """
        made = parcels(look, received, self._most)
        numbers = [min(max(self._order.rounds, 1), _MOST_ROUNDS) + at for at in range(len(made))]
        if look is not None:
            numbers = [number, *numbers[:-1]]
        return [
            self._captured(at, capture, last=capture is made[-1], more=capture is look and len(made) > 1)
            for at, capture in zip(numbers, made, strict=True)
        ]

    def _captured(self, number: int, capture: pb.Capture, *, last: bool = False, more: bool = False) -> pb.Captured:
        return pb.Captured(order=self._order.order, round=number, capture=capture, last=last, more=more)


def fitting(traces: Sequence[ProcessTrace], most: int, pack: Pack = codec.pack) -> pb.Capture:
    """The look as a message of at most `most` bytes (0: no bound): the largest stacks give way, one process at a time, and say so.

    States and reasons always travel.
    """
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
