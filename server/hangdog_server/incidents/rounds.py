"""Takes the looks of one incident and judges them: the ordinary ones and a closer one, or light ones until they suffice."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from hangdog_models.counts import counted
from hangdog_models.findings import Finding
from hangdog_models.incident import Incident
from hangdog_models.planning.enough_rounds import enough
from hangdog_models.planning.native import deciding, settled
from hangdog_models.planning.native_depth import deepen
from hangdog_models.rules.ruleset import packaged
from hangdog_models.snapshot import Snapshot
from hangdog_models.stack import Missing, Reason
from hangdog_models.verdict import Verdict
from hangdog_server.cluster.fleet import Fleet
from hangdog_server.incidents import gather, round_diff
from hangdog_server.incidents.capture_archive import Archive
from hangdog_server.incidents.gather import FURTHER, Gathering, RoundPlan
from hangdog_server.incidents.judge import Judge, prepared, remembered, triage, without_eviction
from hangdog_server.incidents.round_capture import RoundCapture, steady
from hangdog_server.protocol.commands import CaptureCommand
from hangdog_server.protocol.jobs import AnnouncedJob, Placement
from hangdog_server.settings import ServerSettings
from hangdog_server.telemetry import SILENT, IncidentStage, RequestCount, Telemetry

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class IncidentSubject:
    """What is looked at: who is asked, what they announced, how a person describes the job, and whether lightly.

    `attempt`: how often a server has taken it up that the one before left unfinished; what came before then is kept under
    numbers below `first`, as is what was seen before a further look at the same stall (`again`: the incident so far).
    """

    plan: RoundPlan
    announced: Mapping[str, AnnouncedJob]
    job_toml: str
    light: bool
    attempt: int = 0
    first: int = 0
    again: Incident | None = None

    @property
    def order(self) -> str:
        """What agents are told that this is: late answers to an earlier look at the same stall belong to another order."""
        return f"{self.plan.order}/again-{self.first}" if self.again is not None else self.plan.order


class CaptureRounds:
    """The looks of one incident. `capturing` is the gathering that is under way: answers go there."""

    def __init__(
        self,
        about: IncidentSubject,
        fleet: Fleet,
        archive: Archive,
        judge: Judge,
        settings: ServerSettings,
        say: Callable[[str], None],
        telemetry: Telemetry = SILENT,
    ) -> None:
        self._about = about
        self._fleet = fleet
        self._archive = archive
        self._judge = judge
        self._settings = settings
        self._say = say
        self._telemetry = telemetry
        known = fleet.bodies()
        self._bodies = {one: known[one] for one in (*about.plan.asked, *about.plan.absent) if one in known}
        self._gone: dict[str, Missing] = {}
        self._findings: tuple[Finding, ...] = ()
        self._ended: tuple[frozenset[str], frozenset[str]] = frozenset(), frozenset()
        #: Set where no further light look is wanted.
        self.hurried = asyncio.Event()
        plan = about.plan
        rounds = 1 if about.light else plan.rounds  # light looks are ordered one by one, for nobody knows how many
        self._conflicts = dict.fromkeys(fleet.conflicts(plan.job.id))
        name, owner = fleet.whose(plan.job.id)
        order = CaptureCommand(
            about.order, name, rounds, plan.interval_s, light=about.light, together=fleet.large, owner=owner
        )
        self.capturing = self._capture(order, replace(plan, rounds=rounds))

    def ask(self) -> None:
        """Asks everybody for the first look, or looks; patience begins now."""
        self.capturing.gathering.began = steady()
        self.capturing.ask()
        plan = self.capturing.gathering.plan
        self._telemetry.count(
            RequestCount.LIGHT if self._about.light else RequestCount.FULL, plan.rounds * len(plan.asked)
        )

    def remembered(self) -> dict[str, object]:
        """All it takes, beside the captures, to judge the incident again, as JSON."""
        about, (done, lost) = self._about, self._ended
        return remembered(
            about.plan, about.job_toml, about.announced, self._gone, self._findings, about.light, done, lost,
            about.attempt, about.first, self._bodies, self._contradicted(),
        )  # fmt: skip

    async def verdict(self) -> Verdict:
        """What the looks show, once they are all taken."""
        return await (self._lightly() if self._about.light else self._deeply())

    async def _deeply(self) -> Verdict:
        """All looks, and then a closer one at the ranks whose native stacks decide, where there are any."""
        snapshot = await self._gathered()
        self._judging()
        placed = gather.placement(self.capturing.gathering)
        verdict = await self._judged(snapshot, placed)
        asked = await self._decisive(snapshot, placed, verdict)
        if not asked:
            return verdict
        try:
            return await self._deeper(snapshot, placed, verdict, asked)
        except Exception as error:  # there is a verdict: whatever goes wrong with a closer look must not cost it
            log.exception("incident %s: the closer look failed", self._about.plan.order)
            self._say(f"no closer look: {error}")
            return verdict

    async def _deeper(
        self, snapshot: Snapshot, placed: Placement, verdict: Verdict, asked: Mapping[str, gather.Ranks]
    ) -> Verdict:
        """The verdict with the native stacks that came; without any the one before stands, with the reasons."""
        ranks = tuple(rank for chosen in asked.values() for rank in chosen)
        self._say(f"{verdict.kind} so far: native stacks of {counted(len(ranks), 'rank')} may tell more")
        closer = await self._closer(asked)
        deeper = await asyncio.to_thread(deepen, snapshot, ranks, closer.rounds[0].traces, packaged())
        self._say(f"{len(deeper.own)} of {counted(len(ranks), 'native stack')} came")
        if deeper.own:
            return await self._judged(deeper.snapshot, placed)
        why = deeper.snapshot.account.notes[len(snapshot.account.notes) :]
        return replace(verdict, evidence=replace(verdict.evidence, notes=(*verdict.evidence.notes, *why)))

    async def _decisive(self, snapshot: Snapshot, placed: Placement, verdict: Verdict) -> dict[str, gather.Ranks]:
        """The ranks whose native stacks decide, by machine; only of machines that are still connected."""
        settings = self._settings
        if not settings.native_ranks or settled(verdict):
            return {}

        def chosen() -> dict[str, gather.Ranks]:
            layout = prepared(snapshot, self._about.job_toml, self._about.announced, placed)
            of = {one.rank for one in deciding(*layout, verdict, settings.native_ranks, settings.native_each)}
            return {machine: mine for machine, ranks in placed.items() if (mine := tuple(r for r in ranks if r in of))}

        there = self._fleet.asked(self._about.plan.job.id)
        return {machine: ranks for machine, ranks in (await asyncio.to_thread(chosen)).items() if machine in there}

    async def _closer(self, asked: Mapping[str, gather.Ranks]) -> Snapshot:
        """One look at a few ranks with their native frames; nobody is waited for longer than the settings say."""
        settings, plan = self._settings, self._about.plan
        closer = replace(
            plan, order=f"{self._about.order}/native", rounds=1, asked=asked, absent={},
            patience_s=settings.native_s, counters_s=0.0,
        )  # fmt: skip
        name, owner = self._fleet.whose(plan.job.id)
        native = tuple(rank for chosen in asked.values() for rank in chosen)
        order = CaptureCommand(closer.order, name, 1, 0.0, native=native, owner=owner)
        self.capturing = self._capture(order, closer, behind=plan.rounds + FURTHER)
        self.capturing.ask()
        self._telemetry.count(RequestCount.NATIVE, len(asked))
        return await self._answers()

    async def _lightly(self) -> Verdict:
        """Light looks, one after the other, until they suffice or there were as many as were asked for."""
        plan, settings = self._about.plan, self._settings
        before: Verdict | None = None
        begin = rested = steady()
        for number in range(plan.rounds):
            if number:
                begin = max(begin + plan.interval_s, steady())
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(begin - steady()):
                        await self.hurried.wait()
                self.capturing.again(steady())
                self._telemetry.count(RequestCount.LIGHT, len(plan.asked))
            snapshot = self._completed(await self._answers())
            came = self.capturing.summary()
            self._say(f"light look {number + 1} of at most {plan.rounds}: {came}")
            last = number + 1 == plan.rounds or self.hurried.is_set()
            if (number + 1 < settings.light_from or steady() < rested) and not last:
                continue
            began = steady()
            if last:
                self._judging()
            verdict = await self._judged(snapshot, gather.placement(self.capturing.gathering))
            rested = (
                2 * steady() - began
            )  # no more than half of the time is spent on judging a large job again and again
            if enough(before, verdict):
                self._say(f"{number + 1} looks suffice: twice in a row {verdict.kind}")
                return verdict
            if last:
                break
            before = verdict
        return verdict

    async def _gathered(self) -> Snapshot:
        snapshot = await self._answers()
        self._say(self.capturing.summary())
        return self._completed(snapshot)

    async def _answers(self) -> Snapshot:
        with self._telemetry.stage(IncidentStage.GATHERING):
            return await self.capturing.gathered()

    def _completed(self, snapshot: Snapshot) -> Snapshot:
        """With the reasons why machines are missing, and what was known of those that did not tell it with their last look."""
        self._gone, self._findings = self._reasons(), tuple(self._earlier_findings())
        gathering = self.capturing.gathering
        self._ended = frozenset(gathering.done), frozenset(gathering.lost)
        snapshot = round_diff.explained(snapshot, gather.owners(self.capturing.gathering), self._gone)
        snapshot = round_diff.contradicted(snapshot, self._contradicted())
        return replace(snapshot, findings=(*snapshot.findings, *self._findings))

    def _reasons(self) -> dict[str, Missing]:
        """Why those are missing who are not connected, or are and say nothing; of one lost meanwhile only what excuses it."""
        gathering, fleet = self.capturing.gathering, self._fleet
        absent = gathering.plan.absent
        found = {machine: fleet.gone(machine, steady()) for machine in (*absent, *gathering.lost)}
        found = {name: why for name, why in found.items() if name in absent or why.reason is not Reason.NO_AGENT}
        for machine in gathering.plan.asked.keys() - gathering.done:
            if silent := fleet.mute_s(machine, steady()):
                words = f"the agent of {machine} is connected and has said nothing for {silent:.0f} s"
                found[machine] = Missing(Reason.NO_AGENT, words)
        return found

    def _earlier_findings(self) -> Iterator[Finding]:
        """What the checks of the machines found that did not answer the last look, with which it comes."""
        plan, answers = self.capturing.gathering.plan, self.capturing.gathering.answers
        for machine in sorted({*plan.asked, *plan.absent}):
            if (machine, plan.rounds - 1) not in answers:
                yield from self._fleet.findings(machine, steady())

    def _judging(self) -> None:
        self._say(f"judging {counted(len(gather.owners(self.capturing.gathering)), 'rank')}")

    async def _judged(self, snapshot: Snapshot, placed: Placement) -> Verdict:
        about = self._about
        with self._telemetry.stage(IncidentStage.JUDGING):
            verdict = await asyncio.to_thread(triage, snapshot, about.job_toml, about.announced, placed, self._judge)
        return without_eviction(verdict, self._contradicted())

    def _contradicted(self) -> tuple[str, ...]:
        """What machines contradicted each other about at any time since it began."""
        self._conflicts |= dict.fromkeys(self._fleet.conflicts(self._about.plan.job.id))
        return tuple(self._conflicts)

    def _capture(self, order: CaptureCommand, plan: RoundPlan, behind: int = 0) -> RoundCapture:
        about, gathering = self._about, Gathering(plan, steady())
        kept_from = about.first + behind
        return RoundCapture(order, gathering, self._fleet, self._archive, about.plan.order, self._say, kept_from)
