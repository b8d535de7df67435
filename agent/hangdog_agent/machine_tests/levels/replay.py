"""Level 5, replay: the job's own command runs again in a group of machines, and each process is done, crashes or hangs.

Where a server orders it and names no command that this machine knows, a small GPT is trained in its place: see
programs/group_training.py.
"""

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hangdog_agent.machine_tests.group import Group
from hangdog_agent.machine_tests.level import LevelOutcome, LevelResult, MachineConviction, PartKind, contained
from hangdog_agent.machine_tests.members import Ended, GroupMember, MemberEnd
from hangdog_agent.machine_tests.run_members import run
from hangdog_agent.machine_tests.settings import LevelSettings
from hangdog_agent.machine_tests.torch_engine import Engine, Probe, cleaned

#: Where the processes of one machine meet when no group was given.
_ALONE = "127.0.0.1"


@dataclass(slots=True)
class Replay:
    """The level: `command` as a launcher would start it, once a device, in `folder`; sizes are those of the job.

    With an `engine` a server ordered it: devices must be known, for others of the group count on them, and without a
    command the engine trains the small GPT. Which group fails is all it can tell; which machine, follows from groups in several phases (ByteRobust's dual-phase replay).
    """

    probe: Probe
    settings: LevelSettings
    group: Group
    command: tuple[str, ...]
    processes: int = 1
    folder: str = "/"
    environ: Mapping[str, str] | None = None
    engine: Engine | None = None

    number = 5
    name = "replay"

    @property
    def deadline_s(self) -> float:
        return self.settings.replay_s

    def supported(self) -> str:
        if self.engine is not None and self.probe.why:
            return self.probe.why
        if not self.command and self.engine is None:
            return "no command to replay was given"
        return self.group.wrong() if self.group.meet else ""

    def run(self, deadline_s: float, stop: threading.Event) -> tuple[LevelResult, ...]:
        local = self.probe.accelerators or self.processes
        members = [self._member(at, local, deadline_s) for at in range(local)]
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

    def _member(self, at: int, local: int, deadline_s: float) -> GroupMember:
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
        way = self.group.interface() if self.group.meet else ""
        for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME") if way else ():
            if name not in given:
                reported[name] = way
        if self.command or self.engine is None:
            return GroupMember(f"rank {rank}", self.command, {**given, **reported}, self.folder, chatty=True)
        return self.engine.member(
            "group_training", self._training(at, rank, local, deadline_s), f"rank {rank}", reported
        )

    def _training(self, at: int, rank: int, local: int, deadline_s: float) -> dict[str, Any]:
        """What the program of ours is asked."""
        accelerated, s = bool(self.probe.accelerators), self.settings
        meet = self.group.meet or f"{_ALONE}:29400"
        return {
            "name": f"rank {rank}",
            "device": f"cuda:{at}" if accelerated else "cpu",
            "threads": self.probe.threads(),
            "kinds": ["dense", "moe"],
            "type": "bfloat16" if accelerated else "float32",
            "steps": s.replay_steps,
            "width": s.alignment_width if accelerated else s.alignment_width_cpu,
            "layers": 4,
            "batch": 2,
            "tokens": 512 if accelerated else 32,
            "meet": f"tcp://{meet}",
            "rank": rank,
            "world": self.group.members * local,
            "patience_s": deadline_s,
        }
