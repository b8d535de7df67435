"""What may be tuned in the agent, with the reason of each default."""

import math
import os
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from typing import Any

from hangdog_agent.checks.settings import CheckSettings
from hangdog_agent.diagnose.settings import DiagnoseSettings
from hangdog_models.errors import WrongUse


@dataclass(frozen=True, slots=True)
class CaptureSettings:
    """Bounds of one look at the processes of a job on this machine; every time is in seconds."""

    #: A nonblocking py-spy takes 10 to 100 ms; twenty times that is a tool that hangs.
    nonblocking_s: float = 2.0
    #: A blocking one stops the trainer while it lasts, so its deadline bounds the freeze too.
    blocking_s: float = 5.0
    #: Nonblocking reads race with a running target: 31 of 40 succeed at once under heavy thread churn, nearly all after two more.
    retries: int = 2
    #: The whole look; below the 20 s that a server waits for an answer, so that a slow one still arrives.
    look_s: float = 15.0
    #: A rank's stacks are some 7 KiB of JSON, 274 KiB were the most seen.
    stdout_bytes: int = 8 << 20
    #: Processes read at the same time; None chooses by the cores. A py-spy takes 8 MiB.
    workers: int | None = None
    #: Children looked at of one rank: data loader and compile workers number in the tens.
    children: int = 128
    #: Trainers that one order may have read natively, one after the other; 0 turns it off. Each py-spy takes up to 335 MiB then.
    native: int = 2
    #: A native py-spy holds the trainer while it reads its libraries' symbols: 0.5 s as a rule with libtorch, 0.8 s at most.
    native_s: float = 5.0
    #: The same process is not held again so soon: of a standstill a second native stack tells nothing new.
    native_again_s: float = 60.0
    #: Switches of what is asked of trainers, 0 turns it off: stacks at all; PyTorch's flight recorder by its worker server's
    #: socket, and by its FIFO and dump; NCCL's RAS; the logs of Ray's workers. Native stacks, logs and heartbeats have
    #: settings of their own: native, log_every_s, touch_every_s.
    stacks: int = 1
    recorder_socket: int = 1
    recorder_pipe: int = 1
    ras: int = 1
    ray_logs: int = 1
    #: 1 keeps CAP_SYS_ADMIN, where the agent has it: RAS listens on loopback, in a container on that of its own network.
    ras_networks: int = 0

    def pool(self) -> int:
        """How many processes are read at the same time: twice the cores of this machine, at least 4, at most 32."""
        return self.workers or min(32, max(4, 2 * len(os.sched_getaffinity(0))))


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """How the agent keeps its line to the server; every time is in seconds."""

    #: Back-off before the first reconnection; the real pause is drawn evenly between 0 and the bound (full jitter).
    backoff_first_s: float = 0.5
    #: Largest bound: after a server's restart a whole cluster is back within half a minute, spread out.
    backoff_most_s: float = 30.0
    #: Between two looks at the process table; a scan of some hundred processes takes a few milliseconds.
    scan_s: float = 4.0
    #: Heartbeat until the server's Welcome names another.
    heartbeat_s: float = 5.0
    #: Most looks one order may ask for, whatever a server says.
    rounds: int = 100
    #: Longest pause between two looks of one order, whatever a server says.
    interval_s: float = 60.0
    #: Between two light looks, whatever servers ask for: a py-spy takes 40 ms of a core for each trainer.
    light_s: float = 2.0
    #: Orders waiting or running at once; a server has one incident at a time for each job.
    orders: int = 16
    #: A dead rank of a job with no living rank here is remembered this long.
    forget_s: float = 600.0
    #: Between two writings of the metrics file: as often as Prometheus usually asks node_exporter.
    metrics_s: float = 15.0


@dataclass(frozen=True, slots=True)
class VigilSettings:
    """When the agent suspects a standstill; every time is in seconds."""

    #: Between two readings of the trainers' pulse, 20 µs each.
    beat_s: float = 1.0
    #: A rank has a rhythm after so long of alternating work and waits: imports and joining are no such thing.
    settle_s: float = 10.0
    #: A pulse that stops for so long, or for longer than usual, makes wonder: stacks are glanced at, nobody is told.
    doubt_s: float = 3.0
    #: A rank that stands still for so long is overdue.
    patience_s: float = 5.0
    #: So many times the longest standstill it survived at that place, when that is longer.
    factor: float = 3.0
    #: Before a rank has a rhythm: ten thousand ranks take minutes to join each other.
    start_s: float = 300.0

    #: Between two readings of the trainers' logs, a millisecond for eight of them; 0 reads none.
    log_every_s: float = 1.0
    #: Read of one log at a time, its newest: some tens of lines.
    log_bytes: int = 8192
    #: Between two looks at heartbeat files; 0 looks at none.
    touch_every_s: float = 1.0
    #: Between two questions to NCCL RAS, each of which goes once around all processes; 0 never asks.
    ras_every_s: float = 30.0
    #: Between two readings of the bytes moved: some drivers ask the card's firmware for each counter; 0 reads none.
    traffic_every_s: float = 5.0
    #: Bytes a second, and share of the usual rate, below which traffic is background noise: a fabric has managers and monitors.
    traffic_least: int = 262144
    traffic_share: float = 0.05
    #: Share of its power limit below which a busy GPU spins in a wait: idle is a sixth, training two thirds. 0: not looked at.
    spin_share: float = 0.25
    #: A rank with a lively pulse whose standstill is not sure is borne for so long: it may evaluate, or compute at one place.
    loop_s: float = 60.0


@dataclass(frozen=True, slots=True)
class SpoolSettings:
    """What the agent does by itself while no server is there, and how much it keeps; times are in seconds, sizes in bytes."""

    #: So long no server must have been there: one that is restarted is back sooner, and takes the looks itself.
    away_s: float = 15.0
    #: Looks at one standstill and the pause between their starts: as many as a server takes, which knows why.
    away_rounds: int = 3
    away_interval_s: float = 2.0
    #: All that is kept. A look at 8 ranks is some 100 KiB, flight records of 8 ranks some MiB: that is tens of standstills.
    spool_bytes: int = 32 << 20
    #: Messages kept: one standstill is some ten of them.
    spool_looks: int = 256
    #: Between two messages to a server that is back, on average: thousands of agents come back with it.
    spool_pause_s: float = 1.0
    #: A server that has not said by then that it keeps a message is not asked again on this connection: it may be an old
    #: one that knows no such message.
    receipt_s: float = 60.0


@dataclass(frozen=True, slots=True)
class DiagnosingSettings:
    """How the agent obeys a server that has its machine tested; every time is in seconds."""

    #: 0: it refuses to. No job runs while it does, and no test brings code, so that 1 is the default.
    diagnose: int = 1
    #: Without a server for so long a test is ended: one that is started anew is back within half a minute, and asks for it again.
    diagnose_abandon_s: float = 60.0
    #: No test takes longer, whatever a server says.
    diagnose_most_s: float = 3600.0
    #: Without accelerators, so many processes on the CPU stand for devices.
    diagnose_processes: int = 1


#: How a setting of the levels themselves is named, which are those of `hangdog diagnose`: `diagnose.memory_bytes`.
LEVELS = "diagnose."


@dataclass(frozen=True, slots=True)
class Settings:
    """All of them; their names are unique among all parts but `levels`, whose names begin with LEVELS."""

    capture: CaptureSettings = CaptureSettings()
    link: LinkSettings = LinkSettings()
    vigil: VigilSettings = VigilSettings()
    spool: SpoolSettings = SpoolSettings()
    checks: CheckSettings = field(default_factory=CheckSettings)
    diagnosing: DiagnosingSettings = DiagnosingSettings()
    levels: DiagnoseSettings = field(default_factory=DiagnoseSettings)


def chosen(assignments: Iterable[str]) -> Settings:
    """The settings with each `NAME=VALUE` in the place of its default; raises WrongUse. Values are numbers, 0 or more."""
    settings = Settings()
    parts = {
        (LEVELS if part.name == "levels" else "") + setting.name: (part.name, setting.name)
        for part in fields(settings)
        for setting in fields(getattr(settings, part.name))
    }
    for assignment in assignments:
        name, _, value = assignment.partition("=")
        if name not in parts:
            near = " or ".join(get_close_matches(name, parts))
            raise WrongUse(
                f"{name!r} is no setting", f"{f'is it {near}? ' if near else ''}docs/agent.md has all of them"
            )
        of, own = parts[name]
        part = getattr(settings, of)
        whole = not isinstance(getattr(part, own), float)
        number = _number(value, whole=whole)
        if number is None:
            raise WrongUse(f"{assignment!r} sets no number of 0 or more", f"write it as {name}=NUMBER")
        change: dict[str, Any] = {own: number}
        settings = replace(settings, **{of: replace(part, **change)})
    return settings


def _number(text: str, whole: bool) -> float | None:
    try:
        number = int(text) if whole else float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None
