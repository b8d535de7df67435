"""Opens an incident where the checks of a machine convict it, or strike twice: for its job, or for itself where it runs none.

What is not kept when the server ends is told again by the agent, which tells all that holds whenever it connects.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from hangdog_models.actions.action_history import Body
from hangdog_models.findings import Finding
from hangdog_models.incident import RUNS_ON, UNDER_WAY
from hangdog_proto.codec import findings as codec
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_server.cluster.check_strikes import CheckStrikes
from hangdog_server.cluster.job_registry import identity
from hangdog_server.incidents.incident_run import IncidentServices, new_name
from hangdog_server.incidents.offline_ingest import OfflineIngest
from hangdog_server.incidents.round_capture import steady
from hangdog_server.protocol.jobs import AnnouncedJob
from hangdog_server.settings import ServerSettings
from hangdog_server.store.offline_captures import OfflineCapture
from hangdog_server.store.store_errors import StoreFailed

#: Between two looks at what waits. Seconds.
TICK_S = 1.0
#: Kinds of findings of one machine for which incidents are opened in an hour: a sick machine has some, and an agent that
#: makes up more must not fill the store.
PER_HOUR = 20
_HOUR_S = 3600.0
#: What an agent finds when it connects was told if an incident of the last day tells it: nobody saw it begin. Seconds.
_CONNECTED_S = 86400.0

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Pending:
    """What is to be told of one machine: by code, since when it waits, and since when an incident may have told it."""

    at: float
    first: bool
    found: dict[str, list[Finding]] = field(default_factory=dict)


class MachineChecks:
    """What the checks of all machines found that no incident tells yet; `keep` opens those until it is cancelled."""

    def __init__(self, services: IncidentServices, settings: ServerSettings, ingest: OfflineIngest) -> None:
        self._services, self._settings, self._ingest = services, settings, ingest
        self._strikes = CheckStrikes(settings.check_window_s)
        self._pending: dict[str, _Pending] = {}
        self._opened: dict[str, deque[float]] = {}

    def note(self, machine: str, findings: Sequence[Finding], first: bool) -> None:
        """A machine said what its checks found; `first`: for the first time since its agent is connected."""
        now = steady()
        for one in self._strikes.strike(machine, findings, first, now):
            pending = self._pending.setdefault(machine, _Pending(now, first))
            pending.found.setdefault(one.code, []).append(one)

    async def keep(self) -> None:
        """Opens incidents again and again; raises nothing."""
        while True:
            await asyncio.sleep(min(TICK_S, self._settings.check_settle_s))
            now = steady()
            for machine, pending in list(self._pending.items()):
                if now - pending.at < self._settings.check_settle_s:
                    continue
                try:
                    await self._open(machine, pending, now)
                except StoreFailed as error:
                    log.error("machine %s: the findings of its checks are not stored yet: %s", machine, error)
                except Exception:  # a bug met with one machine must not keep all others from being told of
                    log.exception("machine %s: cannot open an incident for the findings of its checks", machine)
                    self._pending.pop(machine, None)

    async def _open(self, machine: str, pending: _Pending, now: float) -> None:
        label, local = self._job(machine)
        if label and await self._looked_at(label):
            return
        since = self._services.clock() - (_CONNECTED_S if pending.first else self._settings.check_again_s)
        for code, found in list(pending.found.items()):
            if self._many(machine, now):
                log.warning(
                    "machine %s: its checks open more than %d incidents in an hour: no more are opened",
                    machine,
                    PER_HOUR,
                )
            elif await self._ingest.check(self._kept(machine, local, label, code, found, now - pending.at), since):
                self._opened[machine].append(now)
            del pending.found[code]
        if not pending.found:
            self._pending.pop(machine, None)

    async def _looked_at(self, job: str) -> bool:
        """Whether a job is looked at just now: its captures bring what the checks found, and then it may be told."""
        latest = await self._services.store.latest(job, 1)
        return any(one.state in UNDER_WAY and not one.why.startswith(RUNS_ON) for one in latest)

    def _job(self, machine: str) -> tuple[str, AnnouncedJob]:
        """The job with most ranks on a machine, and what it is called; neither name nor ranks where none runs."""
        here = sorted(self._services.fleet.jobs_of(machine).items(), key=lambda job: (-len(job[1].ranks), job[0]))
        return here[0] if here else ("", AnnouncedJob("", ()))

    def _many(self, machine: str, now: float) -> bool:
        opened = self._opened.setdefault(machine, deque(maxlen=PER_HOUR))
        return len(opened) == PER_HOUR and now - opened[0] < _HOUR_S

    def _kept(
        self, machine: str, local: AnnouncedJob, label: str, code: str, found: Sequence[Finding], ago_s: float
    ) -> OfflineCapture:
        body = self._services.fleet.bodies().get(machine, Body())
        capture = pb.Capture(findings=codec.pack(found))
        return OfflineCapture(
            machine=machine,
            id=f"check {new_name()}",
            stall=f"check {body.boot}: {code}",
            local=replace(local, job=label),
            began=self._services.clock() - ago_s,
            round=0,
            last=False,  # it may find more of the same fault
            more=False,
            rounds=1,
            interval_s=0.0,
            why=f"{machine}: {code}: {found[0].what}",
            refused=0,
            packed=capture.SerializeToString(),
            boot=body.boot,
            serial=body.serial,
            whose=identity(machine, local),
        )
