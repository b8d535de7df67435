"""Looks at all processes of a job on this machine, once or several times, and accounts for those that went missing."""

import logging
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from msgspec import structs

from hangdog_agent.capture import native_stacks
from hangdog_agent.capture.library_counters import hear
from hangdog_agent.capture.own_addresses import own_addresses
from hangdog_agent.capture.process_capture import CapturedProcess, Tools, look
from hangdog_agent.capture.roles import Key, Roles, kind
from hangdog_agent.discovery.discover import ProcessRole, RankProcesses
from hangdog_models.owner import UNKNOWN, Owner
from hangdog_models.ranks import Rank
from hangdog_models.stack import TRAINER, Missing, ProcessTrace, Reason
from hangdog_proto.generated import hangdog_pb2 as pb

Sight = tuple[RankProcesses, CapturedProcess]

log = logging.getLogger(__name__)


class CaptureSeries:
    """The looks of one order at one job.

    An `owner` that is not known stands for any. `discover` answers all members of all jobs on this machine now; `known` are those the agent knew when the order came,
    so that a trainer which has ended or been started anew since is reported as such.
    """

    def __init__(
        self,
        job: str,
        discover: Callable[[], Sequence[RankProcesses]],
        tools: Tools,
        known: Sequence[RankProcesses] = (),
        owner: Owner = UNKNOWN,
    ) -> None:
        self._job = job
        self._owner = owner
        self._discover = discover
        self._tools = tools
        self._roles = Roles()
        self._trainers = {
            member.rank: member for member in known if self._is_meant(member) and member.kind is ProcessRole.TRAINER
        }
        self._children: dict[Key, tuple[RankProcesses, str]] = {}

    def look(self) -> tuple[ProcessTrace, ...]:
        """One trace for each process of the job, by rank and role; takes at most the settings' `look_s`, and a moment."""
        until = time.monotonic() + self._tools.settings.look_s
        sights = self._capture(self._here(), until)
        if any(_ended(seen) and member.kind is ProcessRole.TRAINER for member, seen in sights):
            sights = self._look_again(sights, until)
        # a helper program that came and went is no evidence, a Python process that did may be
        sights = [(member, seen) for member, seen in sights if member.process.python or not _ended(seen)]
        roles = self._roles.assign((member, kind(member, seen.threads)) for member, seen in sights)
        traces = [_trace(member, roles[member.process.key], seen) for member, seen in sights]
        traces = [self._note_restart(member, trace) for (member, _), trace in zip(sights, traces, strict=True)]
        traces += self._departed(sights)
        self._remember(sights, roles)
        return tuple(sorted(traces, key=lambda trace: (trace.rank, trace.role != TRAINER, trace.role)))

    def light_sample(self) -> tuple[ProcessTrace, ...]:
        """The same of the trainers alone, each tried once and never stopped: a job that goes on must not notice it."""
        until = time.monotonic() + self._tools.settings.look_s
        tools = replace(self._tools, settings=replace(self._tools.settings, retries=0))
        trainers = [member for member in self._here() if member.kind is ProcessRole.TRAINER]
        sights = _at_once(
            trainers,
            tools,
            lambda member: _with_device(member, look(member.process, tools, until, attach=False), tools),
        )
        traces = [self._note_restart(member, _trace(member, TRAINER, seen)) for member, seen in sights]
        traces += [trace for trace in self._departed(sights) if trace.role == TRAINER]
        self._trainers |= {member.rank: member for member, _ in sights}
        return tuple(sorted(traces, key=lambda trace: trace.rank))

    def native(self, ranks: Collection[int]) -> tuple[ProcessTrace, ...]:
        """The trainers of some ranks with their native frames, or why not; one after the other, at most `native` of them."""
        most = max(1, self._tools.settings.native)
        trainers = [member for member in self._here() if member.kind is ProcessRole.TRAINER and member.rank in ranks][
            :most
        ]
        seen = [_guarded(member, lambda member: native_stacks.look(member.process, self._tools)) for member in trainers]
        return tuple(_trace(member, TRAINER, one) for member, one in zip(trainers, seen, strict=True))

    def hear(self) -> tuple[pb.Statement, ...]:
        """What the libraries of the job's trainers here counted, or why they do not tell; see capture/library_counters.py."""
        trainers = [member for member in self._here() if member.kind is ProcessRole.TRAINER]
        there = {member.rank for member in trainers}
        ended = [member for rank, member in sorted(self._trainers.items()) if rank not in there]
        return hear(trainers, self._tools, ended)

    def addresses(self) -> tuple[str, ...]:
        """Under which addresses the job's trainers here are reached."""
        trainers = [member.process.pid for member in self._here() if member.kind is ProcessRole.TRAINER]
        return own_addresses(self._tools.proc, trainers)

    def _here(self) -> list[RankProcesses]:
        """The job's members now, each rank's children bounded."""
        members: list[RankProcesses] = []
        counts: dict[Rank, int] = {}
        most = 1 + self._tools.settings.children
        for member in self._discover():
            if self._is_meant(member):
                counts[member.rank] = counts.get(member.rank, 0) + 1
                if counts[member.rank] <= most:
                    members.append(member)
        for rank, count in counts.items():
            if count > most:
                log.warning("rank %d has %d processes; only the first %d are captured", rank, count, most)
        return members

    def _is_meant(self, member: RankProcesses) -> bool:
        return member.job == self._job and (not self._owner.known or member.owner == self._owner)

    def _capture(self, members: Sequence[RankProcesses], until: float) -> list[Sight]:
        """All at once, trainers first; every single look is bounded, so that leaving the pool never waits for long."""
        ordered = sorted(members, key=lambda member: member.kind is not ProcessRole.TRAINER)
        return _at_once(ordered, self._tools, lambda member: look(member.process, self._tools, until))

    def _look_again(self, sights: list[Sight], until: float) -> list[Sight]:
        """A trainer ended between discovery and capture: whoever has its rank by now is looked at in its place."""
        ended = {member.rank: member for member, seen in sights if member.kind is ProcessRole.TRAINER and _ended(seen)}
        anew = self._here()
        replaced = {member.rank for member in anew if member.kind is ProcessRole.TRAINER} & ended.keys()
        self._trainers |= ended
        kept = [(member, seen) for member, seen in sights if member.rank not in replaced]
        return kept + self._capture([member for member in anew if member.rank in replaced], until)

    def _note_restart(self, member: RankProcesses, trace: ProcessTrace) -> ProcessTrace:
        before = self._trainers.get(member.rank)
        if member.kind is not ProcessRole.TRAINER or before is None or before.process.key == member.process.key:
            return trace
        words = f"was process {before.process.pid}, is process {member.process.pid} now"
        if trace.missing is not None:
            words += f"; {trace.missing}"
        return structs.replace(trace, missing=Missing(Reason.RESTARTED, words))

    def _departed(self, sights: Sequence[Sight]) -> list[ProcessTrace]:
        """Ranks known before and found nowhere now, and children of a living trainer that ended since the last look."""
        here = {member.process.key for member, _ in sights}
        trainers = {member.rank: member for member, _ in sights if member.kind is ProcessRole.TRAINER}
        gone = [(member, TRAINER) for rank, member in self._trainers.items() if rank not in trainers]
        gone += [
            (member, role)
            for key, (member, role) in self._children.items()
            if key not in here
            and member.process.python
            and member.rank in trainers
            and trainers[member.rank].process.key == self._trainers[member.rank].process.key
        ]
        return [
            ProcessTrace(
                member.rank,
                role,
                member.process.pid,
                missing=Missing(Reason.EXITED, f"process {member.process.pid} has ended"),
            )
            for member, role in gone
        ]

    def _remember(self, sights: Sequence[Sight], roles: dict[Key, str]) -> None:
        self._trainers |= {member.rank: member for member, _ in sights if member.kind is ProcessRole.TRAINER}
        self._children = {
            member.process.key: (member, roles[member.process.key])
            for member, seen in sights
            if member.kind is not ProcessRole.TRAINER and not _ended(seen)
        }


def _at_once(
    members: Sequence[RankProcesses], tools: Tools, taken: Callable[[RankProcesses], CapturedProcess]
) -> list[Sight]:
    if not members:
        return []
    with ThreadPoolExecutor(min(tools.settings.pool(), len(members)), "hangdog-look") as pool:
        seen = list(pool.map(lambda member: _guarded(member, taken), members))
    return list(zip(members, seen, strict=True))


def _guarded(member: RankProcesses, taken: Callable[[RankProcesses], CapturedProcess]) -> CapturedProcess:
    try:
        return taken(member)
    except Exception as error:  # a bug met in reading one process must not cost the evidence of all the others
        log.exception("cannot capture process %d of rank %d", member.process.pid, member.rank)
        return CapturedProcess(
            missing=Missing(Reason.TOOL_FAILED, f"the agent failed: {type(error).__name__}: {error}")
        )


def _with_device(member: RankProcesses, seen: CapturedProcess, tools: Tools) -> CapturedProcess:
    """With what its device was seen to do: over several rounds that shows who comes late to collectives."""
    device = tools.devices.get(member.process.key)
    if device is None or seen.state is None:
        return seen
    return replace(seen, state=structs.replace(seen.state, device=device))


def _ended(seen: CapturedProcess) -> bool:
    return seen.missing is not None and seen.missing.reason is Reason.EXITED


def _trace(member: RankProcesses, role: str, seen: CapturedProcess) -> ProcessTrace:
    return ProcessTrace(member.rank, role, member.process.pid, seen.threads, seen.state, seen.missing)
