"""Obeys a server that has this machine tested: one diagnosis at a time, never beside a job, ended when nobody wants it any more.

A launch is named by the server. One that is asked for again, by a server that was started anew or a line that broke, is
not done again: it is told where it stands, or what it found.
"""

import asyncio
import logging
import math
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from hangdog_agent.discovery.watch import LocalJob
from hangdog_agent.machine_tests.settings import RemoteTestSettings
from hangdog_models.errors import WrongUse
from hangdog_proto.generated import hangdog_pb2 as pb

if TYPE_CHECKING:  # most agents are never asked, and need not hold the ladder in memory
    from hangdog_agent.machine_tests.ordered_tests import Kit, OrderedTest
    from hangdog_agent.machine_tests.rendezvous import Rendezvous
    from hangdog_agent.machine_tests.replays import Replays

log = logging.getLogger(__name__)

#: Reports kept for a server that did not hear them: it asks again for one launch of a machine, and the one before is known.
KEPT = 4
#: Characters of a name from the wire, and machines of one group.
_NAME, _MEMBERS = 253, 256
#: With less time than this no level begins.
_LEAST_S = 5.0

Say = Callable[[pb.FromAgent], Awaitable[None]]
Jobs = Callable[[], Awaitable[Sequence[LocalJob]]]


class _Run:
    """The launch that is under way."""

    def __init__(self, launch: str) -> None:
        self.launch = launch
        self.stop = threading.Event()
        self.reason = ""
        self.meet = ""


class RemoteTests:
    """The diagnoses of this machine; `jobs` looks which jobs run here, `kit` makes what tests with.

    `replays` are the commands that may be replayed here, by the names that a server may say.
    """

    def __init__(
        self, settings: RemoteTestSettings, jobs: Jobs, kit: "Callable[[], Kit]", replays: "Replays | None" = None
    ) -> None:
        self._settings = settings
        self._jobs = jobs
        self._kit = kit
        self._replays = replays or {}
        self._run: _Run | None = None
        self._task: asyncio.Task[None] | None = None
        self._kept: dict[str, pb.Diagnosed] = {}
        self._say: Say | None = None
        self._lonely: asyncio.TimerHandle | None = None
        self._threads = ThreadPoolExecutor(1, "hangdog-diagnose")

    @property
    def replays(self) -> tuple[str, ...]:
        """The names of what may be replayed here: a server chooses by these, and is told nothing else of it."""
        return tuple(self._replays)

    @property
    def allowed(self) -> bool:
        """Whether a server may order tests here: of one that may not, another agent is awaited."""
        return bool(self._settings.diagnose)

    def connected(self, say: Say) -> None:
        """There is a server; `say` tells it something."""
        self._say = say
        if self._lonely is not None:
            self._lonely.cancel()
            self._lonely = None

    def lost(self) -> None:
        """The line broke: a server that is not back soon wants nothing any more."""
        self._say = None
        if self._run is not None and self._lonely is None:
            patience_s = self._settings.diagnose_abandon_s
            why = f"no server was there for {patience_s:g} s"
            self._lonely = asyncio.get_running_loop().call_later(patience_s, self._stop, why)

    def noticed(self, jobs: Sequence[LocalJob]) -> None:
        """A job runs here: nothing is tested beside it."""
        if jobs:
            self._stop(f"job {jobs[0].name} began here")

    async def take(self, order: pb.Diagnose, server: str) -> None:
        """Begins what is ordered, or tells why not, or where it stands; `server` is where we reach the one that orders."""
        run = self._run
        if (kept := self._kept.get(order.launch)) is not None:
            await self._tell(kept)
        elif run is not None and run.launch == order.launch:
            if run.meet:
                await self._tell(pb.Diagnosed(launch=run.launch, meet=run.meet))
        elif run is not None and not run.stop.is_set():
            await self._refuse(order.launch, f"launch {run.launch} is being tested here")
        else:  # what is ended takes some seconds to end: the next one begins behind it
            self._run = run = _Run(order.launch[:_NAME])
            self._task = asyncio.ensure_future(self._through(run, order, server, self._task))

    def abort(self, launch: str) -> None:
        """Ends a launch, should it be under way."""
        if self._run is not None and self._run.launch == launch:
            self._stop("the server aborted it")

    async def close(self) -> None:
        """Ends what is under way, with all it started."""
        self._stop("the agent is stopped")
        if self._lonely is not None:
            self._lonely.cancel()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)
        self._threads.shutdown(wait=True)

    def _stop(self, because: str) -> None:
        run = self._run
        if run is not None and not run.stop.is_set():
            log.warning("launch %s is stopped: %s", run.launch, because)
            run.reason = because
            run.stop.set()

    async def _through(
        self, run: _Run, order: pb.Diagnose, server: str, before: asyncio.Task[None] | None = None
    ) -> None:
        if before is not None:
            await asyncio.wait((before,))
        try:
            reported = await self._tested(run, order, server)
        except WrongUse as wrong:
            run.reason = ""  # whatever happened meanwhile: nothing had begun
            reported = pb.Diagnosed(launch=run.launch, refused=str(wrong))
        except Exception as error:  # a bug of ours is no reason to be silent
            log.exception("launch %s failed", run.launch)
            reported = pb.Diagnosed(
                launch=run.launch, refused=f"this is a bug in hangdog: {type(error).__name__}: {error}"
            )
        if self._run is run:
            self._run = None
        if run.reason:  # what was cut short is no finding of this machine's
            reported = pb.Diagnosed(launch=run.launch, refused=run.reason)
        self._kept[run.launch] = reported
        while len(self._kept) > KEPT:
            del self._kept[next(iter(self._kept))]
        await self._tell(reported)

    async def _tested(self, run: _Run, order: pb.Diagnose, server: str) -> pb.Diagnosed:
        from hangdog_agent.machine_tests.rendezvous import Rendezvous

        if run.stop.is_set():  # while it waited for the one before
            raise WrongUse(run.reason, code="test-ended-early")
        asked = wanted(order, self._settings, self._replays)
        if jobs := await self._jobs():
            ranks = len(jobs[0].ranks)
            raise WrongUse(
                f"job {jobs[0].name} runs here ({ranks} {'rank' if ranks == 1 else 'ranks'})", code="machine-in-use"
            )
        meeting: Rendezvous | None = None
        if len(asked.members) > 1 and not asked.meet:
            meeting = Rendezvous(order.addresses[:_MEMBERS], server)
        try:
            return await self._begun(run, asked, meeting)
        finally:
            if meeting is not None:
                meeting.release()

    async def _begun(self, run: _Run, asked: "OrderedTest", meeting: "Rendezvous | None") -> pb.Diagnosed:
        from dataclasses import replace

        loop, ready = asyncio.get_running_loop(), threading.Event()
        if meeting is not None:
            asked = replace(asked, meet=meeting.at)
            run.meet = meeting.at
            await self._tell(pb.Diagnosed(launch=run.launch, meet=meeting.at))

        def begin() -> str:
            return self._kit().run(asked, run.stop, ready)

        def let_go() -> None:
            ready.wait()
            if meeting is not None:
                meeting.release()

        log.info("launch %s: levels %s with %d members", run.launch, asked.levels, len(asked.members))
        testing = loop.run_in_executor(self._threads, begin)
        testing.add_done_callback(lambda _: ready.set())
        await asyncio.to_thread(let_go)
        return pb.Diagnosed(launch=run.launch, report=await testing)

    async def _refuse(self, launch: str, why: str) -> None:
        await self._tell(pb.Diagnosed(launch=launch, refused=why))

    async def _tell(self, reported: pb.Diagnosed) -> None:
        if self._say is not None:  # else the server asks again once it is back
            await self._say(pb.FromAgent(diagnosed=reported))


def wanted(order: pb.Diagnose, settings: RemoteTestSettings, replays: "Replays") -> "OrderedTest":
    """What is ordered, as far as it may be; raises WrongUse, which says why it may not."""
    from hangdog_agent.machine_tests.group import Group
    from hangdog_agent.machine_tests.ordered_tests import ORDERED, OrderedTest

    if not settings.diagnose:
        raise WrongUse("this agent accepts no machine tests (diagnose=0)", code="machine-tests-disabled")
    levels = tuple(sorted(set(order.levels)))
    if not levels or not set(levels) <= set(ORDERED):
        raise WrongUse(
            f"a server can request levels {', '.join(map(str, ORDERED))}; it requested {list(order.levels)[:8]}",
            code="unknown-choice",
        )
    command = replays.get(order.replay, ())
    if order.replay and not command:
        raise WrongUse(f"this agent's settings name no replay {order.replay[:_NAME]!r}", code="no-such-replay")
    if not 1 <= len(order.members) <= _MEMBERS or order.member >= len(order.members):
        raise WrongUse(f"a group of {len(order.members)} has no member {order.member}", code="wrong-test-group")
    if order.meet and (wrong := Group(order.meet, order.member, len(order.members)).wrong()):
        raise WrongUse(wrong, code="wrong-test-group")
    if not order.meet and order.member:
        raise WrongUse("only member 0 chooses where the members meet", code="wrong-test-group")
    if not (math.isfinite(order.deadline_s) and order.deadline_s >= _LEAST_S):
        raise WrongUse(f"nothing can be tested within {order.deadline_s:g} s", code="out-of-range")
    members = tuple(name[:_NAME] for name in order.members)
    deadline_s = min(order.deadline_s, settings.diagnose_most_s)
    return OrderedTest(levels, order.repetitions, deadline_s, members, order.member, order.meet, command)
