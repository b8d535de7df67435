"""Reads what libraries counted from the bytes a live job gave, and puts together what several machines say at one moment."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hangdog_models.collectives import RankCounters, RasCommunicator, RasMember, RasReport
from hangdog_models.errors import UnreadableEvidence
from hangdog_models.progress.collective_progress import RankProgress
from hangdog_models.ranks import Rank, format_ranks
from hangdog_models.reading.collectives import (
    flight_recorder,
    inspected_ranks,
    inspector,
    plain_pickle,
    progress_json,
    ras_json,
    ras_text,
)
from hangdog_models.reading.collectives.inspector import InspectedRank
from hangdog_models.reading.json_document import read_json
from hangdog_models.reading.limits import DEFAULTS, Limits
from hangdog_models.reading.printable import decoded, printable
from hangdog_models.stack import Missing, Reason

#: Bytes that must be enough to tell a report's format; RCCL writes a banner of some lines before it.
_HEAD = 1 << 15


@dataclass(frozen=True, slots=True)
class LibraryCounters:
    """What the libraries of one machine told in one message.

    `unreadable` says by name what could not be read, and why; `lacking` why there is nothing, by rank (None: of RAS).
    """

    counters: tuple[RankCounters, ...] = ()
    ras: RasReport | None = None
    unreadable: Mapping[str, str] = field(default_factory=dict)
    lacking: tuple[tuple[Rank | None, Missing], ...] = ()
    progress: tuple[RankProgress, ...] = ()
    inspected: tuple[tuple[Rank, InspectedRank], ...] = ()


@dataclass(frozen=True, slots=True)
class Joined:
    """What all machines told: each rank's counters and progress once, by rank; one report; what to say of the rest."""

    counters: tuple[RankCounters, ...]
    progress: tuple[RankProgress, ...]
    ras: tuple[RasReport, ...]
    unreadable: Mapping[str, str]
    notes: tuple[str, ...]


def flight_record(data: bytes, rank: Rank, limits: Limits = DEFAULTS) -> RankCounters:
    """The counters in a flight recorder's dump, pickle or JSON; raises UnreadableEvidence."""
    if plain_pickle.recognises(data):
        return flight_recorder.read(plain_pickle.read_pickle(data, limits), rank, limits)
    return flight_recorder.read(read_json(decoded(data, "JSON"), limits), rank, limits)


def ras_report(data: bytes, limits: Limits = DEFAULTS) -> RasReport:
    """The report of NCCL RAS, text or JSON; raises UnreadableEvidence."""
    text = decoded(data, "the report of ncclras")
    if ras_json.recognises_text(text[:_HEAD]):
        return ras_json.read_text(text, limits)
    return ras_text.read(text, limits)[-1]


def ring_progress(data: bytes, rank: Rank, limits: Limits = DEFAULTS) -> RankProgress:
    """How far the operations of a rank have come, by the JSON of its ring; raises UnreadableEvidence."""
    return RankProgress(rank, progress_json.read(read_json(decoded(data, "JSON"), limits), limits))


def inspected_rank(data: bytes, age_s: int = 0, limits: Limits = DEFAULTS) -> InspectedRank:
    """What one rank completed, by the end of NCCL Inspector's dump; raises UnreadableEvidence, also where it tells of several."""
    ranks = inspector.read(decoded(data, "NCCL Inspector's dump"), limits)
    if len(ranks) > 1:
        raise UnreadableEvidence(
            f"it tells of {len(ranks)} devices, and not whose they are", code="damaged-nccl-report"
        )
    return replace(ranks[0], counters=replace(ranks[0].counters, age_s=age_s))


def joined(reported: Mapping[str, Mapping[int, LibraryCounters]], owner: Mapping[Rank, str]) -> Joined:
    """Unites what machines told at one moment, each in numbered messages; of a rank its `owner` machine is believed."""
    counters: dict[Rank, RankCounters] = {}
    progress: dict[Rank, RankProgress] = {}
    inspected: dict[Rank, InspectedRank] = {}
    unreadable: dict[str, str] = {}
    lacking: dict[Rank | None, Missing] = {}
    messages = [
        (machine, reported[machine][number]) for machine in sorted(reported) for number in sorted(reported[machine])
    ]
    for machine, message in messages:
        for record in message.counters:
            if owner.get(record.rank, machine) == machine:
                counters.setdefault(record.rank, record)
        for ring in message.progress:
            if owner.get(ring.rank, machine) == machine:
                progress.setdefault(ring.rank, ring)
        for whose, one in message.inspected:
            if owner.get(whose, machine) == machine:
                inspected.setdefault(whose, one)
        unreadable |= {f"{machine}, {name}": why for name, why in message.unreadable.items()}
        for rank, why in message.lacking:
            if rank is None or owner.get(rank, machine) == machine:
                lacking.setdefault(rank, why)
    reports = [message.ras for _, message in messages if message.ras is not None]
    lacks = {rank: why for rank, why in lacking.items() if rank not in counters}
    recorded = bool(counters)
    for record in inspected_ranks.joined(inspected):  # a flight record and a ring tell more of the same operations
        if record.rank not in progress:
            counters.setdefault(record.rank, record)
    return Joined(
        counters=tuple(record for _, record in sorted(counters.items())),
        progress=tuple(ring for _, ring in sorted(progress.items())),
        ras=(united(reports),) if reports else (),
        unreadable=unreadable,
        notes=tuple(_notes(lacks, recorded, bool(reports))),
    )


def united(reports: Sequence[RasReport]) -> RasReport:
    """One report of several of one moment: each reaches only the processes its own are connected with.

    Of a communicator in several reports the version that speaks of most members counts. A text report gives sound
    communicators numbers of its own (`#0-1`) instead of names, so only one report's are taken: the one with the most.
    """
    named: dict[str, RasCommunicator] = {}
    lost: dict[tuple[str, int | None], RasMember] = {}
    for report in sorted(reports, key=repr):
        for communicator in report.communicators:
            other = named.get(communicator.name)
            if not _numbered(communicator) and (other is None or len(other.members) < len(communicator.members)):
                named[communicator.name] = communicator
        for member in report.lost:
            lost.setdefault((member.host, member.pid), member)
    sound = max(
        ([c for c in report.communicators if _numbered(c)] for report in sorted(reports, key=repr)), key=len, default=[]
    )
    at_s = max((report.at_s for report in reports if report.at_s is not None), default=None)
    ordered = sorted(reports, key=repr)
    return RasReport(
        (*(named[name] for name in sorted(named)), *sound),
        tuple(lost.values()),
        at_s,
        max((report.gpus for report in reports), default=0),
        {host: number for report in ordered for host, number in report.processes.items()},
        max((report.untold for report in reports), default=0),
        next((report.impossible for report in ordered if report.impossible), ""),
    )


def _numbered(communicator: RasCommunicator) -> bool:
    return communicator.name.startswith("#")


def _notes(lacks: Mapping[Rank | None, Missing], counted: bool, reported: bool) -> Iterator[str]:
    """What is missing and why, one line for each reason; nothing where nobody could have been asked at all."""
    by_reason: dict[Missing, list[Rank]] = {}
    for rank, why in lacks.items():
        if rank is not None:
            by_reason.setdefault(why, []).append(rank)
    if counted or any(why.reason is not Reason.NO_EVIDENCE for why in by_reason):
        for why, ranks in sorted(by_reason.items(), key=lambda item: min(item[1])):
            yield f"no flight record of {_ranks(ranks)}: {printable(why.message)}"
    why_no_report = lacks.get(None)
    if why_no_report and not reported and why_no_report.reason is not Reason.NO_EVIDENCE:
        yield f"no report of NCCL RAS: {printable(why_no_report.message)}"


def _ranks(ranks: Iterable[Rank]) -> str:
    them = list(ranks)
    return f"rank{'' if len(them) == 1 else 's'} {format_ranks(them)}"
