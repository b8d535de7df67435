"""Holds captures that name what nobody told yet, asks one machine for each such thing, and lets them through when it is told.

In a cluster whose dictionary is cold thousands of machines name the same stack within a second, and one of them tells it.
The looks of one machine stay in their order: one that has to wait holds up those behind it.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from hangdog_proto.codec.piece_cache import PieceCache, count_threads
from hangdog_proto.codec.pieces import split
from hangdog_proto.codec.rounds import MOST_EARLIER
from hangdog_proto.codec.traces import LIMITS
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_server.incidents.round_capture import steady
from hangdog_server.protocol.commands import Need
from hangdog_server.settings import ServerSettings

#: Looks of one machine that may wait: more than any order asks for in the time that one waits at most.
HELD = 128
#: Digests in one question; for more there are several.
ASKED = 4096
#: How often it is seen to whether somebody did not answer. Seconds.
_TICK_S = 0.25

log = logging.getLogger(__name__)
Send = Callable[[str, Need], bool]
Deliver = Callable[[str, pb.Captured], Awaitable[None]]


@dataclass(slots=True, eq=False)
class _Held:
    """One look that waits for digests; `teller` is who told the last of them: it knows what they name, too."""

    machine: str
    captured: pb.Captured
    since: float
    lacking: set[bytes] = field(default_factory=set)
    teller: str = ""


@dataclass(slots=True)
class _Wanted:
    """One digest: who waits for it, which machine was asked last and when."""

    held: list[_Held]
    asked: str
    at: float


class MissingPieces:
    """The looks that wait; `keep` it running."""

    def __init__(self, dictionary: PieceCache, send: Send, deliver: Deliver, settings: ServerSettings) -> None:
        """`send` lays a question into a machine's line; `deliver` takes a look further, once all it names was told."""
        self._dictionary = dictionary
        self._send = send
        self._deliver = deliver
        self._settings = settings
        self._held: dict[str, deque[_Held]] = {}
        self._wanted: dict[bytes, _Wanted] = {}
        self._ready: deque[str] = deque()
        self._changed = asyncio.Event()

    async def take(self, machine: str, captured: pb.Captured) -> None:
        """Takes a look further, now or when all it names was told."""
        before = self._held.get(machine)
        lacking = self._lacking(captured) if before is None else set()
        if before is None and not lacking:
            await self._deliver(machine, captured)
            return
        held = _Held(machine, captured, steady())
        queue = self._held.setdefault(machine, deque())
        queue.append(held)
        if before is None:
            self._want(held, lacking)
        elif len(queue) > HELD:
            self._give_up(queue[0])

    def take_pieces(self, machine: str, pieces: pb.Pieces) -> None:
        """Takes in what a machine told, as far as somebody waits for it; raises UnreadableEvidence."""
        for name in self._dictionary.add(pieces.pieces, self._wanted):
            self._no_longer(self._wanted.pop(name).held, name, machine)
        gone = [name for name in split(pieces.gone) if name in self._wanted and self._wanted[name].asked == machine]
        self._ask_others(gone)

    async def keep(self) -> None:
        """Lets looks through and asks again, until cancelled."""
        ticked = steady()
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_TICK_S):
                    await self._changed.wait()
            self._changed.clear()
            if (since := steady() - ticked) >= _TICK_S:
                self._tick(max(0.0, since - 2 * _TICK_S))
                ticked = steady()
            while self._ready:
                await self._advance(self._ready.popleft())
                await asyncio.sleep(0)  # a piece that all wait for frees thousands at once

    async def _advance(self, machine: str) -> None:
        """Lets through what waits for nothing any more, the oldest first."""
        queue = self._held.get(machine)
        while queue and not queue[0].lacking:
            held = queue[0]
            lacking = self._lacking(held.captured)
            if lacking and steady() - held.since < self._settings.hold_s:
                self._want(held, lacking)
                return
            try:
                await self._deliver(machine, held.captured)
            except Exception:  # a bug met in one look must not hold up all that wait, for ever
                log.exception("machine %s: a look that waited could not be read", machine)
            queue.popleft()
        if not queue:
            self._held.pop(machine, None)

    def _lacking(self, captured: pb.Captured) -> set[bytes]:
        """What a look names and nobody told; of one that names more than is believed nothing: it is unreadable anyway."""
        lacking = self._lacks(captured.capture)
        for before in captured.before[:MOST_EARLIER]:
            if before.HasField("capture"):
                lacking |= self._lacks(before.capture)
        return lacking

    def _lacks(self, capture: pb.Capture) -> set[bytes]:
        return set() if count_threads(capture) > LIMITS.threads else self._dictionary.missing(capture)

    def _want(self, held: _Held, lacking: set[bytes]) -> None:
        held.lacking = set(lacking)
        now, whom, unasked = steady(), held.teller or held.machine, []
        for name in lacking:
            wanted = self._wanted.get(name)
            if wanted is None:
                self._wanted[name] = _Wanted([held], whom, now)
                unasked.append(name)
            else:
                wanted.held.append(held)
        self._ask(whom, unasked)

    def _ask(self, machine: str, names: list[bytes]) -> None:
        for at in range(0, len(names), ASKED):
            if not self._send(machine, Need(b"".join(names[at : at + ASKED]))):
                log.info("machine %s cannot be asked for the missing pieces of its look", machine)

    def _ask_others(self, names: Iterable[bytes]) -> None:
        """Asks the next machine for each; those whose looks wait for a thing have named it, so one of them has it."""
        whom: dict[str, list[bytes]] = {}
        for name in names:
            wanted = self._wanted[name]
            machines = [held.machine for held in wanted.held]
            after = machines[machines.index(wanted.asked) + 1 :] if wanted.asked in machines else machines
            wanted.asked, wanted.at = (after or machines or [wanted.asked])[0], steady()
            whom.setdefault(wanted.asked, []).append(name)
        for machine, asked in whom.items():
            self._ask(machine, asked)

    def _no_longer(self, waiting: Iterable[_Held], name: bytes, teller: str) -> None:
        for held in waiting:
            held.lacking.discard(name)
            held.teller = teller
            if not held.lacking:
                self._ready.append(held.machine)
                self._changed.set()

    def _give_up(self, held: _Held) -> None:
        for name in held.lacking:
            wanted = self._wanted.get(name)
            if wanted is not None and wanted.held == [held]:
                del self._wanted[name]
        held.lacking.clear()
        held.since -= self._settings.hold_s
        self._ready.append(held.machine)
        self._changed.set()

    def _tick(self, late_s: float = 0.0) -> None:
        """Sees to who did not answer; by how much we ourselves are late nobody else is."""
        if late_s:
            for wanted in self._wanted.values():
                wanted.at += late_s
            for queue in self._held.values():
                for held in queue:
                    held.since += late_s
        now = steady()
        for queue in self._held.values():
            if queue and queue[0].lacking and now - queue[0].since >= self._settings.hold_s:
                log.warning(
                    "machine %s: its look lacks %d pieces that no agent sends", queue[0].machine, len(queue[0].lacking)
                )
                self._give_up(queue[0])
        for name, wanted in list(self._wanted.items()):
            wanted.held = [held for held in wanted.held if held.lacking]
            if not wanted.held:
                del self._wanted[name]
        late = [name for name, wanted in self._wanted.items() if now - wanted.at >= self._settings.ask_again_s]
        self._ask_others(late)
