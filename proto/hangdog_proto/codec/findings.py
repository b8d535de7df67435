"""The border between the wire's findings and ours: what the checks of a machine found, read suspiciously."""

import ipaddress
import math
from collections.abc import Container, Iterable

from hangdog_models.findings import Finding, Impact
from hangdog_models.ranks import MAX_RANK, Rank
from hangdog_models.reading.printable import printable
from hangdog_proto.generated import hangdog_pb2 as pb

#: Findings of one machine that are sent and read; what holds on a sick one numbers in the tens.
MOST = 200
#: Characters of a code or a device, and of a sentence.
_SHORT, _LONG = 100, 500
#: Ranks and addresses that one finding may name.
_NAMED = 64
#: No machine runs for longer, and no event was seen so often. Seconds; times.
_LONGEST_S, _MOST_TIMES = 1e10, 1 << 31
#: What was found this moment: an age of 0 means that nobody told it. Seconds.
_MIN_AGE_S = 0.001


def pack(findings: Iterable[Finding]) -> list[pb.Finding]:
    """Writes findings; those beyond `MOST` are left behind."""
    return [_packed(finding) for finding, _ in zip(findings, range(MOST), strict=False)]


def unpack(packed: Iterable[pb.Finding], machine: str, own: Container[int] = ()) -> tuple[Finding, ...]:
    """Reads what `pack` wrote, as found on `machine`. Raises nothing: a bearing that is not known here tells nothing.

    `own` are the ranks it may speak of as its own: nobody has other machines' ranks accused.
    """
    return tuple(_finding(finding, machine, own) for finding, _ in zip(packed, range(MOST), strict=False))


def addresses(packed: Iterable[str]) -> tuple[str, ...]:
    """The addresses that a machine calls its own, without those that every machine has and those that are none. Raises nothing."""
    return tuple(one for one, _ in zip(packed, range(_NAMED), strict=False) if _of_one_machine(one))


def _of_one_machine(text: str) -> bool:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    return not (address.is_loopback or address.is_unspecified or address.is_multicast or address.is_link_local)


def _packed(finding: Finding) -> pb.Finding:
    packed = pb.Finding(
        source=_text(finding.source, _SHORT),
        code=_text(finding.code, _SHORT),
        impact=finding.impact,
        what=_text(finding.what, _LONG),
        device=_text(finding.device, _SHORT),
        at_s=finding.at_s or 0.0,
        uptime_s=finding.uptime_s or 0.0,
        times=min(finding.times, _MOST_TIMES),
        age_s=max(finding.age_s, _MIN_AGE_S) if finding.age_s is not None else 0.0,
        ranks=finding.ranks[:_NAMED],
        peers=[_text(peer, _SHORT) for peer in finding.peers[:_NAMED]],
    )
    if finding.rank is not None:
        packed.rank = finding.rank
    return packed


def _finding(finding: pb.Finding, machine: str, own: Container[int]) -> Finding:
    try:
        impact = Impact(finding.impact)
    except ValueError:
        impact = Impact.TELLS_NOTHING
    return Finding(
        printable(finding.source, _SHORT),
        printable(finding.code, _SHORT),
        impact,
        printable(finding.what, _LONG),
        machine=machine,
        rank=Rank(finding.rank) if finding.HasField("rank") and finding.rank in own else None,
        ranks=tuple(Rank(rank) for rank in finding.ranks[:_NAMED] if rank <= MAX_RANK),
        peers=tuple(printable(peer, _SHORT) for peer in finding.peers[:_NAMED]),
        device=printable(finding.device, _SHORT),
        at_s=_time(finding.at_s),
        uptime_s=_time(finding.uptime_s),
        times=max(1, min(finding.times, _MOST_TIMES)),
        age_s=_time(finding.age_s),
    )


def _time(seconds: float) -> float | None:
    return seconds if math.isfinite(seconds) and 0 < seconds < _LONGEST_S else None


def _text(text: str, most: int) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")[:most]
