"""Takes the number at the end of a file's name for its rank, where all of its kind in a folder have one of their own."""

from collections.abc import Sequence
from dataclasses import replace

from hangdog.evidence.content import OWNERLESS, Content, StackFile, UnnamedRecord
from hangdog.evidence.naming import number_of
from hangdog.evidence.placed import Placed
from hangdog.evidence.whose.trainers import holds_several
from hangdog_models.ranks import MAX_RANK, Rank, format_ranks
from hangdog_models.topology import Layout


def numbered(found: Sequence[Placed], layout: Layout) -> tuple[list[Placed], list[str]]:
    """The same files, with the rank that their numbers tell; and a note for each folder of which that was believed.

    A number may be a process id as well, or a machine's where each file holds several trainers. So recorder dumps must list it among the ranks of their groups, if they list any;
    other files must be as many as their numbers say, from 0 on, or stay below the number of ranks that was declared.
    """
    kinds: dict[tuple[str, type[Content]], list[Placed]] = {}
    for file in found:
        if not isinstance(file.content, OWNERLESS):
            kinds.setdefault((file.name.path.rpartition("/")[0], type(file.content)), []).append(file)
    world = layout.world_size or layout.product()
    ranks: dict[str, Rank] = {}
    notes = []
    for (folder, _), files in sorted(kinds.items(), key=lambda item: item[0][0]):
        numbers = {file.name.path: number_of(file.name.path) for file in files if file.name.rank is None}
        values = sorted(number for number in numbers.values() if number is not None and number < MAX_RANK)
        if len(numbers) == len(files) == len(set(values)) and all(_fits(file, values, world) for file in files):
            ranks.update((path, Rank(number)) for path, number in numbers.items() if number is not None)
            where = f"of {folder}" if folder else "at the root"
            notes.append(
                f"no rank in the names {where}, as in {min(numbers)}: the number at their end is taken for it, ranks "
                + format_ranks(Rank(number) for number in values)
            )
    return [_owned(file, ranks.get(file.name.path)) for file in found], notes


def _fits(file: Placed, values: Sequence[int], world: int | None) -> bool:
    number = number_of(file.name.path)
    if isinstance(file.content, UnnamedRecord):
        groups = file.content.record.members.values()
        return all(number in ranks for ranks in groups) if groups else _in_order(values, world)
    if isinstance(file.content, StackFile) and holds_several(file.content):
        return False
    return len(values) > 1 and _in_order(values, world)


def _in_order(values: Sequence[int], world: int | None) -> bool:
    return values[-1] < world if world else values[-1] == len(values) - 1


def _owned(file: Placed, rank: Rank | None) -> Placed:
    """The file with its rank, a record with that of its file."""
    name = file.name if rank is None else replace(file.name, rank=rank)
    content = file.content
    if isinstance(content, UnnamedRecord) and rank is not None:
        content = replace(content.record, rank=rank)
    return replace(file, name=name, content=content)
