"""Mismatched collectives: members of one process group that launched different operations under one number."""

from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from hangdog_models.collectives import COALESCED, WATCHDOG, CollectiveRecord, RankCounters
from hangdog_models.diagnosis.hypotheses.hypothesis import Hypothesis, odds
from hangdog_models.diagnosis.hypotheses.scene import Scene
from hangdog_models.diagnosis.rank_words import ranks_of
from hangdog_models.diagnosis.waits.laggards import ends_together
from hangdog_models.diagnosis.waits.positions import Group, Position, by_group, operation
from hangdog_models.ranks import Rank
from hangdog_models.rules.likelihoods import likelihood
from hangdog_models.verdict import Kind, VerdictReason

#: Operations whose input has the same size on every member. In the others (all_to_all, gather, scatter, sends) sizes
#: may differ. ProcessGroupNCCL writes an all-gather or reduce-scatter of unequal sizes as one `_broadcast_oop` or
#: `_reduce_oop` for each member, whose sizes are equal. NCCL's own such operations end in `_v`.
SAME_SIZE = ("all_reduce", "allreduce", "broadcast", "all_gather", "allgather", "reduce_scatter", "reduce", "barrier")
DISAGREEMENT_SHOWN = likelihood("disagreement_shown")
RUN_AHEAD = likelihood("run_ahead")
#: Groups that are compared. A mismatch stops every group that depends on it, so the first groups show it.
GROUPS_COMPARED = 1 << 14


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Under one number of one group: what the `odd` ranks launched, what the `others` did, and how they differ."""

    group: str
    sequence: int
    odd: tuple[Rank, ...]
    others: tuple[Rank, ...]
    reason: VerdictReason


def find(records: Sequence[RankCounters]) -> tuple[Disagreement, ...]:
    """The first disagreement of each group, among the operations that some rank has not completed."""
    found = []
    for group, positions in sorted(by_group(records).items())[:GROUPS_COMPARED]:
        pending = [p for p in positions.values() if p.completed < p.enqueued]
        if pending and len(positions) > 1:
            entries = {rank: p.record for rank, p in positions.items()}
            first, last = min(p.completed for p in pending) + 1, min(p.enqueued for p in positions.values())
            different = _first(group, first, last, entries)
            different = different or _unbalanced(group, first, last, entries)
            if different:
                found.append(different)
    return tuple(found)


def under_way(records: Sequence[RankCounters], still: Container[Rank]) -> Iterator[Disagreement]:
    """Groups whose members' devices are in different collectives at once, where numbers cannot be compared.

    Until torch 2.7 a batch of sends counts as a collective, so in a sound job the stages of a pipeline have different
    numbers. But a group runs one collective after another. If each member is in one and does not move, they are in the
    same one.
    """
    for group, positions in sorted(by_group(records).items())[:GROUPS_COMPARED]:
        name, members = group
        running = {
            rank: [entry for entry in p.record.entries if entry.group == name and entry.started and not entry.done]
            for rank, p in positions.items()
            if rank in still
        }
        alone = {rank: entries[0] for rank, entries in running.items() if len(entries) == 1 and not entries[0].p2p}
        if len(alone) < max(2, len(members)) or not members or len({one.sequence for one in alone.values()}) == 1:
            continue
        if not any(entry.operation.endswith(COALESCED) for entry in alone.values()):
            launched = {rank: _written(entry) for rank, entry in alone.items()}
            if len(set(launched.values())) > 1:
                yield _apart(name, max(one.sequence for one in alone.values()), launched, f"in process group {name}")


def _first(group: Group, first: int, last: int, records: Mapping[Rank, RankCounters]) -> Disagreement | None:
    stated = _operations(group, records)
    for number in sorted(number for number in stated if first <= number <= last):
        launched = {rank: _written(entry) for rank, entry in stated[number].items()}
        if len(set(launched.values())) > 1:
            return _apart(group[0], number, launched, f"under number {number} of process group {group[0]}")
    return None


def _apart(group: str, number: int, launched: Mapping[Rank, str], where: str) -> Disagreement:
    """`launched`: what each rank launched there, as text."""
    most = Counter(launched.values()).most_common(1)[0][0]
    odd = tuple(sorted(rank for rank, what in launched.items() if what != most))
    others = tuple(sorted(rank for rank, what in launched.items() if what == most))
    words = f"{where} {ranks_of(odd)} launched {launched[odd[0]]}, {ranks_of(others)} {most}"
    return Disagreement(group, number, odd, others, VerdictReason("operations-differ", words))


def _unbalanced(group: Group, first: int, last: int, records: Mapping[Rank, RankCounters]) -> Disagreement | None:
    """The first all-to-all whose members give more or fewer elements in all than they take.

    The sizes of single members differ by nature: tokens are routed. But the sums over all members must be equal.
    """
    members = len(group[1])
    stated = _operations(group, records)
    for number in sorted(number for number in stated if first <= number <= last):
        entries = stated[number]
        if len(entries) < max(2, members) or not members or not all(_is_exchange(entry) for entry in entries.values()):
            continue
        given = sum(_elements(size) for entry in entries.values() for size in entry.input_sizes)
        taken = sum(_elements(size) for entry in entries.values() for size in entry.output_sizes)
        if given != taken:
            words = (
                f"under number {number} of process group {group[0]} {ranks_of(tuple(sorted(entries)))} give {given} "
                f"elements in all and take {taken}: their splits do not fit"
            )
            return Disagreement(group[0], number, (), tuple(sorted(entries)), VerdictReason("splits-differ", words))
    return None


def run_ahead(records: Sequence[RankCounters]) -> Iterator[Disagreement]:
    """Groups of which a member completed two operations, or more, beyond one that another has not completed.

    A group's operations run one after another. So that member cannot have completed the second of them with the other one,
    which had not begun it: what it completed there were other operations. Watchdogs count completions by their devices; a
    recorder's may be late where its process hangs.
    """
    for group, positions in sorted(by_group(records).items())[:GROUPS_COMPARED]:
        known = {rank: p for rank, p in positions.items() if p.record.source == WATCHDOG and p.counts_done}
        late = {rank: p for rank, p in known.items() if p.completed < p.enqueued}
        if not late:
            continue
        ahead = max(p.completed for p in known.values())
        last = min(p.completed for p in late.values())
        behind = tuple(sorted(rank for rank, p in late.items() if p.completed == last))
        what = operation(late[behind[0]], group[0], last + 1)
        if ahead - last < 2 or not _timed_out(late[behind[0]], group[0], last + 1) or not ends_together(what):
            continue
        first = tuple(sorted(rank for rank, p in known.items() if p.completed == ahead))
        words = (
            f"in process group {group[0]} {ranks_of(first)} completed up to {ahead}, and {ranks_of(behind)} not {what} {last + 1}: "
            "such operations end on all members in turn, so these launched different ones"
        )
        yield Disagreement(group[0], last + 1, behind, first, VerdictReason("operations-differ", words))


def _timed_out(position: Position, group: str, number: int) -> bool:
    return any(entry.group == group and entry.sequence == number for entry in position.record.entries)


def _is_exchange(entry: CollectiveRecord) -> bool:
    name = entry.operation.rpartition(":")[2].lstrip("_")
    return name.startswith(("all_to_all", "alltoall")) and bool(entry.input_sizes) and bool(entry.output_sizes)


def _operations(group: Group, records: Mapping[Rank, RankCounters]) -> dict[int, dict[Rank, CollectiveRecord]]:
    stated: dict[int, dict[Rank, CollectiveRecord]] = {}
    for rank, record in records.items():
        for entry in record.entries:
            if entry.group == group[0] and not entry.p2p:
                stated.setdefault(entry.sequence, {})[rank] = entry
    return stated


def _written(entry: CollectiveRecord) -> str:
    """What must be equal on all members: the operation, the element types and, where it must be equal, the size."""
    operation = entry.operation.rpartition(":")[2]
    types = ", ".join(entry.dtypes)
    text = f"{operation} of {types}" if types else operation
    if operation.lstrip("_").startswith(SAME_SIZE) and not operation.endswith("_v") and entry.input_sizes:
        elements = [_elements(size) for size in entry.input_sizes]
        text += f" ({sum(elements)} elements)"
    return text


def _elements(size: Sequence[int]) -> int:
    product = 1
    for length in size:
        product *= length
    return product


def explain(scene: Scene) -> list[Hypothesis]:
    """Software: a program launches another operation under the same number; a machine does not."""
    shown = find(scene.records) or tuple(under_way(scene.records, scene.motion.still))
    if shown:
        return [_of_code(shown[0], DISAGREEMENT_SHOWN, scene)]
    return [_of_code(one, RUN_AHEAD, scene) for one in islice(run_ahead(scene.records), 1)]


def _of_code(one: Disagreement, times: float, scene: Scene) -> Hypothesis:
    clear = 0 < 2 * len(one.odd) < len(one.odd) + len(one.others)
    ranks = one.odd if clear else (*one.odd, *one.others)
    units = tuple(dict.fromkeys(scene.topology.machine(rank) or f"rank {rank}" for rank in ranks))
    because = (one.reason, VerdictReason("waits-for-ever", "each waits for the other for ever"))
    return Hypothesis(Kind.SOFTWARE, odds(one.reason.text, times), ranks, units, because)
