"""One gathering from its order to its snapshot: asks the machines, takes their answers in, keeps them, says how many there are."""

import asyncio
import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from msgspec import structs

from hangdog_models.counts import counted, named
from hangdog_models.ranks import Rank
from hangdog_models.snapshot import Snapshot
from hangdog_proto.codec import rounds
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_server.cluster.fleet import Fleet
from hangdog_server.incidents import gather
from hangdog_server.incidents.capture_archive import Archive
from hangdog_server.incidents.gather import Gathering, RoundAnswer, Waiting
from hangdog_server.protocol.commands import CaptureCommand
from hangdog_server.protocol.rejections import RejectedCapture, Rejection

#: Seconds between two lines about the same counting-up: 2,000 machines must not make 2,000 lines.
PACE_S = 0.5
#: Between two looks at who is missing, while answers come: so long at least (seconds), and so many times as long as one
#: takes, for it goes over all machines.
MOMENT_S, SHARE = 0.1, 30.0


@dataclass(slots=True)
class RoundCapture:
    """A gathering that is under way. `order` is what agents are asked now; each machine's `ranks` where only some are meant.

    `kept_from`: its looks are kept under numbers from here on, behind those of the looks before.
    """

    order: CaptureCommand
    gathering: Gathering
    fleet: Fleet
    archive: Archive
    incident: str
    say: Callable[[str], None]
    kept_from: int = 0
    first: int = 0
    _over: bool = False
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _all: asyncio.Event = field(default_factory=asyncio.Event)

    def ask(self) -> None:
        """Asks every machine."""
        self._over = False
        self._all.clear()
        for machine in self.gathering.plan.asked:
            self._send(machine)

    def again(self, now: float) -> None:
        """Asks for one look more, by an order of its own: an agent that knows nothing of light orders ends by itself."""
        self.first += 1
        self.order = replace(self.order, name=f"{self.incident}/{self.first}")
        gather.further(self.gathering, now)
        self.ask()

    def answer(self, captured: pb.Captured, answers: Sequence[RoundAnswer]) -> list[str]:
        """Takes an agent's message in, whose looks are `answers`; why each is refused, empty when it is taken."""
        if captured.order != self.order.name or self._over:
            return [Rejection(RejectedCapture.LATE, f"order {captured.order[:40]!r} is over")] * len(answers)
        if self.order.light or self.order.native:
            *before, alone = answers
            if before or alone.round:
                what = "several looks were" if before else "what libraries counted was"
                return [f"{what} not asked for"] * len(answers)
            answers = [structs.replace(alone, round=self.first, last=True, more=False)]
        refused = [gather.take(self.gathering, answer) for answer in answers]
        if not all(refused):
            self._keep(captured, [None if why else answer for answer, why in zip(answers, refused, strict=True)])
            self._tell()
        return refused

    def _keep(self, captured: pb.Captured, taken: list[RoundAnswer | None]) -> None:
        """Keeps of a message the looks that were taken, those it tells by its last look beside that one."""
        *before, last = taken
        beside: list[pb.Before] = []
        for answer, reported in zip(before, captured.before, strict=True):
            if answer is None:
                continue
            if reported.HasField("capture"):
                self.archive.add(answer.machine, self.kept_from + answer.round, reported.capture)
            elif last is not None and not answer.unreadable:
                beside.append(reported)
            else:
                shown = pb.Capture() if answer.unreadable else rounds.rebuilt(captured.capture, reported)
                self.archive.add(answer.machine, self.kept_from + answer.round, shown)
        if last is not None:
            kept = rounds.pack_earlier(last.round, beside) if beside else None
            self.archive.add(last.machine, self.kept_from + last.round, captured.capture, kept)

    def lost(self, machine: str) -> None:
        """An agent's stream ended."""
        gather.lose(self.gathering, machine, steady())
        self._tell()

    def joined(self, machine: str) -> None:
        """An agent has a new stream: what it was asked on the old one is asked again."""
        if gather.rejoin(self.gathering, machine) and not self._over:
            self._send(machine)
        self._tell()

    async def gathered(self) -> Snapshot:
        """Waits for the answers, keeping each and saying how many there are."""
        gathering, stated, stated_at = self.gathering, "", steady()
        while True:
            asked = steady()
            state = gather.ready(gathering, asked)
            if not isinstance(state, Waiting):
                break
            now = steady()
            await self.archive.keep()
            if state.reason != stated and now - stated_at >= PACE_S:
                self.say(state.reason)
                stated, stated_at = state.reason, now
            pause = min(state.until - now, PACE_S if state.reason != stated else math.inf)
            await self._rest(steady(), max(pause, 0.0), max(MOMENT_S, SHARE * (now - asked)))
        self._over = True  # an answer from now on would be of another moment
        await self.archive.keep()
        return state

    async def _rest(self, began: float, pause: float, moment: float) -> None:
        """Returns when there is something to look at: all have answered, or somebody has and a `moment` has passed."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._changed.wait()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout_at(began + moment):
                        await self._all.wait()
                self._changed.clear()

    def _tell(self) -> None:
        """There is something to look at; whoever waits for it is not woken for each of thousands of answers."""
        if not self._changed.is_set():
            self._changed.set()
        if len(self.gathering.done) >= len(self.gathering.plan.asked):
            self._all.set()

    def summary(self) -> str:
        """How many machines answered, and who did not."""
        asked, done = self.gathering.plan.asked, self.gathering.done
        silent = [machine for machine in asked if machine not in done]
        rest = f", {named(silent)} did not" if silent else ""
        return f"{len(done)} of {counted(len(asked), 'machine')} answered{rest}"

    def _send(self, machine: str) -> None:
        ranks: tuple[Rank, ...] = self.gathering.plan.asked[machine] if self.order.native else ()
        order = replace(self.order, native=ranks) if ranks else self.order
        if not self.fleet.send(machine, order):
            gather.lose(self.gathering, machine, steady())


def steady() -> float:
    """Now, on the event loop's clock."""
    return asyncio.get_running_loop().time()
