"""One agent's stream, and its machine as people are shown it."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from hangdog_models.errors import HangdogError
from hangdog_models.findings import Finding
from hangdog_server.protocol.commands import Command
from hangdog_server.protocol.jobs import AnnouncedJob

#: Signs of life an agent may miss before another one may take its machine's name.
MISSED = 2.5
#: Orders that may lie in one agent's line; each is one incident, and an agent that reads none of 64 is gone.
LINE = 64


@dataclass(slots=True, eq=False)
class Connection:
    """One agent's stream: `line` holds what it is to be told; None in it ends the stream, `ended` says why if known.

    `pace_s` is how far apart it was told that its signs of life may be; it follows another one when it is `paced`. It has its
    machine tested when told to, if it `diagnoses`; `replays` are the names of what may be replayed there.
    """

    machine: str
    version: str
    peer: str
    last_message: float
    pace_s: float = 0.0
    paced: bool = False
    diagnoses: bool = False
    replays: frozenset[str] = frozenset()
    jobs: Mapping[str, AnnouncedJob] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    leaving: bool = False
    line: asyncio.Queue[Command | None] = field(default_factory=lambda: asyncio.Queue(LINE))
    ended: HangdogError | None = None

    #: Since when its signs of life are expected as often as now.
    since: float = float("-inf")

    def silent_s(self, now: float) -> float:
        """For how long it has said nothing although it should have, in seconds; 0 while it may be silent."""
        silent = now - max(self.last_message, self.since)
        return silent if silent > MISSED * self.pace_s else 0.0

    def end(self, because: HangdogError | None) -> None:
        """Has the stream end next, whatever else lies in its line; the first reason given stands."""
        self.ended = self.ended or because
        while not self.line.empty():
            self.line.get_nowait()
        self.line.put_nowait(None)


@dataclass(frozen=True, slots=True)
class PastConnection:
    """A machine as people are shown it; `last_message` is when it last spoke."""

    machine: str
    version: str
    last_message: float
    jobs: Mapping[str, AnnouncedJob]
    connected: bool
    findings: tuple[Finding, ...] = ()
    stopped: bool = False
