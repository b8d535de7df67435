"""Takes the looks at one job of this machine with the agent's own capture, and puts them together as a bundle's content."""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace

from msgspec import structs

from hangdog.capture import native_tools
from hangdog.capture.job_choice import JobChoice
from hangdog.capture.machine_files import MachineFile, machine_files
from hangdog.evidence import write_bundle
from hangdog.evidence.naming import name_of
from hangdog_agent.capture.capture_rounds import CaptureSeries
from hangdog_agent.capture.process_capture import CapturedProcess, Tools
from hangdog_agent.checks.check_paths import CheckPaths
from hangdog_agent.checks.checks_thread import ChecksThread
from hangdog_agent.checks.standard_checks import standard
from hangdog_agent.discovery.discover import Key, ProcessRole, RankProcesses
from hangdog_agent.discovery.watch import Watch
from hangdog_agent.settings import AgentSettings
from hangdog_agent.stalls.progress.sources import ProgressSources
from hangdog_models.counts import counted
from hangdog_models.errors import HangdogError
from hangdog_models.findings import Finding
from hangdog_models.planning.native_depth import deepen
from hangdog_models.ranks import Rank, format_ranks
from hangdog_models.rules.ruleset import packaged
from hangdog_models.snapshot import Round, Snapshot
from hangdog_models.stack import Missing, ProcessTrace
from hangdog_models.topology import Layout
from hangdog_proto.codec import collectives
from hangdog_proto.codec.collectives import StatementKind
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_server.incidents.replay import RecordedCounters, Replayed
from hangdog_server.protocol.jobs import AnnouncedJob, describe

#: What checks of ours found by reading the same as the files of the machine: where a file is there, it speaks for itself.
_SOURCES = {"kernel.log": "kernel log", "nvidia-smi.txt": "NVML"}


@dataclass(frozen=True, slots=True)
class CaptureOrder:
    """What is asked for: so many looks, so many seconds apart; `native`: of all ranks that stand still, behind the last look."""

    looks: int
    every_s: float
    native: bool = False


@dataclass(frozen=True, slots=True)
class JobCapture:
    """What was captured of a job on this machine; `remarks` are for people: what could not be read, and which tools helped."""

    machine: str
    snapshot: Snapshot
    layout: Layout
    counters: tuple[RecordedCounters, ...]
    files: tuple[MachineFile, ...]
    remarks: tuple[str, ...]

    @property
    def readable(self) -> bool:
        """Whether anything was read of a process of the job."""
        return bool(self.counters) or any(trace.threads for one in self.snapshot.rounds for trace in one.traces)

    def content(self) -> Iterator[write_bundle.File]:
        """The files of the bundle, each with its path below the root."""
        yield from write_bundle.files(Replayed(self.snapshot, self.layout, self.counters), self.remarks)
        for file in self.files:
            path = f"machine-{self.machine}/{file.name}"
            # a host that is called like a rank has no folder: all in it would be that rank's
            name = name_of(path) if "/" not in self.machine else None
            plain = name is not None and (name.rank, name.machine) == (None, self.machine)
            if file.text:
                yield path if plain else file.name, file.text.encode("utf-8", "replace")


class LocalCapture:
    """One capture of what was chosen; `say` is given each step as it is done, `clock` Unix seconds."""

    def __init__(
        self,
        machine: str,
        watch: Watch,
        choice: JobChoice,
        tools: Tools,
        settings: AgentSettings,
        clock: Callable[[], float],
        say: Callable[[str], None],
    ) -> None:
        self._machine, self._watch, self._choice = machine, watch, choice
        self._tools = replace(tools, settings=replace(tools.settings, native=max(1, tools.settings.native)))
        self._settings, self._clock, self._say = settings, clock, say
        known = tuple(choice.of(watch.known()))
        self._series = CaptureSeries(choice.job.name, self._members, self._tools, known, choice.job.owner)
        self._progress = ProgressSources(self._tools, settings.stalls)

    def take(self, order: CaptureOrder) -> JobCapture:
        """All looks, and what stands beside them."""
        checks, _ = standard(self._settings.checks, CheckPaths(), self._watch.ranks)
        with (
            closing(self._progress),
            ThreadPoolExecutor(1, "hangdog-files") as beside,
            ChecksThread(checks, self._machine, self._clock) as keeper,
        ):
            reading = beside.submit(machine_files)
            rounds, interval_s, statements = self._look(order)
            files = reading.result()
            findings = [one for one in keeper.findings() if one.source not in _spoken_for(files)]
        snapshot, layout, remarks = self._described(rounds, interval_s, findings)
        if order.native:
            snapshot, helped = self._deepened(snapshot)
            remarks += helped
        counters, lacking = self._counters(statements)
        problems = [file.problem for file in files if file.problem]
        return JobCapture(self._machine, snapshot, layout, counters, files, (*remarks, *lacking, *problems))

    def _members(self) -> list[RankProcesses]:
        return self._choice.of(self._watch.see())

    def _look(self, order: CaptureOrder) -> tuple[list[Round], float | None, tuple[pb.Statement, ...]]:
        """The looks, how far apart they were, and what libraries counted at the last one."""
        rounds: list[Round] = []
        statements: tuple[pb.Statement, ...] = ()
        starts: list[float] = []
        with ThreadPoolExecutor(1, "hangdog-hear") as beside:
            for number in range(order.looks):
                self._wait(starts[-1] + order.every_s if starts else 0.0)
                starts.append(time.monotonic())
                last = number == order.looks - 1
                counting = beside.submit(self._series.hear) if last else None
                rounds.append(Round(number, self._series.look()))
                traces = rounds[-1].traces
                read = counted(sum(bool(trace.threads) for trace in traces), "process", "processes")
                took = time.monotonic() - starts[-1]
                self._say(f"look {number + 1} of {order.looks}: {read} of {len(traces)} read in {took:.1f} s")
                if counting is not None:
                    self._say("asking flight recorders and NCCL RAS")
                    statements = counting.result()
        apart = (starts[-1] - starts[0]) / (len(starts) - 1) if len(starts) > 1 else None
        return list(_from_zero(rounds)), round(apart, 3) if apart is not None else None, statements

    def _wait(self, until: float) -> None:
        """Follows the job's own progress until then, at least once: each look keeps how often it was seen to advance."""
        while True:
            trainers: dict[str, dict[Key, RankProcesses]] = {}
            for member in self._members():
                if member.kind is ProcessRole.TRAINER:
                    trainers.setdefault(member.key, {})[member.process.key] = member
            try:
                self._progress.note(self._tools, self._progress.read(trainers))
            except Exception:  # what a job writes of itself must not cost its stacks
                logging.getLogger(__name__).exception("the job's own progress cannot be followed")
            left = until - time.monotonic()
            if left <= 0:
                return
            self._tools.stop.wait(min(left, self._settings.stalls.beat_s))

    def _described(
        self, rounds: Sequence[Round], interval_s: float | None, findings: Sequence[Finding]
    ) -> tuple[Snapshot, Layout, list[str]]:
        job = self._choice.job
        announced = AnnouncedJob(
            job.name, job.ranks, job.world_size or None, job.topology, job.owner, job.rendezvous, notes=job.notes
        )
        described, layout, notes = describe(
            job.name, "", {self._machine: announced}, {self._machine: self._choice.ranks}
        )
        return Snapshot(described, tuple(rounds), interval_s, findings=tuple(findings)), layout, list(notes)

    def _counters(self, statements: Sequence[pb.Statement]) -> tuple[tuple[RecordedCounters, ...], list[str]]:
        """What libraries counted, and why others gave nothing: ranks with the same reason together."""
        found: list[RecordedCounters] = []
        lacking: dict[str, list[collectives.Statement]] = {}
        remarks = []
        for packed in statements:
            try:
                given = collectives.unpack(packed)
            except HangdogError as error:
                lacking.setdefault(str(error), [])
                continue
            if given.missing is not None and given.kind in (StatementKind.PROGRESS, StatementKind.INSPECTOR):
                remarks.append(f"{given.name} cannot be read: {given.missing.message}")
            elif given.missing is not None:
                lacking.setdefault(given.missing.message, []).append(given)
            else:
                found.append(RecordedCounters(self._machine, given.rank, given.data, given.age_s, given.kind))
        for why, of in lacking.items():
            ranks = sorted(one.rank for one in of if one.rank is not None)
            whose = f"no flight record of {spelled(ranks)}" if ranks else "no report of NCCL RAS"
            remarks.append(f"{whose}: {why}")
        return tuple(found), remarks

    def _deepened(self, snapshot: Snapshot) -> tuple[Snapshot, list[str]]:
        """The last look with native frames of all ranks that stand still, one after the other; and which tools helped."""
        trainers = {one.rank: one for one in self._members() if one.kind is ProcessRole.TRAINER}
        traces: list[ProcessTrace] = []
        helped: dict[str, list[Rank]] = {}
        for rank, member in sorted(trainers.items()):
            for trace in self._series.native([rank]):
                failed = CapturedProcess(trace.threads, trace.state, trace.missing)
                other = native_tools.look(member.process, failed, self._tools)
                if other is not None:
                    tool, threads = other
                    helped.setdefault(f"{tool}, where py-spy failed ({_brief(trace.missing)})", []).append(rank)
                    trace = ProcessTrace(trace.rank, trace.role, trace.pid, threads, trace.state)
                traces.append(trace)
            self._say(f"native stacks: {len(traces)} of {len(trainers)} ranks tried")
        remarks = [f"native stacks of {spelled(ranks)} by {by}" for by, ranks in helped.items()]
        return deepen(snapshot, trainers, traces, packaged()).snapshot, remarks


def _from_zero(rounds: Sequence[Round]) -> Iterator[Round]:
    """The same, with no step counted where only later looks count them: what tells a job's steps is found out by its steps."""
    count = {
        trace.pid
        for each in rounds
        for trace in each.traces
        if trace.state is not None and trace.state.steps is not None
    }
    for each in rounds:
        yield replace(
            each,
            traces=tuple(
                structs.replace(trace, state=structs.replace(trace.state, steps=trace.state.steps or 0))
                if trace.pid in count and trace.state is not None
                else trace
                for trace in each.traces
            ),
        )


def spelled(ranks: Sequence[Rank]) -> str:
    """`rank 3`, `ranks 0-7`."""
    return f"rank{'' if len(ranks) == 1 else 's'} {format_ranks(ranks)}"


def _spoken_for(files: Sequence[MachineFile]) -> set[str]:
    return {_SOURCES[file.name] for file in files if file.text}


def _brief(missing: Missing | None) -> str:
    return missing.message[:120] if missing is not None else ""
