"""Flight records that processes dumped by themselves, before they were requested: their counts may be out of date."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from hangdog_models.collectives import INSPECTOR, RankCounters
from hangdog_models.ranks import Rank, format_ranks
from hangdog_models.rules.likelihoods import likelihood
from hangdog_models.snapshot import Snapshot

RECORD_ASKED_S = likelihood("record_asked_s")
#: What is said of each source that is not PyTorch's.
_NAMES = {INSPECTOR: "NCCL Inspector dump"}


def current(snapshot: Snapshot, stalled_s: float | None, stepped: Sequence[Rank]) -> Snapshot:
    """The snapshot without the outdated records; its notes say what became of each one dumped early.

    - `stalled_s`: the seconds for which nothing had moved, as far as known.
    - `stepped`: ranks whose job was seen to advance between the rounds.
    """
    if not any(record.age_s for record in snapshot.counters):
        return snapshot
    counting: list[RankCounters] = []
    became: dict[tuple[int, str, str], list[Rank]] = {}
    for record in snapshot.counters:
        why = _history(record, snapshot.counters, stalled_s or 0.0, stepped) if record.age_s else ""
        if not why:
            counting.append(record)
        if record.age_s:
            became.setdefault((record.age_s, why, _NAMES.get(record.source, "flight record")), []).append(record.rank)
    notes = (*snapshot.account.notes, *_notes(became))
    return replace(snapshot, counters=tuple(counting), account=replace(snapshot.account, notes=notes))


def _history(record: RankCounters, records: Sequence[RankCounters], stalled_s: float, stepped: Sequence[Rank]) -> str:
    """Why a record dumped early no longer counts; empty where it may."""
    if stepped:
        return "the job has got on since"
    if record.age_s > stalled_s + RECORD_ASKED_S:
        return "the job may have got on since, for nothing shows that it stood still then"
    if any(_overtakes(other, record) for other in records if other.age_s < record.age_s):
        return "another rank has completed since what it had not entered then"
    return ""


def _overtakes(newer: RankCounters, older: RankCounters) -> bool:
    """Whether a newer record has completed a collective that an older record of the same group had not entered."""
    return any(
        newer.completed.get(group, -1) > entered
        for group, entered in older.enqueued.items()
        if newer.members.get(group) == older.members.get(group)
    )


def _notes(became: dict[tuple[int, str, str], list[Rank]]) -> Iterator[str]:
    for (age_s, why, name), ranks in sorted(became.items(), key=lambda item: item[1]):
        if len(ranks) == 1:
            wrote = (
                f"the {name} of rank {ranks[0]} was written {age_s} s before it was asked for, by its process itself"
            )
            yield f"{wrote}, and does not count: {why}" if why else wrote
        else:
            wrote = f"the {name}s of ranks {format_ranks(ranks)} were written {age_s} s before they were asked for"
            wrote += ", by their processes themselves"
            yield f"{wrote}, and do not count: {why}" if why else wrote
