"""The published method hangdog is measured against: ByteRobust's aggregation analysis (SOSP 2025, arXiv 2509.16293).

What the paper says is done as it says: keep the training-related processes, group their stacks by string matching,
call the dominant groups healthy and the rest outliers, find the parallel group the outliers share, evict all of its
machines; for a job that is slow rather than stuck, repeat, flag the parallel group with the most outliers in each round,
and evict the one flagged most often after five rounds. The code was never released. Where the paper is silent, the
choice was made in the method's favour; each such choice is marked below with FAVOUR and its reason.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from hangdog_models.diagnosis.observe.canonicalise import canonicalise
from hangdog_models.ranks import Rank
from hangdog_models.rules.ruleset import packaged
from hangdog_models.snapshot import Round, Snapshot
from hangdog_models.stack import Frame, ProcessTrace, Reason
from hangdog_models.topology import WORLD, Topology

#: Rounds after which a slow job's parallel group is named, and the seconds between them, as published.
ROUNDS, INTERVAL_S = 5, 10.0

#: Processes that do not train and whose stacks are dropped; the paper keeps workers, data loaders and checkpoint writers.
UNRELATED = ("launcher", "compile")

#: FAVOUR: a class this large beside the largest of its stage is dominant too. The paper says dominant *groups*, not how
#: they are told. A half lets two places in which a sound job stands side by side both pass for healthy.
ALSO_DOMINANT = 0.5

#: FAVOUR: a process that is gone or cannot run is its own kind of string: the paper's agent sees it, py-spy prints its
#: failure instead of a stack. A capture that merely failed (tool, rights, time) is left out, or every noise were a fault.
TELLING = (Reason.STOPPED, Reason.UNINTERRUPTIBLE, Reason.ZOMBIE, Reason.EXITED, Reason.RESTARTED)

#: FAVOUR: so does a process that the kernel says is stopped, traced, a zombie or dead, whatever was read of it.
HALTED = ("T", "t", "Z", "X")

#: FAVOUR: a machine that gives no stack at all is an outlier, because the paper's controller misses its heartbeat; but
#: not where so large a share of the machines gives none that the collector must have failed.
SILENT_AT_MOST = 0.25

#: What a stack reads as when it is compared, and who writes it so.
Written = tuple[str, ...]
Writer = Callable[[tuple[Frame, ...]], Written]


@dataclass(frozen=True, slots=True)
class PeerAnswer:
    """Whom the method evicts: `machines` of the group along `dim` that `outliers` share; nobody when they share none."""

    outliers: tuple[Rank, ...] = ()
    dim: str | None = None
    machines: tuple[str, ...] = ()


#: A fault domain by its dimension and its first rank: dimensions partition the ranks, so two of a kind never share it.
_Domain = tuple[str, Rank]


def aggregate(snapshot: Snapshot, topology: Topology, write: Writer | None = None) -> PeerAnswer:
    """The method's answer to one snapshot: by votes when the job was watched long enough and moves, else by one look.

    The published analysis is told by monitors whether the job is stuck or slow. FAVOUR: here the rounds tell it, and
    five rounds in which most processes stand are never put to the vote. `write` says how stacks are written down for
    the comparison: as published, unless given.
    """
    write = write or written
    rounds = snapshot.rounds
    if not rounds:
        return PeerAnswer()
    if len(rounds) >= ROUNDS and _moves(rounds, write):
        return _vote(rounds[-ROUNDS:], topology, write)
    return _shared(_outliers(rounds[-1], topology, write), topology)


def cleaned(frames: tuple[Frame, ...]) -> Written:
    """The string of a stack with what hangdog drops left out: what the peer would be worth with hangdog's cleaning."""
    return (canonicalise(frames, packaged()).digest,)


def written(frames: tuple[Frame, ...]) -> Written:
    """The string of a stack. FAVOUR: without line numbers, for one place shows several of them in one sound job.

    FAVOUR: Python frames only, as py-spy prints by default; native frames differ by capture, not by place. They are
    read only where a stack has no other. Addresses are not part of a string: they differ between processes.
    """
    shown = [frame for frame in frames if not frame.native] or frames
    return tuple(f"{frame.function} ({frame.file})" for frame in shown)


def _strings(traces: Iterable[ProcessTrace], write: Writer) -> Iterator[tuple[Rank, str, Written]]:
    """Rank, role and string of every process that counts.

    FAVOUR: the main thread only; helper threads come and go and would split sound ranks. Equal stacks are written once.
    """
    known: dict[tuple[Frame, ...], Written] = {}
    for trace in traces:
        if trace.role.startswith(UNRELATED):
            continue
        threads = [thread for thread in trace.threads if thread.frames]
        main = next((thread for thread in threads if thread.name == "MainThread"), threads[0] if threads else None)
        if trace.state is not None and trace.state.state in HALTED:
            yield trace.rank, trace.role, (trace.state.state,)
        elif main is not None:
            text = known.get(main.frames)
            if text is None:
                text = known[main.frames] = write(main.frames)
            yield trace.rank, trace.role, text
        elif trace.missing is not None and trace.missing.reason in TELLING:
            yield trace.rank, trace.role, (str(trace.missing.reason),)


def _silent(traces: Sequence[ProcessTrace], topology: Topology) -> set[Rank]:
    """The ranks of machines none of whose processes was read."""
    asked = {topology.machine(trace.rank) for trace in traces}
    heard = {topology.machine(trace.rank) for trace in traces if trace.threads or trace.state}
    silent = {name for name in asked - heard if name is not None}
    if len(silent) > SILENT_AT_MOST * len(asked):
        return set()
    return {rank for name in silent for rank in topology.machines[name]}


def _outliers(round_: Round, topology: Topology, write: Writer) -> tuple[Rank, ...]:
    """The ranks with a process that stands where few of its like do.

    Like processes have one role and one pipeline stage: the paper's evaluation case compares ranks of one stage. FAVOUR:
    equal shares are all dominant, so that a job split in halves convicts nobody by the toss of a coin.
    """
    stages = {rank: at for group in topology.groups.get("pp", ()) for at, rank in enumerate(group)}
    classes: dict[tuple[str, int], dict[Written, list[Rank]]] = {}
    for rank, role, text in _strings(round_.traces, write):
        classes.setdefault((role, stages.get(rank, 0)), {}).setdefault(text, []).append(rank)
    odd = _silent(round_.traces, topology)
    for alike in classes.values():
        largest = max(len(ranks) for ranks in alike.values())
        odd.update(rank for ranks in alike.values() if len(ranks) < ALSO_DOMINANT * largest for rank in ranks)
    return tuple(sorted(odd))


def _domains(topology: Topology, ranks: Iterable[Rank]) -> Iterator[_Domain]:
    """The fault domains these ranks belong to, once for each rank in it.

    FAVOUR: a machine is a domain too. The paper's tensor-parallel group fills a machine, so outliers on one machine share
    one; a job without tensor parallelism would otherwise lose a wider group for them. FAVOUR: every dimension of the
    topology counts, also those the paper does not name (expert, context), because the smallest shared one is taken.
    """
    dims = [dim for dim in topology.dims if dim != WORLD]
    for rank in ranks:
        machine = topology.machine(rank)
        if machine is not None:
            yield "machine", topology.machines[machine][0]
        for dim in dims:
            group = topology.group(dim, rank)
            if group is not None:
                yield dim, group[0]


def _machines(topology: Topology, domain: _Domain) -> tuple[str, ...]:
    """The machines of a domain; empty when it is the whole job, which nobody can evict."""
    dim, first = domain
    members = (first,) if dim == "machine" else topology.group(dim, first) or ()
    names = tuple(dict.fromkeys(name for rank in members if (name := topology.machine(rank)) is not None))
    return names if len(names) < len(topology.machines) else ()


def _shared(outliers: tuple[Rank, ...], topology: Topology) -> PeerAnswer:
    """The answer for a stuck job: the group whose machines hold all outliers.

    FAVOUR: the smallest of them, and nobody when there is none. Machines are compared, not ranks, as in the paper's
    figure, whose pipeline of machines holds several pipelines of ranks.
    """
    first = topology.machine(outliers[0]) if outliers else None
    if first is None:
        return PeerAnswer(outliers)
    guilty = {topology.machine(rank) for rank in outliers}
    near = dict.fromkeys(_domains(topology, topology.machines[first]))
    holding = [(dim, names) for dim, at in near if guilty <= set(names := _machines(topology, (dim, at)))]
    dim, names = min(holding, key=lambda found: len(found[1]), default=(None, ()))
    return PeerAnswer(outliers, dim, names)


def _vote(rounds: Sequence[Round], topology: Topology, write: Writer) -> PeerAnswer:
    """The answer for a slow job: the group most often flagged as the one with the most outliers.

    FAVOUR: among groups with equally many outliers the smallest is flagged; the paper would flag any.
    """
    sizes: dict[_Domain, int] = {}
    flags: Counter[_Domain] = Counter()
    odd: set[Rank] = set()
    for round_ in rounds:
        outliers = _outliers(round_, topology, write)
        odd.update(outliers)
        counts = Counter(_domains(topology, outliers))
        for domain in counts:
            if domain not in sizes:
                sizes[domain] = len(_machines(topology, domain))
        worst = min(
            (domain for domain in counts if sizes[domain]),
            key=lambda domain: (-counts[domain], sizes[domain], domain),
            default=None,
        )
        if worst is not None:
            flags[worst] += 1
    if not flags:
        return PeerAnswer(tuple(sorted(odd)))
    best = min(flags, key=lambda domain: (-flags[domain], sizes[domain], domain))
    return PeerAnswer(tuple(sorted(odd)), best[0], _machines(topology, best))


def _moves(rounds: Sequence[Round], write: Writer) -> bool:
    """Whether most processes were seen in more than one place: one that spins beside a stuck job makes it no slow one."""
    places: dict[tuple[Rank, str], set[Written]] = {}
    for round_ in rounds:
        for rank, role, text in _strings(round_.traces, write):
            places.setdefault((rank, role), set()).add(text)
    return sum(len(seen) > 1 for seen in places.values()) > len(places) / 2
