"""The devices of a job: each runs its queues in order, and a collective starts when all of its members have reached it."""

from collections.abc import Sequence

from hangdog_models.ranks import Rank
from worlds.timed.engine.clock import Clock
from worlds.timed.engine.work import Message, Work
from worlds.timed.layout import Layout

#: The queue of kernels; each communicator has one more.
COMPUTE = "compute"


class Devices:
    """Starts and ends work. `broken` machines have no network; `frozen` ones do nothing; `slow` ones have a slow network."""

    def __init__(self, clock: Clock, layout: Layout) -> None:
        self._clock = clock
        self._layout = layout
        self._joined: dict[tuple[str, int], dict[Rank, Work]] = {}
        self._messages: dict[Message, Work] = {}
        self.broken: set[str] = set()
        self.frozen: set[str] = set()
        self.slow: dict[str, float] = {}

    def enqueue(self, work: Work, after: Sequence[Work] = ()) -> None:
        """Gives work to a device, behind all of its queue and behind other work."""
        host = work.host
        before = [one for one in after if one.done is None]
        newest = host.newest.get(work.stream)
        if newest is not None and newest.done is None:
            before.append(newest)
        if work.stream == COMPUTE:
            before += [one for one in host.joins if one.done is None]
            host.joins.clear()
        host.newest[work.stream] = work
        work.blockers = len(before)
        for one in before:
            one.then.append(lambda: self._unblock(work))
        if not before:
            self._start(work)

    def agree(self, of: Sequence[Work]) -> bool:
        """Whether members of a collective mean the same one, so that it ends."""
        return len({one.payload for one in of if one.payload is not None}) == 1

    def cut(self, ranks: Sequence[Rank]) -> bool:
        """Whether ranks of several machines cannot reach each other."""
        machines = {self._layout.machine(rank) for rank in ranks}
        return len(machines) > 1 and bool(machines & self.broken)

    def _unblock(self, work: Work) -> None:
        work.blockers -= 1
        if work.blockers == 0 and work.started is None:
            self._start(work)

    def _halted(self, work: Work) -> bool:
        host = work.host
        return host.dead is not None or self._layout.machine(host.rank) in self.frozen

    def _start(self, work: Work) -> None:
        if self._halted(work) or work.host.device_hangs:
            return
        work.started = self._clock.now
        if work.messages:
            self._exchange(work)
        elif work.kernel:
            self._ends(work, work.seconds * work.host.device_slower)
        else:
            self._join(work)

    def _join(self, work: Work) -> None:
        members = self._layout.groups[work.group]
        joined = self._joined.setdefault((work.group, work.number), {})
        joined[work.host.rank] = work
        if len(joined) < len(members):
            return
        del self._joined[work.group, work.number]
        if self.agree(list(joined.values())) and not self.cut(members):
            for one in joined.values():
                self._ends(one, work.seconds * self._slowness(members))

    def _exchange(self, work: Work) -> None:
        work.blockers = len(work.messages)
        for message in work.messages:
            other = self._messages.pop(message, None)
            if other is None:
                self._messages[message] = work
                continue
            pair = message[1:3]
            if self.cut(pair):
                continue
            for one in (other, work):
                one.blockers -= 1
                if one.blockers == 0:
                    self._ends(one, one.seconds * self._slowness(pair))

    def _slowness(self, ranks: Sequence[Rank]) -> float:
        machines = {self._layout.machine(rank) for rank in ranks}
        return max((self.slow.get(one, 1.0) for one in machines), default=1.0) if len(machines) > 1 else 1.0

    def _ends(self, work: Work, seconds: float) -> None:
        self._clock.at(self._clock.now + seconds, lambda: self._finish(work))

    def _finish(self, work: Work) -> None:
        if work.done is not None or self._halted(work) or (work.host.device_hangs and work.kernel):
            return
        work.done = self._clock.now
        then, work.then = work.then, []
        for do in then:
            do()
