"""What a verdict on an incident may say, whom it must find, and whom it may evict."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from hangdog_models.ranks import Rank, format_ranks
from worlds.timed.evidence.plan import Failure
from worlds.timed.expected.visible import Sign, Visible
from worlds.timed.scenarios.hosts import TwoFaults
from worlds.timed.scenarios.services import SharedStorage

#: A healthy phase that one look shows so long after the last step may be called stuck code.
_LONG_S = 300.0
#: A slow rank shows in so many of the looks, or it cannot be asked for.
_LATE_LOOKS = 4


@dataclass(frozen=True, slots=True)
class Expected:
    """`verdicts` are accepted; all of `must` and one of `some` must be among the suspects; nobody of `spared` may be evicted."""

    verdicts: tuple[str, ...]
    must: Sequence[Rank] = ()
    some: Sequence[Rank] = ()
    spared: Sequence[Rank] = ()
    evict_at_most: int = 0

    def also(self, *verdicts: str, when: bool = True) -> "Expected":
        """With further verdicts accepted."""
        return replace(self, verdicts=tuple(dict.fromkeys((*self.verdicts, *verdicts)))) if when else self


def expected(visible: Visible) -> Expected:
    """What is expected of a verdict."""
    kind = visible.incident.kind
    if kind.family == "healthy":
        return _healthy(visible)
    return _OF_KIND[kind.name](visible)


def lines(of: Expected) -> Iterable[str]:
    """As `expected.toml` has it."""
    yield f"verdict = {json.dumps(of.verdicts)}"
    if of.must:
        yield f'must_include_ranks = "{format_ranks(of.must)}"'
    elif of.some:
        yield f'must_include_any_ranks = "{format_ranks(of.some)}"'
    if of.spared:
        yield f'must_not_evict = ["rank:{format_ranks(of.spared)}"]'
    yield f"evict_at_most = {of.evict_at_most}"


def _nobody(visible: Visible, *verdicts: str) -> Expected:
    """Nobody may be evicted."""
    return Expected(verdicts, spared=visible.incident.layout.ranks)


def _somebody(visible: Visible, *verdicts: str) -> Expected:
    """Whoever can be told is to be found, and no machine but a guilty one may be evicted."""
    machines = visible.incident.scene.machines
    return Expected(verdicts, visible.told, (), _innocent(visible), len(machines))


def _innocent(visible: Visible) -> list[Rank]:
    layout, machines = visible.incident.layout, visible.incident.scene.machines
    return [rank for rank in layout.ranks if layout.machine(rank) not in machines]


#: What else a healthy phase may be called: its service slow, its rank late, or stuck where nothing tells how long that takes.
_ALSO = {
    "rank0-slow-log": ("dependency", "slow"),
    "rank0-upload": ("dependency",),
    "uneven-experts": ("slow",),
    "one-collects-garbage": ("slow",),
    "one-compiles": ("slow", "software"),
    "long-rollout": ("slow",),
    "long-batch": ("slow",),
}


def _healthy(visible: Visible) -> Expected:
    incident, once = visible.incident, len(visible.incident.looks) == 1
    long = visible.written.plan.stalled and incident.stalled_s > _LONG_S
    waited_for = incident.kind.name in ("rank0-evaluation", "rank0-checkpoint", "rank0-index")
    return (
        _nobody(visible, "none", "undetermined", *_ALSO.get(incident.kind.name, ()))
        .also("software", when=waited_for and once and long)
        .also("dependency", when=once and incident.kind.name == "checkpoint")
    )


def _ended(visible: Visible) -> Expected:
    return (
        _somebody(visible, "machine")
        .also("software", "undetermined", "group", when=not visible.sure)
        .also("none", when=not visible.stands)
        # why a process ended is seldom shown
        .also("software", when=visible.incident.kind.name in ("dead", "out-of-memory"))
    )


def _held(visible: Visible) -> Expected:
    loads = visible.incident.kind.name == "stuck-loader"
    plan = visible.written.plan
    found = _somebody(visible, "machine", "software").also("dependency", when=loads)
    if not visible.told or not visible.stands:
        found = found.also("undetermined", "none", "slow")
    return found.also("undetermined", when=not (plan.workers and plan.processes) if loads else not plan.native)


def _stored(visible: Visible) -> Expected:
    found = _somebody(visible, "machine", "dependency").also("undetermined", "software", when=not visible.told)
    if visible.incident.kind.name == "storage-of-one":  # any of the machine's ranks will do
        found = replace(found, must=(), some=visible.told)
        found = found.also("undetermined", "software", when=not visible.written.plan.names_machines)
    else:
        shown = any(visible.has(rank, Sign.PROCESS, Sign.KERNEL_LOG) for rank in visible.guilty)
        found = found.also("software", "undetermined", when=not shown)
    return found.also("none", "undetermined", when=not visible.stands)


def _device(visible: Visible) -> Expected:
    (rank,), layout = visible.guilty, visible.incident.layout
    found = _somebody(visible, "machine", "group")
    if visible.has(rank, Sign.KERNEL_LOG):
        return found
    found = found.also("undetermined", "software")
    if visible.has(rank, Sign.RECORDER):
        return replace(found, evict_at_most=1)
    found = replace(found, must=(), evict_at_most=1).also("none", "slow", when=not visible.stands)
    if layout.sizes.get("pp", 1) == 1:
        return found
    # all that is seen is a group that is stuck
    return replace(found, spared=(), evict_at_most=max(1, len(layout.machines) // 2))


def _network(visible: Visible) -> Expected:
    layout, machines = visible.incident.layout, set(visible.incident.scene.machines)
    found = Expected(("group", "machine"))
    if machines & visible.written.shows:
        found = replace(found, some=visible.guilty, spared=_innocent(visible), evict_at_most=len(machines))
        return found.also("none", when=not visible.stands)
    stuck = [
        ranks
        for group, ranks in layout.groups.items()
        if layout.crosses(group) and machines & {layout.machine(rank) for rank in ranks}
    ]
    found = found.also("undetermined", "dependency").also("none", when=not visible.stands)
    if all(len(ranks) == layout.world_size for ranks in stuck):
        return replace(found, spared=_innocent(visible), evict_at_most=1)
    held = [{layout.machine(rank) for rank in ranks} for ranks in stuck]
    spared = [rank for rank in layout.ranks if not any(layout.machine(rank) in of for of in held)]
    most = max(1, len(layout.machines) // 2)
    return replace(found, spared=spared, evict_at_most=min(min(map(len, held), default=1), most))


def _two(visible: Visible) -> Expected:
    scene = visible.incident.scene
    assert isinstance(scene, TwoFaults)
    kinds = {part.kind for part in scene.parts}
    found = _somebody(visible, "machine").also(
        "software", "dependency", when=bool(kinds & {"library-lock", "stuck-loader"})
    )
    found = replace(found, must=visible.told if len(visible.sure) == len(visible.guilty) else (), some=visible.told)
    return (
        found.also("undetermined", "group", "software", when=len(visible.told) < len(visible.guilty))
        .also("group", when="hung-device" in kinds)
        .also("none", "undetermined", when=not visible.stands)
    )


def _mismatch(visible: Visible) -> Expected:
    recorded = [rank for rank in visible.guilty if visible.has(rank, Sign.RECORDER)]
    found = _nobody(visible, "software")
    found = replace(found, must=visible.guilty if len(recorded) == len(visible.guilty) else ())
    if not recorded:
        found = found.also("undetermined", "group").also("none", "slow", when=not visible.stands)
    alone = not recorded and any(visible.has(rank, Sign.STACK) for rank in visible.guilty)
    # who skipped one and who is late look alike where sizes do not differ
    skipped = visible.incident.kind.name == "skipped-collective" and bool(recorded)
    if alone or (skipped and not all(visible.mismatched(rank) for rank in recorded)):
        return replace(found.also("machine"), spared=_innocent(visible), evict_at_most=1)
    return found


def _uneven(visible: Visible) -> Expected:
    found = _nobody(visible, "software", "undetermined").also("none", when=not visible.stands)
    if len(visible.guilty) == 1:
        return replace(found.also("machine"), spared=_innocent(visible), evict_at_most=1)
    return found


def _evaluates_alone(visible: Visible) -> Expected:
    recorded = visible.written.plan.recorder
    found = _nobody(visible, "software").also("undetermined", "machine", when=not recorded)
    seen = [rank for rank in visible.guilty if visible.captured(rank)]
    return replace(found, some=seen if recorded else ()).also("none", when=not visible.stands)


def _crossed(visible: Visible) -> Expected:
    layout = visible.incident.layout
    at = {place.frames for rank in layout.ranks if (place := visible.incident.seen(rank)) is not None}
    told = visible.stands and len(at) > 1
    return (
        _nobody(visible, "software")
        .also("undetermined", "group", "none", when=not told)
        .also("undetermined", when=not visible.written.plan.recorder)
    )


def _own_code(visible: Visible) -> Expected:
    log = visible.written.plan.log or visible.incident.kind.name != "swallowed-exception"
    told = visible.stands and bool(visible.told)
    return (
        _somebody(visible, "software", "machine")
        .also("undetermined", "none", when=not told)
        .also("undetermined", when=not log)
    )


def _breakpoint(visible: Visible) -> Expected:
    found = replace(_nobody(visible, "software"), must=visible.told)
    return found.also("machine", "undetermined", when=not visible.captured(visible.guilty[0]))


def _loop(visible: Visible) -> Expected:
    return _somebody(visible, "software", "machine", "undetermined", "slow").also("none", when=not visible.stands)


def _never_comes(visible: Visible) -> Expected:
    """A rank waits for a queue or a child process: for its own code, or for what that waits for."""
    found = _somebody(visible, "software", "machine", "dependency", "undetermined")
    return found.also("none", when=not visible.stands)


def _shared_storage(visible: Visible) -> Expected:
    plan, scene = visible.written.plan, visible.incident.scene
    assert isinstance(scene, SharedStorage)
    reads = scene.point == "data"
    found = _nobody(visible, "dependency")
    told = visible.stands and (plan.processes or bool(visible.written.shows) or not reads)
    return found.also("undetermined", "none", "software", when=not told).also(
        "undetermined", "software", when=reads and not plan.workers
    )


def _service(visible: Visible) -> Expected:
    return _nobody(visible, "dependency", "undetermined").also("none", when=not visible.stands)


def _store(visible: Visible) -> Expected:
    found = _somebody(visible, "machine", "dependency", "software")
    (rank,) = visible.guilty
    told = visible.has(rank, Sign.FAILURE, Sign.PROCESS)
    found = replace(found, must=[rank] if told else ())
    if not told or not visible.stands:
        return found.also("undetermined", "none")
    return found.also("undetermined", when=visible.written.plan.failures.get(rank) is not Failure.ZOMBIE)


def _asks_alone(visible: Visible) -> Expected:
    (rank,) = visible.guilty
    found = _nobody(visible, "dependency", "undetermined", "software").also("none", when=not visible.stands)
    return replace(found, must=[rank] if visible.captured(rank) and visible.has(rank, Sign.STACK) else ())


def _slow(visible: Visible) -> Expected:
    incident = visible.incident
    kind, guilty = incident.kind.name, set(visible.guilty)
    others = [rank for rank in incident.layout.ranks if rank not in guilty]
    late = 0
    for look in range(len(incident.looks)):
        busy = [_works(visible, rank, look) for rank in guilty]
        idle = [not _works(visible, rank, look) for rank in others]
        late += sum(busy) > 0.66 * len(busy) and sum(idle) > 0.66 * len(idle)
    found = Expected(("slow", "machine", "undetermined"), spared=_innocent(visible), evict_at_most=1)
    found = found.also("group", when=kind == "slow-link")
    if late < _LATE_LOOKS:
        return found.also("none")
    return replace(found, must=visible.guilty) if kind == "slow-device" else replace(found, some=visible.guilty)


def _works(visible: Visible, rank: Rank, look: int) -> bool:
    at = visible.incident.seen(rank, look)
    return at is not None and not at.waits


def _slow_by_design(visible: Visible) -> Expected:
    return _nobody(visible, "slow", "none", "undetermined", "dependency")


_OF_KIND: dict[str, Callable[[Visible], Expected]] = {
    **dict.fromkeys(("stopped", "dead", "out-of-memory", "frozen-machine"), _ended),
    **dict.fromkeys(("library-lock", "stuck-loader"), _held),
    **dict.fromkeys(("blocked-in-kernel", "storage-of-one"), _stored),
    "hung-device": _device,
    "dead-nic": _network,
    "two-faults": _two,
    **dict.fromkeys(("skipped-collective", "other-size", "other-operation", "other-type"), _mismatch),
    "uneven-batches": _uneven,
    "rank0-evaluates-alone": _evaluates_alone,
    "crossed-groups": _crossed,
    **dict.fromkeys(("lock-order", "swallowed-exception"), _own_code),
    "breakpoint": _breakpoint,
    "endless-loop": _loop,
    "endless-loop-of-all": lambda visible: _nobody(visible, "software", "undetermined", "none", "slow"),
    **dict.fromkeys(("empty-queue", "child-process"), _never_comes),
    "storage-of-all": _shared_storage,
    **dict.fromkeys(("data-service", "name-service"), _service),
    "dead-store": _store,
    **dict.fromkeys(("licence", "tracker", "tokeniser"), _asks_alone),
    **dict.fromkeys(("slow-device", "slow-machine", "slow-link"), _slow),
    **dict.fromkeys(("slow-stage", "slow-data"), _slow_by_design),
}
