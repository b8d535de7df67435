"""What NCCL's diagnostics say of GPUs that could not reach each other: a pair names two ends, several pairs the end they share."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from hangdog_models.findings import NCCL_DIAGNOSTICS, Finding, Impact
from hangdog_models.ranks import MAX_RANK, Rank

#: `p2p: write mismatch srcRank=0 srcCudaDev=0 srcNvmlDev=0 dstRank=3 dstCudaDev=3 dstNvmlDev=3 path=NVL handle=CUMEM_POSIX_FD …`
_EDGE = re.compile(
    r"p2p: ([\w/ -]{1,64}?) srcRank=(\d{1,7}) srcCudaDev=-?\d{1,4} srcNvmlDev=(-?\d{1,4}) "
    r"dstRank=(\d{1,7}) dstCudaDev=-?\d{1,4} dstNvmlDev=(-?\d{1,4}) path=(\w{1,8}) handle=(\w{1,32})"
)
#: Data that came through wrong. The rest (no buffer, no import, no launch) may be a program's or a container's doing.
_WRONG = ("write mismatch", "read mismatch")
#: Paths that may lead to another machine, whose line does not tell which.
_ABROAD = ("CUMEM_FABRIC", "NET")
#: A GPU is the common end of so many failing pairs at least.
_SEVERAL = 2


@dataclass(frozen=True, slots=True)
class Edge:
    """One access from a GPU to another that failed; `host` printed it, for GPUs of its own unless the path leads `abroad`."""

    host: str
    what: str
    ranks: tuple[Rank, Rank]
    devices: tuple[int, int]
    abroad: bool


def edge(host: str, words: str) -> Edge | None:
    """The access that a line tells of; None for a line of another kind."""
    found = _EDGE.match(words)
    if found is None:
        return None
    what, source, device, target, other, path, handle = found.groups()
    if max(int(source), int(target)) > MAX_RANK:
        return None
    abroad = handle in _ABROAD or path in _ABROAD
    return Edge(host, what, (Rank(int(source)), Rank(int(target))), (int(device), int(other)), abroad)


def findings(edges: Sequence[tuple[Edge, int]]) -> Iterator[tuple[Finding, int]]:
    """Findings with the size of the communicator that numbers their ranks, from the failed accesses of a whole text."""
    partly = {one.host for one, _ in edges if one.abroad}
    inside: dict[tuple[str, int], list[Edge]] = {}
    for one, size in edges:
        if one.abroad or one.host in partly:
            what = f"the GPUs of ranks {one.ranks[0]} and {one.ranks[1]} cannot reach each other ({one.what})"
            yield Finding(NCCL_DIAGNOSTICS, "P2P failed", Impact.PATH, what, rank=one.ranks[0], ranks=one.ranks), size
        else:
            inside.setdefault((one.host, size), []).append(one)
    for (_, size), alike in inside.items():
        yield _of_machine(alike), size


def _of_machine(edges: Sequence[Edge]) -> Finding:
    """One machine's failed accesses: of one GPU with several others, of one pair, or of many pairs without a common end."""
    first = edges[0]
    pairs = {frozenset(one.devices) for one in edges}
    wrong = any(one.what in _WRONG for one in edges)
    names = ", ".join(sorted({one.what for one in edges}))
    code = "P2P wrong data" if wrong else "P2P failed"
    common = set.intersection(*map(set, pairs))
    if len(pairs) >= _SEVERAL and len(common) == 1:
        (device,) = common
        rank = next(r for one in edges for r, d in zip(one.ranks, one.devices, strict=True) if d == device)
        what = f"GPU {device} and {len(pairs)} other GPUs of its machine cannot reach each other ({names})"
        return Finding(
            NCCL_DIAGNOSTICS, code, Impact.RESET if wrong else Impact.SUSPECTS, what, first.host, rank, str(device)
        )
    if len(pairs) == 1:
        one, other = sorted(first.devices)
        what = f"GPUs {one} and {other} of one machine cannot reach each other ({names}): one of them, or what connects them"
        return Finding(NCCL_DIAGNOSTICS, code, Impact.PATH, what, first.host, first.ranks[0], ranks=first.ranks)
    what = f"{len(pairs)} pairs of GPUs of one machine cannot reach each other ({names}), with no GPU in common: a setting of the host"
    return Finding(NCCL_DIAGNOSTICS, code, Impact.SUSPECTS, what, first.host, _lowest(edges))


def _lowest(edges: Iterable[Edge]) -> Rank:
    return min(rank for one in edges for rank in one.ranks)
