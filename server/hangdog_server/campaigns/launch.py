"""Runs one launch: has its machines begin at once, waits for their reports, and for nobody longer than the deadline.

A machine is told the same again whenever its agent comes back: it goes on with what it has begun, or says what it found.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.planning.campaign.level_planner import LevelAnswer
from hangdog_models.reading.hardware.test_report import LIMITS, read_diagnosis
from hangdog_models.reading.printable import printable
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_server.auth.refused_requests import address
from hangdog_server.cluster.fleet import Fleet
from hangdog_server.incidents.round_capture import steady
from hangdog_server.protocol.commands import Abort, Diagnose
from hangdog_server.store.campaigns import StoredCampaign

#: Beyond the deadline, at which an agent ends its tests: killing them, settling the GPUs, and the way here. Seconds.
GRACE_S = 20.0
#: Where somebody meets is a name or an address and a port.
_MEET = 300

Met = Callable[[str], Awaitable[None]]


class LaunchRun:
    """One launch of `level` under way, called `name` over the wire.

    `left_s` of its deadline are left; a machine whose agent is lost has `lost_s` to come back. `met` keeps where members meet.
    `replay` names what level 5 replays, by the word of the machines' own administrator.
    """

    def __init__(
        self,
        name: str,
        kept: StoredCampaign,
        level: int,
        left_s: float,
        fleet: Fleet,
        lost_s: float,
        met: Met,
        replay: str = "",
    ) -> None:
        self.name = name
        self.machines = kept.machines
        self._kept = kept
        self._level = level
        self._left_s = left_s
        self._fleet = fleet
        self._lost_s = lost_s
        self._met = met
        self._replay = replay
        self._meet = kept.meet
        self._answers: dict[str, LevelAnswer] = {}
        self._lost: dict[str, float] = {}
        self._aborted = False
        self._changed = asyncio.Event()

    async def answers(self) -> dict[str, LevelAnswer]:
        """What each machine answered; those whose test others cut short are not named. Empty when it was aborted."""
        until = steady() + self._left_s + GRACE_S
        for machine in self.machines:
            self._order(machine)
        while not self._over():
            patience = [at + self._lost_s for at in self._lost.values()]
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, min([until, *patience]) - steady())):
                    await self._changed.wait()
            self._changed.clear()
            self._give_up(until)
        for machine in self.machines:  # not where this server is stopped: the next one goes on
            if self._aborted or machine not in self._answers or self._answers[machine].silent:
                self._fleet.send(machine, Abort(self.name))
        return {} if self._aborted else dict(self._answers)

    async def take_report(self, machine: str, stated: pb.Diagnosed) -> str:
        """Takes in what a machine says of the launch; the reason why it is refused, empty when it is taken."""
        if machine not in self.machines or machine in self._answers:
            return f"machine {machine} is not asked for launch {self.name}"
        body = stated.WhichOneof("body")
        if body == "meet":
            await self._meets(machine, stated.meet)
        elif body == "refused":
            self._answer(machine, LevelAnswer(silent=f"refused: {printable(stated.refused)}", out=True))
        else:
            self._answer(machine, await asyncio.to_thread(read, stated.report))
        return ""

    def lost(self, machine: str) -> None:
        """An agent's stream ended."""
        if machine in self.machines and machine not in self._answers:
            self._lost.setdefault(machine, steady())
            self._changed.set()

    def joined(self, machine: str) -> None:
        """An agent has a new stream: it is told again."""
        if machine in self.machines and machine not in self._answers:
            self._lost.pop(machine, None)
            self._order(machine)

    def abort(self) -> None:
        """Ends it; what came counts for nothing."""
        self._aborted = True
        self._changed.set()

    def _over(self) -> bool:
        hopeless = len(self.machines) > 1 and any(one.report is None for one in self._answers.values())
        return self._aborted or hopeless or len(self._answers) == len(self.machines)

    def _order(self, machine: str) -> None:
        """Tells a machine to begin; of a group first the one that says where they meet."""
        number = self.machines.index(machine)
        if number and not self._meet:
            return
        others = [found for other in self.machines if other != machine if (found := address(self._fleet.peer(other)))]
        order = Diagnose(
            self.name, (self._level,), self._kept.repetitions, self._left_s, self.machines, number,
            self._meet if number else "", tuple(others), self._replay,
        )  # fmt: skip
        if not self._fleet.send(machine, order):
            self.lost(machine)

    async def _meets(self, machine: str, meet: str) -> None:
        if machine != self.machines[0] or not meet.isprintable() or len(meet) > _MEET or meet == self._meet:
            return
        again = bool(self._meet)
        self._meet = meet
        await self._met(meet)
        if again:  # its agent was started anew: nobody is left where the others wait
            self._answer(machine, LevelAnswer(silent="its agent was started anew in the middle of the test"))
            return
        for other in self.machines[1:]:
            self._order(other)

    def _answer(self, machine: str, answer: LevelAnswer) -> None:
        self._answers[machine] = answer
        self._lost.pop(machine, None)
        self._changed.set()

    def _give_up(self, until: float) -> None:
        now = steady()
        for machine, at in list(self._lost.items()):
            if now >= at + self._lost_s:
                why = "did not answer its diagnostics: its agent is gone"
                self._answer(machine, LevelAnswer(silent=why, out=True))
        if now >= until:
            waits = [machine for machine in self.machines if machine not in self._answers]
            reported = self.machines[:1] if not self._meet and len(self.machines) > 1 else waits
            for machine in reported:
                why = f"did not answer its diagnostics within {self._kept.deadline_s:.0f} s"
                self._answer(machine, LevelAnswer(silent=why))


def read(report: str) -> LevelAnswer:
    """A report, or why it is none; it comes from a machine that may be sick."""
    if len(report) > LIMITS.file_bytes:
        return LevelAnswer(silent=f"its report of {len(report)} characters is longer than {LIMITS.file_bytes}")
    try:
        return LevelAnswer(read_diagnosis(report))
    except UnreadableEvidence as error:
        return LevelAnswer(silent=f"its report cannot be read: {printable(str(error))}")
