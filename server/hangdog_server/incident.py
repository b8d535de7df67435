"""Leads one incident from its request to its verdict: capture everywhere at once, gather, judge, remember, answer.

Each state is in the store before its step begins. An incident lives on when whoever asked for it hangs up.
"""

import asyncio
import json
import logging
import math
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from dataclasses import asdict, dataclass, replace

from hangdog_models.errors import HangdogError, OurFault, ServerUnreachable
from hangdog_models.snapshot import Snapshot
from hangdog_models.topology import Topology, build
from hangdog_models.verdict import Verdict, to_json
from hangdog_server import gather
from hangdog_server.fleet import Fleet, Order
from hangdog_server.gather import Answer, Gathering, Plan, Waiting
from hangdog_server.jobs import LocalJob, Placement, describe
from hangdog_server.store import Incident, RawCapture, State, Store, StoreFailed

Judge = Callable[[Snapshot, Topology], Verdict]

#: Seconds between two lines about the same counting-up: 2,000 machines must not make 2,000 lines.
PACE_S = 0.5
#: Names one line holds before it says how many more there are.
NAMED = 8

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Request:
    """What somebody asks for; 0 and empty stand for the server's own choice."""

    job: str = ""
    rounds: int = 0
    interval_s: float = 0.0
    job_toml: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """One line of an incident's progress; `verdict` (JSON) stands in the last one."""

    incident: str
    state: State
    text: str
    verdict: str = ""


@dataclass(frozen=True, slots=True)
class Means:
    """What incidents are led with. `clock` gives Unix seconds; deadlines run on the event loop's own, steady clock."""

    fleet: Fleet
    store: Store
    judge: Judge
    clock: Callable[[], float]


class Inquiry:
    """A running incident: `lead` it once, `follow` it as often as people ask."""

    def __init__(self, plan: Plan, request: Request, announced: Mapping[str, LocalJob], means: Means) -> None:
        self.name = plan.order
        self.began = means.clock()
        self._request = request
        self._announced = announced
        self._means = means
        self._gathering = Gathering(plan, steady())
        self._steps: list[Step] = []
        self._raw: list[RawCapture] = []
        self._news = asyncio.Event()
        self._wake = asyncio.Event()
        self._failure: HangdogError | None = None
        self._over = False

    async def follow(self) -> AsyncIterator[Step]:
        """All steps from the first to the last, as they are said; raises what the incident failed of."""
        told = 0
        while not (self._over and told == len(self._steps)):
            news = self._news
            for step in self._steps[told:]:
                told += 1
                yield step
            if news is self._news and not self._over:
                await news.wait()
        if self._failure is not None:
            raise self._failure

    def answer(self, answer: Answer, packed: bytes) -> str:
        """Takes an agent's answer in; the reason why it is refused, empty when it is taken."""
        refused = gather.take(self._gathering, answer)
        if not refused:
            self._raw.append(RawCapture(answer.machine, answer.round, packed))
            self._wake.set()
        return refused

    def lost(self, machine: str) -> None:
        """An agent's stream ended."""
        gather.lose(self._gathering, machine, steady())
        self._wake.set()

    def joined(self, machine: str) -> None:
        """An agent has a new stream: what it was asked on the old one is asked again."""
        if gather.rejoin(self._gathering, machine):
            self._order(machine)
        self._wake.set()

    async def lead(self) -> None:
        """Leads the incident to its end; whatever goes wrong is said and remembered, and ends here."""
        try:
            await self._through()
        except HangdogError as error:
            await self._fail(error)
        except asyncio.CancelledError:
            await self._fail(ServerUnreachable("the server was stopped before there was a verdict"))
        except Exception as error:  # a bug of ours must not leave an incident that looks as if it were still running
            log.exception("incident %s failed", self.name)
            what = f"incident {self.name} failed: {type(error).__name__}: {error}"
            await self._fail(OurFault(what, "this is a bug in hangdog; the server's log says more"))
        finally:
            self._over = True
            self._tell()

    async def _through(self) -> None:
        means, plan = self._means, self._gathering.plan
        incident = Incident(self.name, plan.job.id, self.began, self._request.why)
        await means.store.begin(incident, self._asked())
        self._say(State.SUSPECTED, f"incident {self.name} of job {plan.job.id}")
        await means.store.move(self.name, State.CAPTURING, means.clock())
        self._gathering.began = steady()
        for machine in plan.asked:
            self._order(machine)
        gone = f", {named(plan.absent)} not connected" if plan.absent else ""
        self._say(State.CAPTURING, f"asked {_count(plan.asked, 'machine')}{gone}")
        snapshot = await self._gathered()
        ranks = {trace.rank for round_ in snapshot.rounds for trace in round_.traces}
        self._say(State.CAPTURING, f"judging {_count(ranks, 'rank')}")
        placed = gather.placement(self._gathering)
        verdict = await asyncio.to_thread(
            triage, snapshot, self._request.job_toml, self._announced, placed, means.judge
        )
        unstored = await self._remember(verdict)
        self._say(State.JUDGED, f"{verdict.kind}{unstored}", json.dumps(to_json(verdict)))
        log.info("incident %s of job %s: %s", self.name, plan.job.id, verdict.kind)

    async def _gathered(self) -> Snapshot:
        """Waits for the answers, keeping each and saying how many there are."""
        gathering, said, said_at = self._gathering, "", steady()
        while isinstance(state := gather.ready(gathering, steady()), Waiting):
            await self._keep()
            now = steady()
            if state.because != said and now - said_at >= PACE_S:
                self._say(State.CAPTURING, state.because)
                said, said_at = state.because, now
            pause = min(state.until - now, PACE_S if state.because != said else math.inf)
            try:
                async with asyncio.timeout(max(pause, 0)):
                    await self._wake.wait()
            except TimeoutError:
                continue
            self._wake.clear()
        await self._keep()
        asked, done = gathering.plan.asked, gathering.done
        silent = [machine for machine in asked if machine not in done]
        rest = f", {named(silent)} did not" if silent else ""
        self._say(State.CAPTURING, f"{len(done)} of {_count(asked, 'machine')} answered{rest}")
        return state

    def _order(self, machine: str) -> None:
        plan = self._gathering.plan
        if not self._means.fleet.send(machine, Order(self.name, plan.job.id, plan.rounds, plan.interval_s)):
            gather.lose(self._gathering, machine, steady())

    async def _keep(self) -> None:
        captures, self._raw = self._raw, []
        if captures:
            await self._means.store.keep(self.name, captures)

    async def _remember(self, verdict: Verdict) -> str:
        """Stores a verdict; a disk that fails now must not keep it from whoever waits for it, so it is only said."""
        try:
            await self._means.store.judged(self.name, verdict, self._means.clock())
        except StoreFailed as error:
            log.error("incident %s: verdict not stored: %s", self.name, error)
            return f" (not stored: {error})"
        return ""

    async def _fail(self, error: HangdogError) -> None:
        self._failure = error
        try:
            await self._means.store.move(self.name, State.FAILED, self._means.clock(), str(error))
        except StoreFailed as worse:
            log.error("incident %s: that it failed is not stored: %s", self.name, worse)
        self._say(State.FAILED, str(error))

    def _say(self, state: State, text: str, verdict: str = "") -> None:
        self._steps.append(Step(self.name, state, text, verdict))
        self._tell()

    def _tell(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    def _asked(self) -> dict[str, object]:
        """All it takes, beside the captures, to judge the incident again, as JSON."""
        plan = self._gathering.plan
        return {
            "rounds": plan.rounds,
            "interval_s": plan.interval_s,
            "job_toml": self._request.job_toml,
            "asked": {machine: asdict(self._announced[machine]) for machine in plan.asked},
            "absent": {machine: asdict(self._announced[machine]) for machine in plan.absent},
        }


def triage(
    snapshot: Snapshot, job_toml: str, announced: Mapping[str, LocalJob], placed: Placement, judge: Judge
) -> Verdict:
    """Judges what was gathered, in the layout that people declared or agents announced."""
    job, layout, odd = describe(snapshot.job.id, job_toml, announced, placed)
    topology, unfit = build(layout, snapshot.highest_rank())
    account = replace(snapshot.account, notes=(*snapshot.account.notes, *odd, *unfit))
    return judge(replace(snapshot, job=job, account=account), topology)


def steady() -> float:
    """Now, on the event loop's clock."""
    return asyncio.get_running_loop().time()


def named(names: Collection[str]) -> str:
    """Names in order, the last ones only counted when there are many."""
    listed = sorted(names)
    more = f" and {len(listed) - NAMED} more" if len(listed) > NAMED else ""
    return ", ".join(listed[:NAMED]) + more


def _count(things: Collection[object], noun: str) -> str:
    return f"{len(things)} {noun}{'' if len(things) == 1 else 's'}"
