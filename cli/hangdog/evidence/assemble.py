"""Fits what the files hold together into rounds of process traces."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from hangdog.evidence.content import Failure, Stacks
from hangdog.evidence.naming import Name
from hangdog_models.ranks import Rank
from hangdog_models.reading import failure
from hangdog_models.reading.dumped import DumpedProcess
from hangdog_models.snapshot import Round
from hangdog_models.stack import TRAINER, Missing, ProcessState, ProcessTrace, Reason


@dataclass(frozen=True, slots=True)
class Placed:
    """One file's evidence about processes, with whose it is."""

    name: Name
    content: Stacks | ProcessState | Failure


@dataclass(slots=True)
class Gathered:
    """What is known of one process so far, and which file each part came from."""

    process: tuple[str, DumpedProcess] | None = None
    state: tuple[str, ProcessState] | None = None
    failure: tuple[str, Failure] | None = None


@dataclass(slots=True)
class Assembly:
    """The rounds, oldest first, and what did not fit: per file the reason it was not used, and remarks."""

    rounds: tuple[Round, ...] = ()
    unused: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


Key = tuple[int, Rank, str]


def assemble(found: Iterable[Placed]) -> Assembly:
    """Merges all evidence of the same round, rank and role into one trace; of two of a kind the first path is used.

    Evidence outside any `round-<K>` folder belongs to the first round.
    """
    ordered = sorted(found, key=lambda placed: placed.name.path)
    first = min((placed.name.round for placed in ordered if placed.name.round is not None), default=0)
    assembly = Assembly()
    gathered: dict[Key, Gathered] = {}
    for placed in ordered:
        name = placed.name
        if name.rank is None:
            assembly.unused[name.path] = "no rank in its name: call it rank<N>"
            continue
        at = first if name.round is None else name.round
        for role, part in _parts(name.role, placed.content):
            key = (at, name.rank, role)
            earlier = _put(gathered.setdefault(key, Gathered()), name.path, part)
            if earlier:
                whose = f"rank {name.rank}" + (f" ({role})" if role != TRAINER else "")
                assembly.unused[name.path] = f"{whose} is already described by {earlier}"
    assembly.rounds = _rounds(gathered)
    return assembly


def _parts(
    role: str, content: Stacks | ProcessState | Failure
) -> list[tuple[str, DumpedProcess | ProcessState | Failure]]:
    """The evidence by role: the first process of a file is the one it is named after, the others are its children."""
    if not isinstance(content, Stacks):
        return [(role, content)]
    return [(role if at == 0 else f"child-{at - 1}", process) for at, process in enumerate(content.processes)]


def _put(gathered: Gathered, path: str, part: DumpedProcess | ProcessState | Failure) -> str:
    """Adds a part, or returns the path of the file that already gave it."""
    earlier: tuple[str, object] | None
    if isinstance(part, DumpedProcess):
        earlier, gathered.process = gathered.process, gathered.process or (path, part)
    elif isinstance(part, ProcessState):
        earlier, gathered.state = gathered.state, gathered.state or (path, part)
    else:
        earlier, gathered.failure = gathered.failure, gathered.failure or (path, part)
    return earlier[0] if earlier else ""


def _rounds(gathered: Mapping[Key, Gathered]) -> tuple[Round, ...]:
    traces: dict[int, list[ProcessTrace]] = {}
    for (at, rank, role), parts in sorted(gathered.items(), key=lambda item: item[0]):
        traces.setdefault(at, []).append(_trace(rank, role, parts))
    return tuple(Round(number, tuple(inside)) for number, inside in traces.items())


def _trace(rank: Rank, role: str, parts: Gathered) -> ProcessTrace:
    process = parts.process[1] if parts.process else DumpedProcess(None, ())
    state = parts.state[1] if parts.state else None
    missing = failure.read(parts.failure[1].words, state) if parts.failure else None
    if missing is None and not process.threads:
        missing = failure.refine(Missing(Reason.NO_EVIDENCE, "the bundle holds no stacks of it"), state)
    pid = process.pid if process.pid is not None else state.pid if state else None
    return ProcessTrace(rank, role, pid, process.threads, state, missing)
