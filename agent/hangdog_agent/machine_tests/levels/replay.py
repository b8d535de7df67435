"""Level 5, replay: the job's own command runs again in a group of machines, and each process is done, crashes or hangs."""

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass

from hangdog_agent.machine_tests.group import Group
from hangdog_agent.machine_tests.level import LevelOutcome, LevelResult, MachineConviction, PartKind, contained
from hangdog_agent.machine_tests.members import Ended, GroupMember, MemberEnd
from hangdog_agent.machine_tests.run_members import run
from hangdog_agent.machine_tests.settings import LevelSettings
from hangdog_agent.machine_tests.torch_engine import Probe, cleaned

#: Where the processes of one machine meet when no group was given.
_ALONE = "127.0.0.1"


@dataclass(slots=True)
class Replay:
    """The level: `command` as a launcher would start it, once a device, in `folder`; sizes are those of the job.

    Which group fails is all it can tell; which machine, follows from groups in several phases (ByteRobust's dual-phase replay).
    """

    probe: Probe
    settings: LevelSettings
    group: Group
    command: tuple[str, ...]
    processes: int = 1
    folder: str = "/"
    environ: Mapping[str, str] | None = None

    number = 5
    name = "replay"

    @property
    def deadline_s(self) -> float:
        return self.settings.replay_s

    def supported(self) -> str:
        if not self.command:
            return "no command to replay was given"
        return self.group.wrong() if self.group.meet else ""

    def run(self, deadline_s: float, stop: threading.Event) -> tuple[LevelResult, ...]:
        local = self.probe.accelerators or self.processes
        members = [self._member(at, local) for at in range(local)]
        ran = run(members, deadline_s, stop=stop)
        results = [self._judged(one) for one in ran.members]
        return (*results, *contained(5, ran))

    def _judged(self, ended: Ended) -> LevelResult:
        test, seconds = ended.name, ended.seconds
        if ended.well:
            return LevelResult(
                5, test, LevelOutcome.PASS, f"{test} is done after {seconds:.0f} s", repetitions=1, seconds=seconds
            )
        if ended.how in (MemberEnd.NOT_STARTED, MemberEnd.ABANDONED, MemberEnd.WITH_THE_OTHERS):
            return LevelResult(5, test, LevelOutcome.INCONCLUSIVE, ended.words, seconds=seconds)
        how = "hangs" if ended.how is MemberEnd.DEADLINE else "crashes"
        group = self.group.names if self.group.meet else ("this machine",)
        convicted = (MachineConviction(PartKind.GROUP, group),)
        words = f"{how}: {ended.words}"
        return LevelResult(5, test, LevelOutcome.FAIL, words, convicted, ended.last(8), seconds=seconds, repetitions=1)

    def _member(self, at: int, local: int) -> GroupMember:
        rank = self.group.member * local + at
        given = cleaned(os.environ) if self.environ is None else self.environ
        reported = {
            "RANK": str(rank),
            "LOCAL_RANK": str(at),
            "WORLD_SIZE": str(self.group.members * local),
            "LOCAL_WORLD_SIZE": str(local),
            "MASTER_ADDR": self.group.host or _ALONE,
            "MASTER_PORT": self.group.port or "29400",
        }
        return GroupMember(f"rank {rank}", self.command, {**given, **reported}, self.folder, chatty=True)
