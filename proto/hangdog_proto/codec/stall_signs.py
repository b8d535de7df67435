"""The border between the wire's pulses and our signs of a standstill; what an agent says is read suspiciously."""

import math
from collections.abc import Collection, Mapping
from types import MappingProxyType

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.owner import UNKNOWN, Owner
from hangdog_models.ranks import MAX_RANK, Rank
from hangdog_models.stall_timeouts import Doing, Sign
from hangdog_proto.codec import owners
from hangdog_proto.generated import hangdog_pb2 as pb

StallSigns = Mapping[str, Mapping[Rank, Sign]]
#: The ranks of each job that are seen to move.
MovingRanks = Mapping[str, Collection[Rank]]
JobOwners = Mapping[str, tuple[str, Owner]]

#: Ranks one machine may speak of; those of its jobs together.
MOST_RANKS = 4096
#: Characters of a place: a function's name beside an operation's.
CALL_SITE_CHARS = 200
#: No machine is believed to be more crowded: a standstill must not be borne because somebody says so.
MAX_CONTENTION = 4.0
#: No standstill is believed to be older; a year of seconds.
LONGEST_S = 366 * 86400.0


def pack(
    signs: StallSigns, job_owners: JobOwners = MappingProxyType({}), moving: MovingRanks = MappingProxyType({})
) -> pb.StallReport:
    """Writes what the ranks of each job show; `job_owners` tells its name and owner where a job is known by another key."""
    return pb.StallReport(
        jobs=[
            pb.JobSigns(
                job=job,
                owner=owners.pack(owner),
                signs=[_packed(rank, sign) for rank, sign in signs.get(key, {}).items()],
                moving=sorted(moving.get(key, ())),
            )
            for key in dict.fromkeys((*signs, *moving))
            for job, owner in (job_owners.get(key, (key, UNKNOWN)),)
        ]
    )


def unpack(report: pb.StallReport) -> dict[tuple[str, Owner], dict[Rank, Sign]]:
    """Reads what `pack` wrote, by name and owner; raises UnreadableEvidence on what cannot be, or is too much."""
    if sum(len(job.signs) for job in report.jobs) > MOST_RANKS:
        raise UnreadableEvidence(f"a machine reports stall signs of more than {MOST_RANKS} ranks", code="too-many")
    return {(job.job, owners.unpack(job)): {Rank(sign.rank): _sign(sign) for sign in job.signs} for job in report.jobs}


def unpack_moving(report: pb.StallReport) -> dict[tuple[str, Owner], frozenset[Rank]]:
    """The ranks that are seen to move, by name and owner; raises UnreadableEvidence where they are too many."""
    if sum(len(job.moving) for job in report.jobs) > MOST_RANKS:
        raise UnreadableEvidence(f"a machine reports more than {MOST_RANKS} moving ranks", code="too-many")
    return {(job.job, owners.unpack(job)): frozenset(map(Rank, job.moving)) for job in report.jobs}


def _packed(rank: Rank, sign: Sign) -> pb.Sign:
    call_site = sign.place.encode("utf-8", "replace").decode("utf-8")[:CALL_SITE_CHARS]
    return pb.Sign(
        rank=rank, doing=sign.doing, seconds=sign.seconds, overdue=sign.overdue, place=call_site, crowding=sign.crowding,
        waits=sign.waits, stopped=sign.stopped,
    )  # fmt: skip


def _sign(sign: pb.Sign) -> Sign:
    if sign.rank > MAX_RANK or not (math.isfinite(sign.seconds) and 0 <= sign.seconds <= LONGEST_S):
        raise UnreadableEvidence(f"a machine reports an impossible stall sign of rank {sign.rank}", code="out-of-range")
    try:
        doing = Doing(sign.doing)
    except ValueError:
        doing = Doing.WORKING  # a newer agent's word: whatever it is, it is no standstill we know of
    contention = min(sign.crowding, MAX_CONTENTION) if sign.crowding >= 1 else 1.0  # an older agent does not tell
    return Sign(doing, sign.seconds, sign.overdue, sign.place[:CALL_SITE_CHARS], contention, sign.waits, sign.stopped)
