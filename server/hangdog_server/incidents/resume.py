"""Takes up an incident that a server's end cut short: judges what came when it is all there, else looks again.

What was seen before the end and what is seen after it are never judged together: a job may have gone on in between, and
then a rank of before would wait for one of after.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from hangdog_models.counts import counted
from hangdog_models.errors import ServerUnreachable
from hangdog_models.incident import Incident
from hangdog_models.owner import same_owner
from hangdog_models.ranks import Rank
from hangdog_models.snapshot import Job
from hangdog_models.stack import Reason
from hangdog_models.topology import build
from hangdog_models.verdict import Verdict
from hangdog_proto.codec.pieces import PIECES
from hangdog_server.cluster.fleet import Fleet
from hangdog_server.incidents.gather import RoundPlan
from hangdog_server.incidents.judge import Judge, without_eviction
from hangdog_server.incidents.replay import StoredRound, announced, replay
from hangdog_server.incidents.round_capture import steady
from hangdog_server.incidents.rounds import IncidentSubject
from hangdog_server.protocol.jobs import AnnouncedJob, sole
from hangdog_server.settings import ServerSettings
from hangdog_server.store.captures import RawCapture

#: How often one incident is taken up: one that ends its server each time (it does not fit into memory, say) must not do
#: so for ever.
ATTEMPTS = 3
#: What somebody can do with one that was given up.
KEPT = "its captures are kept: hangdog bundle, then hangdog triage"
#: Between two looks at who is back. Seconds.
_TICK_S = 0.1


@dataclass(frozen=True, slots=True)
class Cut:
    """An incident that was cut short: what was asked for it, and the captures that came."""

    incident: Incident
    asked: Mapping[str, Any]
    captures: tuple[RawCapture, ...]

    @property
    def attempt(self) -> int:
        """How often it was taken up before."""
        return int(self.asked.get("attempt", 0))

    def unanswered(self) -> dict[str, int]:
        """The machines that had not answered every look, and how many each had."""
        first, rounds = self.asked.get("first", 0), self.asked["rounds"]
        seen = Counter(
            one.machine for one in self.captures if one.machine != PIECES and 0 <= one.round - first < rounds
        )
        return {machine: seen[machine] for machine in self.asked["asked"] if seen[machine] < rounds}


async def await_machines(cut: Cut, fleet: Fleet, settings: ServerSettings) -> bool:
    """Waits until all that were asked are back, or for as long as that may take; whether any machine runs the job."""
    wanted, until = set(cut.asked["asked"]), steady() + settings.returned_s
    while not wanted <= (here := _running(cut, fleet).keys()) and steady() < until:
        await asyncio.sleep(_TICK_S)
    return bool(here)


def fresh(cut: Cut, fleet: Fleet, settings: ServerSettings) -> IncidentSubject:
    """What is asked anew, of whoever runs the job now; who was asked before and is not back is missing."""
    name, job, asked = cut.incident.id, cut.incident.job, cut.asked
    here = _running(cut, fleet)
    taken = {rank for local in here.values() for rank in local.ranks}
    before = {**announced(asked["absent"]), **announced(asked["asked"]), **fleet.absent(job, steady())}
    absent = {
        machine: replace(local, ranks=rest)
        for machine, local in before.items()
        if machine not in here and (rest := _without(local, taken))
    }
    plan = RoundPlan(
        order=name,
        job=Job(job, stalled_s=asked.get("stood_s") or None),
        rounds=asked["rounds"],
        interval_s=asked["interval_s"],
        asked={machine: local.ranks for machine, local in here.items()},
        absent={machine: local.ranks for machine, local in absent.items()},
        patience_s=settings.patience_s,
        rejoin_s=settings.rejoin_s,
        world=sole({local.world_size for local in here.values()}),
    )
    first = 1 + max((one.round for one in cut.captures), default=-1)
    return IncidentSubject(plan, {**absent, **here}, asked["job_toml"], asked["light"], cut.attempt + 1, first)


def _running(cut: Cut, fleet: Fleet) -> dict[str, AnnouncedJob]:
    """The machines that run the job now, unless another owner's job has its name since the server's end."""
    asked = announced(cut.asked["asked"]).values()
    return {
        machine: local
        for machine, local in fleet.asked(cut.incident.job).items()
        if all(same_owner(local.owner, before.owner) for before in asked)
    }


def as_it_stands(cut: Cut) -> dict[str, Any]:
    """What is remembered of it where nobody can be asked again: who had not answered was not given the time to.

    Raises ServerUnreachable when nobody had answered.
    """
    unanswered, asked = cut.unanswered(), cut.asked
    if not any(unanswered.get(machine, True) for machine in asked["asked"]):
        raise ServerUnreachable(
            "the server stopped before any machine answered, and no machine of the job has reconnected",
            "ask again once the job runs: hangdog snapshot",
            code="server-stopped",
        )
    words = "the server ended before {} had answered"
    silent = {
        machine: {"reason": str(Reason.NO_EVIDENCE), "words": words.format(machine)}
        for machine, looks in unanswered.items()
        if not looks
    }
    done = sorted({*asked.get("done", ()), *(machine for machine in asked["asked"] if machine not in silent)})
    return {**asked, "gone": {**asked["gone"], **silent}, "done": done}


def judged(cut: Cut, asked: Mapping[str, Any], judge: Judge) -> Verdict:
    """The verdict upon the captures that are kept."""
    kept = (StoredRound(one.machine, one.round, one.packed) for one in cut.captures)
    replayed = replay(cut.incident.job, asked, kept)
    topology, unfit = build(replayed.layout, replayed.snapshot.highest_rank())
    account = replayed.snapshot.account
    if unanswered := cut.unanswered():
        note = f"the server ended while it captured: {counted(len(unanswered), 'machine')} had not answered every look"
        account = replace(account, notes=(*account.notes, note))
    account = replace(account, notes=(*account.notes, *unfit))
    return without_eviction(judge(replace(replayed.snapshot, account=account), topology), asked.get("conflicts", ()))


def _without(local: AnnouncedJob, taken: set[Rank]) -> tuple[Rank, ...]:
    return tuple(rank for rank in local.ranks if rank not in taken)
