"""Leads one incident from its request to its verdict: capture everywhere at once, gather, judge, remember, answer.

Each state is in the store before its step begins. An incident lives on when whoever asked for it hangs up.
"""

import asyncio
import json
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field

from hangdog_models.errors import HangdogError, OurFault, ServerUnreachable
from hangdog_models.verdict import Verdict, to_json
from hangdog_proto.dictionary import Dictionary
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_proto.logs import about
from hangdog_server.archive import Archive
from hangdog_server.capturing import count, named, steady
from hangdog_server.failures import StoreFailed
from hangdog_server.fleet import Fleet
from hangdog_server.gather import Answer, Plan
from hangdog_server.jobs import LocalJob
from hangdog_server.judging import Judge
from hangdog_server.looking import About, Looking
from hangdog_server.settings import Settings
from hangdog_server.store import Incident, State, Store
from hangdog_server.telemetry import SILENT, Origin, Stage, Telemetry

#: Bytes of randomness in an incident's name: 12 hexadecimal digits do not repeat within a million incidents.
NAME_BYTES = 6

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Request:
    """What somebody asks for; 0 and empty stand for the server's own choice."""

    job: str = ""
    rounds: int = 0
    interval_s: float = 0.0
    job_toml: str = ""
    why: str = ""
    light: bool = False
    suspected: bool = False

    def origin(self) -> Origin:
        """Who wants it, as it is timed."""
        return Origin.LIGHT if self.light else Origin.SUSPECTED if self.suspected else Origin.ASKED


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
    dictionary: Dictionary = field(default_factory=Dictionary)
    telemetry: Telemetry = SILENT


class Inquiry:
    """A running incident: `lead` it once, `follow` it as often as people ask."""

    def __init__(
        self, plan: Plan, request: Request, announced: Mapping[str, LocalJob], means: Means, settings: Settings
    ) -> None:
        self.name = plan.order
        self.began = means.clock()
        self._request = request
        self._announced = announced
        self._means = means
        self._plan = plan
        asked = About(plan, announced, request.job_toml, request.light)
        archive = Archive(means.store, means.dictionary, plan.order)
        self._looking = Looking(asked, means.fleet, archive, means.judge, settings, self._progress, means.telemetry)
        self._steps: list[Step] = []
        self._news = asyncio.Event()
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

    def answer(self, order: str, answer: Answer, capture: pb.Capture) -> str:
        """Takes an agent's answer in; the reason why it is refused, empty when it is taken."""
        return self._looking.capturing.answer(order, answer, capture)

    def lost(self, machine: str) -> None:
        """An agent's stream ended."""
        self._looking.capturing.lost(machine)

    def joined(self, machine: str) -> None:
        """An agent has a new stream: what it was asked on the old one is asked again."""
        self._looking.capturing.joined(machine)

    async def lead(self) -> None:
        """Leads the incident to its end; whatever goes wrong is said and remembered, and ends here."""
        job = self._plan.job.id
        with self._means.telemetry.incident(self.name, job), about(incident=self.name, job=job):
            await self._led()

    async def _led(self) -> None:
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
        means, plan, began = self._means, self._plan, steady()
        incident = Incident(self.name, plan.job.id, self.began, self._request.why)
        await means.store.begin(incident, self._looking.remembered())
        means.telemetry.count(State.SUSPECTED)
        self._say(State.SUSPECTED, f"incident {self.name} of job {plan.job.id}")
        await means.store.move(self.name, State.CAPTURING, means.clock())
        means.telemetry.count(State.CAPTURING)
        with means.telemetry.stage(Stage.ASKING):
            self._looking.ask()
        gone = f", {named(plan.absent)} not connected" if plan.absent else ""
        self._say(State.CAPTURING, f"asked {count(plan.asked, 'machine')}{gone}")
        verdict = await self._looking.verdict()
        with means.telemetry.stage(Stage.STORING):
            unstored = await self._remember(verdict)
        means.telemetry.lasted(self._request.origin(), steady() - began)
        self._say(State.JUDGED, f"{verdict.kind}{unstored}", json.dumps(to_json(verdict)))
        log.info("incident %s of job %s: %s", self.name, plan.job.id, verdict.kind)

    async def _remember(self, verdict: Verdict) -> str:
        """Stores a verdict; a disk that fails now must not keep it from whoever waits for it, so it is only said."""
        try:
            await self._means.store.remember(self.name, self._looking.remembered())
            await self._means.store.judged(self.name, verdict, self._means.clock())
            self._means.telemetry.count(State.JUDGED)
            self._means.telemetry.count(verdict.kind)
        except StoreFailed as error:
            log.error("incident %s: verdict not stored: %s", self.name, error)
            return f" (not stored: {error})"
        return ""

    async def _fail(self, error: HangdogError) -> None:
        self._failure = error
        self._means.telemetry.count(State.FAILED)
        try:
            await self._means.store.move(self.name, State.FAILED, self._means.clock(), str(error))
        except StoreFailed as worse:
            log.error("incident %s: that it failed is not stored: %s", self.name, worse)
        self._say(State.FAILED, str(error))

    def _progress(self, text: str) -> None:
        self._say(State.CAPTURING, text)

    def _say(self, state: State, text: str, verdict: str = "") -> None:
        self._steps.append(Step(self.name, state, text, verdict))
        self._tell()

    def _tell(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()


def new_name() -> str:
    """A name that no incident has."""
    return secrets.token_hex(NAME_BYTES)
