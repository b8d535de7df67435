"""Fits what the files hold together: rounds of process traces, counters of each rank, reports and findings."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from hangdog.evidence.content import Failure, StackFile
from hangdog.evidence.counters import counters_of, got_on_ranks, progress_of, ras_reports
from hangdog.evidence.log_findings import findings_of, log_ends
from hangdog.evidence.naming import Name
from hangdog.evidence.placed import Placed
from hangdog_models.collectives import RankCounters, RasReport
from hangdog_models.findings import Finding, LogEnd
from hangdog_models.progress.collective_progress import RankProgress
from hangdog_models.ranks import Rank
from hangdog_models.reading.stacks import capture_failure
from hangdog_models.reading.stacks.dumped_process import DumpedProcess
from hangdog_models.reading.stacks.merge_native import merge_native
from hangdog_models.snapshot import Round
from hangdog_models.stack import TRAINER, Missing, ProcessState, ProcessTrace, Reason
from hangdog_models.topology import Layout
from hangdog_models.training import training_thread

Part = DumpedProcess | ProcessState | Failure


@dataclass(slots=True)
class Gathered:
    """What is known of one process so far, each part with the path it came from."""

    python: tuple[str, DumpedProcess] | None = None
    native: tuple[str, DumpedProcess] | None = None
    state: tuple[str, ProcessState] | None = None
    failure: tuple[str, Failure] | None = None


@dataclass(slots=True)
class Assembly:
    """The rounds, oldest first, the counters by rank, RAS reports from old to new, findings in the order of files.

    And what did not fit: per file why it was not used, and remarks.
    """

    rounds: tuple[Round, ...] = ()
    records: tuple[RankCounters, ...] = ()
    progress: tuple[RankProgress, ...] = ()
    got_on: tuple[Rank, ...] = ()
    stood: tuple[Rank, ...] = ()
    ras: tuple[RasReport, ...] = ()
    findings: tuple[Finding, ...] = ()
    log_ends: tuple[LogEnd, ...] = ()
    unused: dict[str, str] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def assemble(found: Iterable[Placed], layout: Layout) -> Assembly:
    """Merges all evidence of the same round, rank and role into one trace; of two of a kind the first path is used.

    A file that is called after a rank comes before one that only speaks of it.
    Evidence outside any `round-<K>` folder belongs to the first round. What belongs to a process must have its rank.
    """
    ordered = sorted(found, key=lambda placed: (placed.from_text, placed.name.path))
    assembly = Assembly()
    assembly.records = counters_of(ordered, assembly.unused)
    assembly.progress = progress_of(ordered, assembly.unused)
    assembly.got_on, assembly.stood = got_on_ranks(ordered, assembly.unused)
    assembly.ras = ras_reports(ordered)
    assembly.findings = findings_of(ordered, layout)
    assembly.log_ends = log_ends(ordered, layout)
    first = min((placed.name.round for placed in ordered if placed.name.round is not None), default=0)
    gathered: dict[tuple[int, Rank, str], Gathered] = {}
    described: dict[str, str] = {}  # what files of several ranks hold of those that other files describe
    for placed in ordered:
        name = placed.name
        if name.rank is None:
            continue
        at = first if name.round is None else name.round
        for role, kind, part in _parts(placed, assembly):
            inside = gathered.setdefault((at, name.rank, role), Gathered())
            earlier = getattr(inside, kind)
            if earlier is None:
                setattr(inside, kind, (name.path, part))
            else:
                reasons = described if placed.from_text else assembly.unused
                reasons[name.path] = f"{_whose(name.rank, role)} is already described by {earlier[0]}"
    assembly.notes += [f"{path}: {reason}" for path, reason in described.items()]
    traces: dict[int, list[ProcessTrace]] = {}
    for (at, rank, role), parts in sorted(gathered.items(), key=lambda item: item[0]):
        traces.setdefault(at, []).append(_trace(rank, role, parts, assembly))
    assembly.rounds = tuple(Round(number, tuple(inside)) for number, inside in traces.items())
    return assembly


def _parts(placed: Placed, assembly: Assembly) -> Iterable[tuple[str, str, Part]]:
    """The evidence by role and kind: the first process of a file is the one it is named after, others are its children."""
    name, content = placed.name, placed.content
    if isinstance(content, ProcessState):
        yield name.role, "state", content
    elif isinstance(content, Failure):
        yield name.role, "failure", content
    elif isinstance(content, StackFile):
        for kind, native in (("python", False), ("native", True)):  # one gdb prints both kinds of the same processes
            processes = [process for process in content.processes if process.native is native]
            yield from ((role, kind, process) for role, process in _roles(name, processes, assembly))


def _roles(name: Name, processes: Iterable[DumpedProcess], assembly: Assembly) -> Iterable[tuple[str, DumpedProcess]]:
    seen: set[int] = set()
    for process in processes:
        if process.pid is not None and process.pid in seen:
            assembly.notes.append(f"{name.path}: process {process.pid} is in it more than once; the first is used")
            continue
        yield name.role if not seen else f"child-{len(seen) - 1}", process
        seen.add(process.pid if process.pid is not None else -len(seen) - 1)


def _trace(rank: Rank, role: str, parts: Gathered, assembly: Assembly) -> ProcessTrace:
    process = _process(rank, role, parts, assembly)
    state = parts.state[1] if parts.state else None
    missing = capture_failure.read(parts.failure[1].message, state) if parts.failure else None
    if missing is None and training_thread(process.threads, process.pid) is None:
        what = "no stack of its main thread" if process.threads else "no stacks of it"
        missing = capture_failure.refine(Missing(Reason.NO_EVIDENCE, f"the bundle holds {what}"), state)
    pid = process.pid if process.pid is not None else state.pid if state else None
    return ProcessTrace(rank, role, pid, process.threads, state, missing)


def _process(rank: Rank, role: str, parts: Gathered, assembly: Assembly) -> DumpedProcess:
    if parts.python is None or parts.native is None:
        only = parts.python or parts.native
        return only[1] if only else DumpedProcess(None, ())
    both = merge_native(parts.python[1], parts.native[1])
    if both is None:
        path, python = parts.native[0], parts.python[0]
        assembly.ignored.append(path)
        assembly.notes.append(f"{path}: not used, nothing shows that it is of the same process as {python}")
    return both or parts.python[1]


def _whose(rank: Rank, role: str) -> str:
    return f"rank {rank}" if role == TRAINER else f"rank {rank} ({role})"
