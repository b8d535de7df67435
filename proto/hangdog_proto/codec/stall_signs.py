"""The border between the wire's pulses and our signs of a standstill; what an agent says is read suspiciously."""

import math
from collections.abc import Mapping
from types import MappingProxyType

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.owner import UNKNOWN, Owner
from hangdog_models.ranks import MAX_RANK, Rank
from hangdog_models.stall_timeouts import Doing, Sign
from hangdog_proto.codec import owners
from hangdog_proto.generated import hangdog_pb2 as pb

Signs = Mapping[str, Mapping[Rank, Sign]]
Whose = Mapping[str, tuple[str, Owner]]

#: Ranks one machine may speak of; those of its jobs together.
RANKS = 4096
#: Characters of a place: a function's name beside an operation's.
PLACE = 200
#: No machine is believed to be more crowded: a standstill must not be borne because somebody says so.
CROWDING = 4.0
#: No standstill is believed to be older; a year of seconds.
LONGEST_S = 366 * 86400.0


def pack(signs: Signs, whose: Whose = MappingProxyType({})) -> pb.StallReport:
    """Writes what the ranks of each job show; `whose` tells its name and owner where a job is known by another key."""
    reported = [(*whose.get(key, (key, UNKNOWN)), shown) for key, shown in signs.items()]
    return pb.StallReport(
        jobs=[
            pb.JobSigns(job=job, owner=owners.pack(owner), signs=[_packed(rank, sign) for rank, sign in shown.items()])
            for job, owner, shown in reported
        ]
    )


def unpack(cpu_activity: pb.StallReport) -> dict[tuple[str, Owner], dict[Rank, Sign]]:
    """Reads what `pack` wrote, by name and owner; raises UnreadableEvidence on what cannot be, or is too much."""
    if sum(len(job.signs) for job in cpu_activity.jobs) > RANKS:
        raise UnreadableEvidence(f"a pulse speaks of more than {RANKS} ranks")
    return {
        (job.job, owners.unpack(job)): {Rank(sign.rank): _sign(sign) for sign in job.signs} for job in cpu_activity.jobs
    }


def _packed(rank: Rank, sign: Sign) -> pb.Sign:
    place = sign.place.encode("utf-8", "replace").decode("utf-8")[:PLACE]
    return pb.Sign(
        rank=rank, doing=sign.doing, seconds=sign.seconds, overdue=sign.overdue, place=place, crowding=sign.crowding
    )


def _sign(sign: pb.Sign) -> Sign:
    if sign.rank > MAX_RANK or not (math.isfinite(sign.seconds) and 0 <= sign.seconds <= LONGEST_S):
        raise UnreadableEvidence(f"a pulse says of rank {sign.rank} what cannot be")
    try:
        doing = Doing(sign.doing)
    except ValueError:
        doing = Doing.WORKING  # a newer agent's word: whatever it is, it is no standstill we know of
    crowding = min(sign.crowding, CROWDING) if sign.crowding >= 1 else 1.0  # an older agent does not tell
    return Sign(doing, sign.seconds, sign.overdue, sign.place[:PLACE], crowding)
