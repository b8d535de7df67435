"""Adds native stacks that were captured later below the Python stacks of earlier rounds, if both show the same stall.

A native capture is not another round: it would compare with none of the earlier ones. It only shows what the C code
below one Python line does. So it counts for a rank only if that line is where its last round showed it.

If some ranks of a Python call site were captured, all of them count as captured. Else the others would seem to be
elsewhere, and be suspected for it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from msgspec import structs

from hangdog_models.diagnosis.observe.activity import main_thread, read
from hangdog_models.diagnosis.observe.canonicalise import canonicalise
from hangdog_models.ranks import Rank, format_ranks
from hangdog_models.rules.ruleset import RuleSet
from hangdog_models.snapshot import Round, Snapshot
from hangdog_models.stack import TRAINER, Frame, ProcessTrace, Thread

#: Reasons that get a note of their own; the first show what is in the way.
SHOWN = 4

Where = tuple[int, Rank]


@dataclass(frozen=True, slots=True)
class Deepened:
    """The snapshot with native frames: of the ranks `own`, and of those assumed to be `like` them."""

    snapshot: Snapshot
    own: tuple[Rank, ...] = ()
    like: tuple[Rank, ...] = ()


@dataclass(slots=True)
class _DepthPlace:
    """The ranks at one Python call site, each with the last round that shows it there; and the site's native stacks."""

    ranks: dict[Rank, Where] = field(default_factory=dict)
    read: dict[Rank, ProcessTrace] = field(default_factory=dict)


def deepen(snapshot: Snapshot, asked: Iterable[Rank], traces: Iterable[ProcessTrace], rules: RuleSet) -> Deepened:
    """Adds the native stacks of `traces` to the rounds. A note says why stacks of other `asked` ranks were not added."""
    came = {trace.rank: trace for trace in traces if trace.role == TRAINER}
    latest = _latest(snapshot)
    places: dict[str, _DepthPlace] = {}
    for rank, (_, trace) in latest.items():
        digest = canonicalise(_main(trace), rules).digest
        places.setdefault(digest, _DepthPlace()).ranks[rank] = latest[rank][0], rank
    lacking: dict[Rank, str] = {}
    own: dict[Rank, ProcessTrace] = {}
    for rank in sorted(asked):
        seen = latest.get(rank)
        joined = _joined(seen[1] if seen else None, came.get(rank))
        if isinstance(joined, str):
            lacking[rank] = joined
        elif seen is not None:
            own[rank] = joined
            places[canonicalise(_main(seen[1]), rules).digest].read[rank] = joined
    deeper: dict[Where, ProcessTrace] = {}
    like: list[Rank] = []
    for place in (place for place in places.values() if place.read):
        rest = [rank for rank in place.ranks if rank not in place.read]
        tail = _typical(place.read.values(), rules)
        if rest and tail is None:
            lacking |= dict.fromkeys(place.read, "those read at their place differ, and not all were")
            continue
        deeper |= {place.ranks[rank]: trace for rank, trace in place.read.items()}
        deeper |= {place.ranks[rank]: _extended(latest[rank][1], tail or ()) for rank in rest}
        like += rest
    known = tuple(rank for rank in own if rank not in lacking)
    if not known:
        return Deepened(_noted(snapshot, _notes((), (), lacking)))
    rounds = tuple(
        Round(number.number, tuple(_replaced(trace, deeper.get((at, trace.rank))) for trace in number.traces))
        for at, number in enumerate(snapshot.rounds)
    )
    notes = _notes(known, tuple(sorted(like)), lacking)
    return Deepened(_noted(replace(snapshot, rounds=rounds), notes), known, tuple(sorted(like)))


def _latest(snapshot: Snapshot) -> dict[Rank, tuple[int, ProcessTrace]]:
    """The last round with a rank's stack, and its trace: a diagnosis uses this one."""
    found: dict[Rank, tuple[int, ProcessTrace]] = {}
    for at, round_ in enumerate(snapshot.rounds):
        for trace in round_.traces:
            if trace.role == TRAINER and _main(trace):
                found[trace.rank] = at, trace
    return found


def _replaced(trace: ProcessTrace, deeper: ProcessTrace | None) -> ProcessTrace:
    return deeper if deeper is not None and trace.role == TRAINER else trace


def _joined(last: ProcessTrace | None, native: ProcessTrace | None) -> ProcessTrace | str:
    """The last round's trace, with native frames in every thread that is where it was; else the reason against it."""
    if native is None:
        return "no answer in time"
    if not any(frame.native for thread in native.threads for frame in thread.frames):
        return str(native.missing) if native.missing is not None else "its agent took Python frames only"
    if last is None or last.pid != native.pid:
        return "another process by then"
    main = main_thread(last)
    if main is None or not _same(main, native.threads):
        return "it had moved on by then"
    threads = (_deeper(thread, native.threads) for thread in last.threads)
    return structs.replace(last, threads=tuple(threads))


def _same(thread: Thread, native: Iterable[Thread]) -> tuple[Frame, ...]:
    """The frames of the same thread if it is where it was; matched by id, or by name if ids were not kept."""
    mine = (one for one in native if (one.tid == thread.tid if thread.tid else one.name == thread.name))
    return next((one.frames for one in mine if one.frames and _python(one.frames) == thread.frames), ())


def _deeper(thread: Thread, native: Iterable[Thread]) -> Thread:
    frames = _same(thread, native)
    return structs.replace(thread, frames=frames) if frames else thread


def _typical(traces: Iterable[ProcessTrace], rules: RuleSet) -> tuple[Frame, ...] | None:
    """What most captured ranks of a call site call there; None if no more than half of them agree."""
    states = [(read(trace, rules).place, trace) for trace in traces]
    place, times = Counter(place for place, _ in states).most_common(1)[0]
    if 2 * times <= len(states):
        return None
    frames = _main(next(trace for stands, trace in states if stands == place))
    below = next((at for at in range(len(frames), 0, -1) if not frames[at - 1].native), 0)
    return frames[below:]


def _extended(trace: ProcessTrace, tail: tuple[Frame, ...]) -> ProcessTrace:
    main = main_thread(trace)
    threads = (structs.replace(one, frames=one.frames + tail) if one is main else one for one in trace.threads)
    return structs.replace(trace, threads=tuple(threads))


def _main(trace: ProcessTrace) -> tuple[Frame, ...]:
    thread = main_thread(trace)
    return thread.frames if thread is not None else ()


def _python(frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
    return tuple(frame for frame in frames if not frame.native)


def _noted(snapshot: Snapshot, notes: Iterable[str]) -> Snapshot:
    return replace(snapshot, account=replace(snapshot.account, notes=(*snapshot.account.notes, *notes)))


def _notes(own: tuple[Rank, ...], like: tuple[Rank, ...], lacking: Mapping[Rank, str]) -> list[str]:
    notes = []
    if own:
        notes.append(f"native stacks were read of ranks {format_ranks(own)}, after the last look")
    if like:
        notes.append(f"ranks {format_ranks(like)} stand where these do in Python, and are taken to be there in C, too")
    reasons: dict[str, list[Rank]] = {}
    for rank, why in sorted(lacking.items()):
        reasons.setdefault(why, []).append(rank)
    for why, ranks in list(reasons.items())[:SHOWN]:
        notes.append(f"no native stack of ranks {format_ranks(tuple(ranks))}: {why}")
    return notes
