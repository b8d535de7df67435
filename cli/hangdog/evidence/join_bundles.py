"""Joins the bundles of several machines, as each captured its own part of one job, into one.

Rounds are joined by their order, for the clocks of two machines differ. What a bundle says of machines holds within it: its
files keep their machine, and a rank that two machines claim is that of the bundle that was named first.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from hangdog.evidence.bundle_parts import BundleParts
from hangdog.evidence.content import Failure, ReadRequest, StackFile
from hangdog.evidence.placed import Placed
from hangdog.evidence.whose.placing import with_folders
from hangdog_models.errors import WrongUse
from hangdog_models.ranks import Rank, format_ranks
from hangdog_models.snapshot import Job
from hangdog_models.stack import ProcessState
from hangdog_models.topology import DEFAULT_ORDER, Layout

#: A bundle with the name that its files are told by.
Named = tuple[str, BundleParts]
Stated = TypeVar("Stated")


def join(bundles: Sequence[Named]) -> BundleParts:
    """One bundle of several; raises WrongUse where they are of different jobs."""
    whole = BundleParts(job=_job(bundles))
    placed_by = {label: with_folders(part.layout, part.placed)[0].machines for label, part in bundles}
    owners = _Owners(whole.notes)
    for label, part in bundles:
        claimed = owners.take(label, placed_by[label])
        whole.placed += _placed(label, part, placed_by[label], claimed)
        whole.files_read += part.files_read
        whole.ignored += [f"{label}/{path}" for path in part.ignored]
        whole.last_errors |= {f"{label}/{path}": words for path, words in part.last_errors.items()}
        whole.unreadable |= {label if path == "." else f"{label}/{path}": why for path, why in part.unreadable.items()}
        whole.notes += part.notes
    whole.interval_s = min((part.interval_s for _, part in bundles if part.interval_s is not None), default=None)
    whole.layout = _layout([(label, part.layout) for label, part in bundles], owners.machines(), whole.notes)
    return whole


@dataclass(frozen=True, slots=True)
class _Claimed:
    """Ranks of a bundle that an earlier one has: `elsewhere` on another machine, `again` on the same."""

    elsewhere: frozenset[Rank]
    again: frozenset[Rank]

    def drops(self, file: Placed) -> bool:
        """Whether a file is not used: of a rank that was captured twice the first capture counts, and all that was counted."""
        seen = isinstance(file.content, StackFile | ProcessState | Failure)
        return file.name.rank in self.elsewhere or (seen and file.name.rank in self.again)


class _Owners:
    """Which machine has which rank, by the bundle that was named first; `notes` are added to."""

    def __init__(self, notes: list[str]) -> None:
        self._notes = notes
        self._owners: dict[Rank, tuple[str, str]] = {}

    def take(self, label: str, machines: Mapping[str, Sequence[Rank]]) -> _Claimed:
        """Takes note of a bundle's machines; which of its ranks another bundle has already is noted."""
        claims: dict[tuple[str, str, str], list[Rank]] = {}
        for machine, ranks in machines.items():
            for rank in ranks:
                owner, first = self._owners.setdefault(rank, (machine, label))
                if first != label:
                    claims.setdefault((owner, first, machine), []).append(rank)
        for (owner, first, machine), ranks in claims.items():
            which = f"rank{'' if len(ranks) == 1 else 's'} {format_ranks(sorted(ranks))}"
            self._notes.append(
                f"{which} of machine {owner}: in {first} and in {label}; the first is used"
                if owner == machine
                else f"{which}: on machine {owner} ({first}) and on machine {machine} ({label}); what is of {owner} is used. "
                "Are these two jobs, or was a process left over?"
            )
        return _Claimed(
            frozenset(rank for (owner, _, machine), ranks in claims.items() if owner != machine for rank in ranks),
            frozenset(rank for (owner, _, machine), ranks in claims.items() if owner == machine for rank in ranks),
        )

    def machines(self) -> dict[str, tuple[Rank, ...]]:
        found: dict[str, list[Rank]] = {}
        for rank, (machine, _) in sorted(self._owners.items()):
            found.setdefault(machine, []).append(rank)
        return {machine: tuple(ranks) for machine, ranks in found.items()}


def _placed(
    label: str, part: BundleParts, machines: Mapping[str, Sequence[Rank]], claimed: _Claimed
) -> Iterable[Placed]:
    """A bundle's evidence as that of its machines, its rounds counted from 0."""
    of = {rank: machine for machine, ranks in machines.items() for rank in ranks}
    named = {*machines, *(file.name.machine for file in part.placed if file.name.machine is not None)}
    sole = named.pop() if len(named) == 1 else None
    numbers = sorted({file.name.round for file in part.placed if file.name.round is not None})
    order = {number: place for place, number in enumerate(numbers)}
    for file in part.placed:
        name = file.name
        if claimed.drops(file):
            continue
        machine = name.machine or (of.get(name.rank, sole) if name.rank is not None else sole)
        if isinstance(file.content, ReadRequest):  # reports of one round are united, one of each machine
            machine = f"{label}/{machine or ''}"
        number = None if name.round is None else order[name.round]
        yield replace(file, name=replace(name, path=f"{label}/{name.path}", machine=machine, round=number))


def _job(bundles: Sequence[Named]) -> Job:
    ids = {part.job.id: label for label, part in reversed(bundles) if part.job.id}
    if len(ids) > 1:
        named = ", ".join(f"{label}: {name}" for name, label in sorted(ids.items(), key=lambda item: item[1]))
        raise WrongUse(f"these are bundles of different jobs ({named})", "give those of one job", code="different-jobs")
    stalled = [part.job.stalled_s for _, part in bundles if part.job.stalled_s is not None]
    framework = next((part.job.framework for _, part in bundles if part.job.framework), "")
    return Job(next(iter(ids), ""), framework, max(stalled, default=None))


def _layout(
    layouts: Sequence[tuple[str, Layout]], machines: Mapping[str, tuple[Rank, ...]], notes: list[str]
) -> Layout:
    def stated(what: str, values: Sequence[tuple[str, Stated]], unsaid: Stated) -> Stated:
        """The first word of all bundles; a different one is noted."""
        given = [(label, value) for label, value in values if value != unsaid]
        if not given:
            return unsaid
        notes.extend(
            f"{what}: {label} says otherwise than {given[0][0]}, which is believed"
            for label, value in given[1:]
            if value != given[0][1]
        )
        return given[0][1]

    return Layout(
        world_size=stated("world size", [(label, one.world_size) for label, one in layouts], None),
        order=stated("order", [(label, tuple(one.order)) for label, one in layouts], DEFAULT_ORDER),
        sizes=stated("parallel sizes", [(label, dict(one.sizes)) for label, one in layouts], {}),
        ranks_per_machine=stated("gpus_per_node", [(label, one.ranks_per_machine) for label, one in layouts], None),
        groups={dim: groups for _, one in reversed(layouts) for dim, groups in one.groups.items()},
        machines=machines,
        switches={name: inside for _, one in reversed(layouts) for name, inside in one.switches.items()},
    )
