"""Puts an incident together again from what the store kept of it: the very snapshot and layout that were judged.

Pure, and without the store's packages: the command that writes a bundle does this where it runs.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.findings import Finding, Impact
from hangdog_models.owner import read
from hangdog_models.planning.native_depth import deepen
from hangdog_models.process_groups import with_seen
from hangdog_models.ranks import Rank
from hangdog_models.reading.collectives.library_counters import flight_record, inspected_rank, ras_report, ring_progress
from hangdog_models.rules.ruleset import packaged
from hangdog_models.snapshot import Job, Snapshot
from hangdog_models.stack import Missing, ProcessTrace, Reason
from hangdog_models.topology import Layout
from hangdog_proto.codec import collectives, dedup, exits, wrong_numbers
from hangdog_proto.codec import findings as found
from hangdog_proto.codec.collectives import StatementKind
from hangdog_proto.codec.piece_cache import PieceCache
from hangdog_proto.codec.pieces import PIECES
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_server.incidents import gather, round_diff
from hangdog_server.incidents.gather import FURTHER, Gathering, RoundAnswer, RoundPlan
from hangdog_server.protocol.jobs import AnnouncedJob, describe, sole

#: Numbers behind those of an incident's rounds: what libraries counted in them, and the native look.
BEHIND = FURTHER + 1


@dataclass(frozen=True, slots=True)
class StoredRound:
    """One capture as it is kept: the machine, the number it is kept under, the serialized message."""

    machine: str
    number: int
    packed: bytes


@dataclass(frozen=True, slots=True)
class RecordedCounters:
    """What a library counted, as it gave it: of `rank`, or (None) the machine's report of NCCL RAS.

    `age_s`: so many seconds before it was asked for, its process wrote it by itself; 0 where it answered.
    """

    machine: str
    rank: Rank | None
    data: bytes
    age_s: int = 0
    kind: StatementKind = StatementKind.RECORD


@dataclass(frozen=True, slots=True)
class Replayed:
    """What was judged, and beside it the bytes of what libraries counted, as far as they were used."""

    snapshot: Snapshot
    layout: Layout
    counted: tuple[RecordedCounters, ...]


@dataclass(slots=True)
class _Kept:
    """The messages of one incident: its looks, what libraries counted in them or behind, and the native looks."""

    gathering: Gathering
    captures: dict[tuple[str, int], pb.Capture] = field(default_factory=dict)
    native: dict[str, tuple[ProcessTrace, ...]] = field(default_factory=dict)


def replay(job: str, asked: Mapping[str, Any], kept: Iterable[StoredRound]) -> Replayed:
    """What was judged of an incident of this job, from what `judging.remembered` wrote and the captures that came.

    Raises KeyError, TypeError or ValueError where `asked` is nothing that a hangdog wrote.
    """
    asking, absent = announced(asked["asked"]), announced(asked["absent"])
    inside = _kept(job, asked, asking, absent, kept)
    gathering = inside.gathering
    owners = gather.owners(gathering)
    gone = {name: Missing(Reason(why["reason"]), why["words"]) for name, why in asked["gone"].items()}
    snapshot = round_diff.explained(gather.conclude(gathering), owners, gone)
    snapshot = replace(snapshot, findings=(*snapshot.findings, *map(_finding, asked["findings"])))
    snapshot = round_diff.contradicted(snapshot, asked.get("conflicts", ()))
    snapshot = replace(snapshot, checked=str(asked.get("checked", "")))
    if inside.native:
        ranks = {trace.rank for traces in inside.native.values() for trace in traces}
        snapshot = deepen(snapshot, ranks, _closer(inside), packaged()).snapshot
    placed = gather.placement(gathering)
    described, layout, _ = describe(job, asked["job_toml"], {**absent, **asking}, placed, snapshot.job.stalled_s)
    layout = with_seen(layout, snapshot.counters, snapshot.ras)
    return Replayed(replace(snapshot, job=described), layout, tuple(_counted(inside, owners)))


def _kept(
    job: str,
    asked: Mapping[str, Any],
    asking: Mapping[str, AnnouncedJob],
    absent: Mapping[str, AnnouncedJob],
    kept: Iterable[StoredRound],
) -> _Kept:
    dictionary, held = opened(kept)
    rounds, first = (
        asked["rounds"],
        asked.get("first", 0),
    )  # what is kept below was taken before a server's end, and left
    beyond = first + rounds + BEHIND  # and from there on is kept what came of a later look that was never judged
    held = [replace(look, number=look.number - first) for look in held if first <= look.number < beyond]
    if asked["light"]:  # ordered one by one, until they sufficed
        rounds = 1 + max((look.number for look in held), default=0)
    plan = RoundPlan(
        order="again",
        job=Job(job, stalled_s=asked.get("stood_s") or None),
        rounds=rounds,
        interval_s=asked["interval_s"],
        asked={machine: local.ranks for machine, local in asking.items()},
        absent={machine: local.ranks for machine, local in absent.items()},
        world=sole({local.world_size for local in asking.values()}),
    )
    plan = replace(plan, patience_s=asked.get("patience_s", plan.patience_s))
    inside = _Kept(Gathering(plan, 0.0))
    for look in held:
        capture = pb.Capture.FromString(look.packed)
        answer = _answer(look, capture, dictionary)
        if look.number >= rounds + FURTHER:
            inside.native[look.machine] = answer.traces
            continue
        inside.captures[look.machine, look.number] = capture
        if answer.counters is not None:
            inside.gathering.counters.setdefault(look.machine, {})[look.number] = answer.counters
        if look.number < rounds:
            inside.gathering.answers[look.machine, look.number] = answer
            inside.gathering.seen[look.machine] = inside.gathering.seen.get(look.machine, 0) + 1
    inside.gathering.done.update(asked.get("done", ()))
    inside.gathering.lost.update(dict.fromkeys(asked.get("lost", ()), 0.0))
    return inside


def opened(kept: Iterable[StoredRound]) -> tuple[PieceCache, list[StoredRound]]:
    """What an incident's captures name, and those captures."""
    dictionary, held = PieceCache(), []
    for look in kept:
        if look.machine == PIECES:
            dictionary.add(pb.Pieces.FromString(look.packed).pieces)
        else:
            held.append(look)
    return dictionary, held


def _answer(look: StoredRound, capture: pb.Capture, dictionary: PieceCache) -> RoundAnswer:
    try:
        traces, unreadable = dedup.unpack(capture, dictionary), ""
    except UnreadableEvidence as error:
        traces, unreadable = (), str(error)
    ends = exits.unpack(capture.exits)
    findings = found.unpack(capture.findings, look.machine, {one.rank for one in ends})
    return RoundAnswer(
        look.machine, look.number, traces, unreadable=unreadable, counters=collectives.unpack_all(capture),
        findings=findings, exits=ends, numbers=wrong_numbers.unpack(capture.numbers),
        addresses=found.addresses(capture.addresses),
    )  # fmt: skip


def _closer(inside: _Kept) -> tuple[ProcessTrace, ...]:
    """The traces of the closer look, as the server put them together."""
    ranks = {machine: tuple(trace.rank for trace in traces) for machine, traces in inside.native.items()}
    closer = Gathering(replace(inside.gathering.plan, rounds=1, asked=ranks, absent={}), 0.0)
    closer.answers.update({(name, 0): RoundAnswer(name, 0, traces) for name, traces in inside.native.items()})
    return gather.conclude(closer).rounds[0].traces


def _counted(inside: _Kept, owners: Mapping[Rank, str]) -> Iterator[RecordedCounters]:
    """What could be read and was used: of each rank the first record and ring of its own machine, and every report."""
    seen: set[tuple[StatementKind, Rank]] = set()
    for (machine, _), capture in sorted(inside.captures.items(), key=lambda item: item[0]):
        for packed in capture.statements:
            try:
                given = collectives.unpack(packed)
                if given.missing is not None:
                    continue
                if given.rank is None:
                    ras_report(given.data)
                elif owners.get(given.rank, machine) == machine and (given.kind, given.rank) not in seen:
                    if given.kind is StatementKind.INSPECTOR:
                        inspected_rank(given.data)
                    else:
                        check = ring_progress if given.kind is StatementKind.PROGRESS else flight_record
                        check(given.data, given.rank)
                    seen.add((given.kind, given.rank))
                else:
                    continue
            except UnreadableEvidence:
                continue
            yield RecordedCounters(machine, given.rank, given.data, given.age_s, given.kind)


def announced(stated: Mapping[str, Mapping[str, Any]]) -> dict[str, AnnouncedJob]:
    return {
        machine: AnnouncedJob(
            one["job"],
            tuple(map(Rank, one["ranks"])),
            one["world_size"],
            one["topology"],
            read(one.get("owner", "")),
            pods=tuple(one.get("pods", ())),
            notes=tuple(one.get("notes", ())),
            switch=one.get("switch", ""),
            domains=tuple(one.get("domains", ())),
        )
        for machine, one in stated.items()
    }


def _finding(stated: Mapping[str, Any]) -> Finding:
    lists = {"ranks": tuple(map(Rank, stated["ranks"])), "peers": tuple(stated["peers"])}
    others = {key: value for key, value in stated.items() if key != "bearing"}
    return Finding(**{**others, **lists, "impact": Impact(stated["bearing"])})
