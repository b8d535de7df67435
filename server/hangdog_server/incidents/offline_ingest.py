"""Takes in what machines tell by themselves: standstills while no server was there, crashes, wrong numbers, and what
their checks found.

Judges each once its machines told.

A look is in the store before its agent hears that it need not keep it. What was not judged when the server ended is judged
when it starts again.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hangdog_models.actions.action_history import Body
from hangdog_models.errors import HangdogError, ServerUnreachable, WrongUse
from hangdog_models.findings import Finding
from hangdog_models.incident import CHECKED_WHY, IncidentState
from hangdog_models.ranks import Rank
from hangdog_models.snapshot import Job
from hangdog_models.stack import Missing, Reason
from hangdog_models.verdict import Verdict
from hangdog_proto.codec.piece_cache import PieceCache
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_proto.logs import log_context
from hangdog_server.cluster.job_registry import identity
from hangdog_server.cluster.leadership import Leading
from hangdog_server.cluster.rank_claims import overlap
from hangdog_server.incidents import decode, gather, round_diff
from hangdog_server.incidents.gather import Gathering, RoundPlan
from hangdog_server.incidents.incident_memory import IncidentMemory
from hangdog_server.incidents.incident_run import IncidentServices, new_name
from hangdog_server.incidents.judge import Judge, remembered, triage, without_eviction
from hangdog_server.incidents.resume import ATTEMPTS, KEPT
from hangdog_server.incidents.round_capture import steady
from hangdog_server.protocol.commands import Receipt
from hangdog_server.protocol.jobs import AnnouncedJob
from hangdog_server.settings import ServerSettings
from hangdog_server.store.offline_captures import OfflineCapture, Spooled
from hangdog_server.store.store_errors import StoreFailed
from hangdog_server.telemetry import IncidentStage, Recorded

#: While looks keep coming, the first one is judged after so many times the patience at the latest.
PATIENCES = 10

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _OfflineCase:
    """One standstill as far as it came back: of which machines, and which of them have told all."""

    job: str
    soon: bool = False
    check: bool = False
    answered: set[str] = field(default_factory=set)
    ranks: set[Rank] = field(default_factory=set)
    world: int = 0
    done: set[str] = field(default_factory=set)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def note(self, kept: OfflineCapture) -> None:
        self.answered.add(kept.machine)
        self.ranks.update(kept.local.ranks)
        self.world = max(self.world, kept.local.world_size or 0)
        if kept.last:
            self.done.add(kept.machine)
        self.changed.set()

    def complete(self, running: Mapping[str, AnnouncedJob]) -> bool:
        """Whether every rank there is was told of, by machines that have nothing more to tell; a check tells of its machine."""
        if self.check:
            return True
        if len(self.done) < len(self.answered) or len(self.ranks) < self.world:
            return False
        return bool(self.world) or self.ranks >= {rank for local in running.values() for rank in local.ranks}


class OfflineIngest:
    """The standstills that are coming back; `close` it with the server."""

    def __init__(self, services: IncidentServices, settings: ServerSettings, leading: Leading) -> None:
        self._services = services
        self._leading = leading
        self._settings = settings
        self._spooled = Spooled(services.store)
        self._cases: dict[str, _OfflineCase] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._led: Counter[str] = Counter()
        self._keeping = asyncio.Semaphore(1)  # what living incidents store must not wait behind a whole cluster's looks
        self._judging = asyncio.Semaphore(1)  # a whole cluster's looks are in memory meanwhile

    async def resume(self, name: str) -> None:
        """Goes on with an incident that was kept and not judged when its server ended, unless it is under way here."""
        if name in self._led or name in self._cases:
            return
        incident = await self._services.store.find(name)
        if incident.state is IncidentState.RECORDED:
            for kept in await self._spooled.of(name, packed=False):
                self._note(name, kept, check=incident.why.startswith(CHECKED_WHY))

    async def take(self, machine: str, stated: pb.Spooled) -> Receipt | None:
        """Keeps one message and says so; None when the store failed, so that the agent keeps it."""
        count = self._services.telemetry.count
        try:
            kept = await asyncio.to_thread(decode.recorded, machine, stated, self._settings, self._services.clock())
            called = self._services.fleet.called(machine, kept.local)
            kept = replace(kept, whose=identity(machine, kept.local), local=replace(kept.local, job=called))
            name = new_name()
            async with self._keeping:
                folded = await self._spooled.fold(kept, name, self._settings.near_s, self._services.clock())
        except WrongUse as error:
            log.warning("machine %s: a spooled look is refused: %s", machine, error)
            count(Recorded.REFUSED)
            return Receipt(stated.id, str(error))
        except StoreFailed as error:
            log.error("machine %s: a spooled look is not stored: %s", machine, error)
            count(Recorded.FAILED)
            return None
        count(Recorded.REFUSED if folded.refused else Recorded.AGAIN if folded.again else Recorded.KEPT)
        if folded.incident == name:
            count(IncidentState.RECORDED)
            how = "crashed on" if kept.crash else "logs wrong numbers on" if kept.numbers else "recorded by"
            log.warning("incident %s of job %s: %s %s, %s", name, kept.local.job, how, machine, kept.why)
        if not folded.again and not folded.refused:
            self._note(folded.incident, kept)
        return Receipt(stated.id, folded.refused)

    async def check(self, kept: OfflineCapture, since: float) -> bool:
        """Keeps what checks found of a machine and judges it, unless an incident begun `since` then tells it; raises StoreFailed."""
        name = new_name()
        folded = await self._spooled.fold_check(kept, name, self._settings.near_s, since, self._services.clock())
        if folded is None:
            return False
        if folded.incident == name:
            self._services.telemetry.count(IncidentState.RECORDED)
        log.warning("incident %s: the checks of %s", folded.incident, kept.why)
        self._note(folded.incident, kept, check=True)
        return True

    async def close(self) -> None:
        """Stops waiting; what is not judged by now is judged when a server starts again."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _note(self, name: str, kept: OfflineCapture, check: bool = False) -> None:
        if name not in self._cases:
            self._cases[name] = _OfflineCase(kept.local.job, kept.crash or kept.numbers, check)
            with log_context(
                incident=name, job=kept.local.job, machine=""
            ):  # the task takes it along, of many machines
                task = asyncio.create_task(self._lead(name, self._cases[name]), name=f"returned incident {name}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        self._cases[name].note(kept)

    async def _lead(self, name: str, case: _OfflineCase) -> None:
        """Waits for one standstill's machines, then judges what there is, unless another server leads the job."""
        self._led[name] += 1
        try:
            await self._awaited(name, case)
        finally:
            self._led -= Counter([name])

    async def _awaited(self, name: str, case: _OfflineCase) -> None:
        pause_s = self._settings.crash_s if case.soon else self._settings.returned_s
        fleet, until = self._services.fleet, steady() + PATIENCES * pause_s
        while not case.complete(fleet.asked(case.job)) and steady() < until:
            case.changed.clear()
            try:
                async with asyncio.timeout(pause_s):
                    await case.changed.wait()
            except TimeoutError:
                break
        del self._cases[name]  # what comes from here on has it judged anew
        with self._services.telemetry.incident(name, case.job):
            try:
                ours = await self._leading.leads(case.job)
            except StoreFailed as error:  # it is open in the store: it is taken up once that is back
                log.error("incident %s: not judged yet: %s", name, error)
                return
            if ours:
                await self._judge(name, case)

    async def _judge(self, name: str, case: _OfflineCase) -> None:
        telemetry = self._services.telemetry
        try:
            async with self._judging:
                verdict = await self._verdict(name, case.check)
                with telemetry.stage(IncidentStage.STORING):
                    await self._services.store.judged(
                        name, verdict, self._services.clock(), self._services.fleet.whose(case.job)[1].user
                    )
                    await self._services.store.remember(
                        name, {**(await self._services.store.kept(name))[0], "attempt": 0}
                    )
                telemetry.count(IncidentState.JUDGED)
                telemetry.count(verdict.kind)
        except StoreFailed as error:  # it stays open, too
            log.error("incident %s: not judged yet: %s", name, error)
        except HangdogError as error:
            await self._fail(name, str(error))
        except Exception as error:  # a bug of ours must not leave an incident that is judged at every start
            log.exception("incident %s failed", name)
            await self._fail(name, f"{type(error).__name__}: {error}")
        else:
            log.info("incident %s of job %s: %s", name, case.job, verdict.kind)
            if name in self._cases:  # a look came while the others were judged
                await self._services.store.move(name, IncidentState.RECORDED, self._services.clock())
            self._services.judged.set()  # what follows from it is done at once

    async def _verdict(self, name: str, check: bool) -> Verdict:
        fleet, held = self._services.fleet, await self._spooled.of(name)
        job, attempt = held[0].local.job, await self._attempt(name)
        reported = {kept.machine: kept.local for kept in held}
        there = fleet.asked(job)
        # nobody knows who announced a rank first while no server was there: who has it now is believed, and nothing acts
        claims = overlap(
            {machine: reported[machine] for machine in sorted(reported, key=lambda one: (one not in there, one))}
        )
        conflicts = dict.fromkeys((*claims.conflicts(), *fleet.conflicts(job)))
        reported = {machine: fleet.placed(machine, local) for machine, local in claims.owned().items()}
        running, absent = fleet.asked(job), fleet.absent(job, steady())
        silent = {machine: local for machine, local in (absent | running).items() if machine not in reported}
        why = {
            machine: _silence(machine, held[0], check) if machine in running else fleet.gone(machine, steady())
            for machine in silent
        }
        findings = [finding for machine in silent for finding in fleet.findings(machine, steady())]
        stood_s = _stood_s(held)
        plan = RoundPlan(
            order=name,
            job=Job(job, stalled_s=stood_s or None),
            rounds=max(kept.rounds for kept in held),
            interval_s=held[0].interval_s,
            asked={machine: local.ranks for machine, local in reported.items()},
            absent={machine: local.ranks for machine, local in silent.items()},
            world=claims.world(),
        )
        announced = silent | reported
        bodies = {kept.machine: Body(kept.boot, kept.serial) for kept in held}
        asked = remembered(
            plan, "", announced, why, findings, done=reported, attempt=attempt, bodies=bodies, conflicts=conflicts
        )
        captured = min(kept.began for kept in held) + stood_s
        checked = held[0].machine if check else ""
        await self._services.store.remember(
            name, {**asked, "stood_s": stood_s, "began": captured, **({"checked": checked} if check else {})}
        )
        memory = IncidentMemory(self._services.judge, self._services.store, name, fleet.whose(job)[1].user)
        await memory.recall(self._services.clock())
        with self._services.telemetry.stage(IncidentStage.JUDGING):
            verdict = await asyncio.to_thread(
                _judged, plan, held, why, findings, announced, conflicts, checked, memory.judge
            )
        return without_eviction(verdict, conflicts)

    async def _attempt(self, name: str) -> int:
        """Which attempt at judging an incident this is; raises ServerUnreachable when its server ended in each one before."""
        asked, _ = await self._services.store.kept(name)
        attempt = int(asked.get("attempt", 0)) + 1
        if attempt > ATTEMPTS:
            raise ServerUnreachable(
                f"the server ended {ATTEMPTS} times while it judged this incident", KEPT, code="server-stopped"
            )
        await self._services.store.remember(name, {**asked, "attempt": attempt})
        return attempt

    async def _fail(self, name: str, words: str) -> None:
        self._services.telemetry.count(IncidentState.FAILED)
        try:
            await self._services.store.move(name, IncidentState.FAILED, self._services.clock(), words)
        except StoreFailed as worse:
            log.error("incident %s: its failure is not stored: %s", name, worse)


def _judged(
    plan: RoundPlan,
    held: Sequence[OfflineCapture],
    why: Mapping[str, Missing],
    findings: Sequence[Finding],
    announced: Mapping[str, AnnouncedJob],
    conflicts: Collection[str],
    checked: str,
    judge: Judge,
) -> Verdict:
    gathering = Gathering(plan, 0.0)
    for kept in held:
        capture = pb.Capture.FromString(kept.packed)
        captured = pb.Captured(round=kept.round, capture=capture, last=kept.last, more=kept.more)
        answer = decode.answer(kept.machine, captured, PieceCache())
        gather.take(gathering, answer)
    gathering.done |= plan.asked.keys()
    snapshot = round_diff.explained(gather.conclude(gathering), gather.owners(gathering), why)
    snapshot = round_diff.contradicted(snapshot, conflicts)
    notes = tuple(
        f"{machine} had no room for {count} more of what it recorded"
        for machine, count in sorted(_refused(held).items())
        if count
    )
    account = replace(snapshot.account, notes=(*snapshot.account.notes, *notes))
    snapshot = replace(snapshot, findings=(*snapshot.findings, *findings), account=account, checked=checked)
    return triage(snapshot, "", announced, gather.placement(gathering), judge)


def _stood_s(held: Sequence[OfflineCapture]) -> float:
    """For how long no machine had seen the job move when the last of them looked; 0 where one of them does not say."""
    longest: dict[str, float] = {}
    for kept in held:
        longest[kept.machine] = max(longest.get(kept.machine, 0.0), kept.stood_s)
    return min(longest.values())


def _refused(held: Sequence[OfflineCapture]) -> dict[str, int]:
    found: dict[str, int] = {}
    for kept in held:
        found[kept.machine] = max(found.get(kept.machine, 0), kept.refused)
    return found


def _silence(machine: str, kept: OfflineCapture, check: bool) -> Missing:
    what = "saw no crash there" if kept.crash else "recorded nothing of it while no server was there"
    if kept.numbers:
        what = "logs no wrong numbers"
    if check:
        what = "was not looked at: the checks of another machine asked"
    return Missing(Reason.NO_EVIDENCE, f"{machine} {what}")
