"""The border between the wire's statements and our own: what a library counted, as bytes that nobody on the way reads.

They travel deflated: a flight record is text that repeats itself, and shrinks to a tenth or less.
"""

import zlib
from dataclasses import dataclass, replace
from enum import StrEnum

from hangdog_models.collectives import RankCounters, RasReport
from hangdog_models.errors import UnreadableEvidence
from hangdog_models.progress.collective_progress import RankProgress
from hangdog_models.ranks import MAX_RANK, Rank
from hangdog_models.reading.collectives.inspector import InspectedRank
from hangdog_models.reading.collectives.library_counters import (
    LibraryCounters,
    flight_record,
    inspected_rank,
    ras_report,
    ring_progress,
)
from hangdog_models.stack import Missing, Reason
from hangdog_proto.generated import hangdog_pb2 as pb

#: Bytes of one statement; a ring of 20,000 operations with their stacks, the largest that people set, is about as much.
MOST_BYTES = 32 << 20
#: Bytes of all statements of one message, inflated: sixteen ranks with records of the size seen in practice, many times over.
MOST_IN_MESSAGE = 256 << 20
#: Statements in one message: one a rank, and the machine's.
MOST = 4096
#: Words of a reason; a path and an error fit.
_REASON_CHARS = 500
#: How hard deflating tries: the lowest level takes a third of the time and gives nearly the same.
_LEVEL = 1


class StatementKind(StrEnum):
    """Which library speaks."""

    RECORD = "flight recorder"
    RAS = "nccl ras"
    PROGRESS = "nccl progress"
    INSPECTOR = "nccl inspector"


@dataclass(frozen=True, slots=True)
class Statement:
    """What a library gave: `data`, or why it is `missing`. `rank` is None where a machine speaks as a whole.

    `age_s`: so many seconds before it was asked for, its process wrote it by itself; 0 where it answered.
    """

    kind: StatementKind
    rank: Rank | None
    data: bytes = b""
    missing: Missing | None = None
    age_s: int = 0

    @property
    def name(self) -> str:
        """What a person is told it is."""
        if self.kind is StatementKind.PROGRESS:
            return f"the profiler ring of rank {self.rank}"
        if self.kind is StatementKind.INSPECTOR:
            return f"what NCCL Inspector wrote of rank {self.rank}"
        return "the report of NCCL RAS" if self.rank is None else f"the flight record of rank {self.rank}"


def pack(statement: Statement) -> pb.Statement:
    """Writes a statement, deflated."""
    packed = pb.Statement(
        kind=statement.kind, rank=statement.rank or 0, size=len(statement.data), age_s=statement.age_s
    )
    if statement.data:
        packed.deflated = zlib.compress(statement.data, _LEVEL)
    if statement.missing is not None:
        packed.missing.reason = statement.missing.reason
        packed.missing.message = statement.missing.message.encode("utf-8", "replace").decode("utf-8")[:_REASON_CHARS]
    return packed


def unpack_all(capture: pb.Capture) -> LibraryCounters | None:
    """What the libraries of a machine counted, by a capture; None when it does not speak of that.

    Raises nothing: what cannot be read is named, and costs nothing else.
    """
    if not capture.statements:
        return None
    claimed = sum(packed.size for packed in capture.statements)
    if len(capture.statements) > MOST or claimed > MOST_IN_MESSAGE:
        words = f"{len(capture.statements)} of {claimed} bytes; {MOST} of {MOST_IN_MESSAGE} are read"
        return LibraryCounters(unreadable={"statements": words})
    counters: list[RankCounters] = []
    progress: list[RankProgress] = []
    inspected: list[tuple[Rank, InspectedRank]] = []
    report: RasReport | None = None
    unreadable: dict[str, str] = {}
    missing: list[tuple[Rank | None, Missing]] = []
    for number, packed in enumerate(capture.statements):
        name = f"statement {number}"
        try:
            statement = unpack(packed)
            name = statement.name
            if statement.missing is not None and statement.kind in (StatementKind.PROGRESS, StatementKind.INSPECTOR):
                unreadable[name] = statement.missing.message
            elif statement.missing is not None:
                missing.append((statement.rank, statement.missing))
            elif statement.rank is not None and statement.kind is StatementKind.PROGRESS:
                progress.append(ring_progress(statement.data, statement.rank))
            elif statement.rank is not None and statement.kind is StatementKind.INSPECTOR:
                inspected.append((statement.rank, inspected_rank(statement.data, statement.age_s)))
            elif statement.rank is not None:
                counters.append(replace(flight_record(statement.data, statement.rank), age_s=statement.age_s))
            else:
                report = ras_report(statement.data)
        except UnreadableEvidence as error:
            unreadable[name] = str(error)
    return LibraryCounters(tuple(counters), report, unreadable, tuple(missing), tuple(progress), tuple(inspected))


def unpack(packed: pb.Statement) -> Statement:
    """Reads what `pack` wrote; raises UnreadableEvidence on what cannot be, and on what is larger than it claims."""
    try:
        kind = StatementKind(packed.kind)
    except ValueError:
        raise UnreadableEvidence(
            f"a statement of kind {packed.kind[:80]!r}, which is not known here", code="unknown-kind"
        ) from None
    if packed.rank > MAX_RANK or packed.size > MOST_BYTES:
        raise UnreadableEvidence(f"a statement of rank {packed.rank} and {packed.size} bytes", code="out-of-range")
    rank = None if kind is StatementKind.RAS else Rank(packed.rank)
    if packed.HasField("missing"):
        try:
            reason = Reason(packed.missing.reason)
        except ValueError:
            reason = Reason.TOOL_FAILED  # a newer agent's word; what it says beside it is kept
        return Statement(kind, rank, missing=Missing(reason, packed.missing.message[:_REASON_CHARS]))
    return Statement(kind, rank, _inflated(packed), age_s=packed.age_s)


def _inflated(packed: pb.Statement) -> bytes:
    inflating = zlib.decompressobj()
    try:
        data = inflating.decompress(packed.deflated, packed.size + 1)  # 0 would be no bound
    except zlib.error as error:
        raise UnreadableEvidence(f"a statement that cannot be inflated: {error}", code="damaged-message") from error
    if len(data) != packed.size or not inflating.eof:
        raise UnreadableEvidence(
            f"a statement that is not the {packed.size} bytes it claims to be", code="damaged-message"
        )
    return data
