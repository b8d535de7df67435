"""Which parallel sizes a job has: as HANGDOG_TOPOLOGY says, else its command lines, else its configuration files; what contradicts is said."""

from collections.abc import Mapping, Sequence
from math import prod

from hangdog_agent.discovery.command_line import CommandLine
from hangdog_agent.discovery.config_sizes import ConfigSizes
from hangdog_models.counts import counted
from hangdog_models.errors import HangdogError
from hangdog_models.reading.job import read_sizes
from hangdog_models.topology import DEFAULT_ORDER

#: Options that are named in a note.
_SHOWN = 4


def topology(
    announced: str, lines: Sequence[CommandLine], world: int, files: Sequence[ConfigSizes] = ()
) -> tuple[str, tuple[str, ...]]:
    """The sizes as HANGDOG_TOPOLOGY would say them, empty where nobody does, and what there is to say of them.

    `lines` are what the command lines of the trainers say, `files` what the configuration files that they name, `world` the
    number of ranks, 0 where it is not known.
    """
    speaking = [line for line in lines if line.given]
    first = speaking[0] if speaking else CommandLine()
    options = ", ".join(first.given[:_SHOWN])
    if first.contradicted:
        return announced, (
            f"the command line gives {', '.join(first.contradicted)} twice, with different sizes: not used",
        )
    if any(line.sizes != first.sizes for line in speaking):
        return announced, (f"the command lines of its ranks contradict each other about {options}: not used",)
    if first.given and not first.sizes:
        return announced, ()  # another order of ranks, say: no file changes that
    sizes, source, notes = _with_files(first, files)
    if not sizes:
        return announced, notes
    if announced:
        return announced, (*_contradiction(announced, sizes, source), *notes)
    ways = prod(size for dim, size in sizes.items() if dim != "ep")
    words = f"the {source} says {_written(sizes)}"
    given = ", ".join([*first.given, *(f"{key} in {one.name}" for one in files for key in one.given)][:_SHOWN])
    if not world or world % ways:
        many = counted(world, "rank") if world else "a number of ranks that is not known"
        return "", (f"{words} ({given}), which does not fit {many}: not used", *notes)
    whole = {**sizes, "dp": world // ways}
    text = ",".join(f"{dim}={whole[dim]}" for dim in DEFAULT_ORDER if whole.get(dim, 1) > 1) or f"dp={world}"
    return text, (f"its parallel sizes, {text}, are those of its {source} ({given})", *notes)


def _with_files(line: CommandLine, files: Sequence[ConfigSizes]) -> tuple[Mapping[str, int], str, tuple[str, ...]]:
    """The sizes that line and files say together, in words where they stand, and what there is to say of the files.

    A command line changes what a file says, as all programs have it that take both.
    """
    sizes, notes = dict(line.sizes), []
    source = "command line" if line.sizes else ""
    for one in files:
        if one.problem:
            notes.append(f"the configuration file {one.name} is not used: {one.problem}")
            continue
        if one.contradicted:
            notes.append(f"{one.name} gives {', '.join(one.contradicted)} twice, with different sizes: not used")
            continue
        differing = {dim: size for dim, size in one.sizes.items() if sizes.get(dim, size) != size}
        if differing:
            believed = _written({dim: sizes[dim] for dim in differing})
            notes.append(f"{one.name} says {_written(differing)}, but the {source} {believed}, which is believed")
        if one.sizes.keys() - sizes.keys():
            sizes = {**one.sizes, **sizes}
            source = " and ".join(filter(None, (source, f"configuration file {one.name}")))
    return sizes, source, tuple(notes)


def _contradiction(announced: str, stated: Mapping[str, int], source: str) -> tuple[str, ...]:
    try:
        sizes = read_sizes(announced)
    except HangdogError:
        return ()  # the server says so
    differing = {dim: size for dim, size in stated.items() if sizes.get(dim, 1) != size}
    if not differing:
        return ()
    return (f"HANGDOG_TOPOLOGY={announced} is believed, but the {source} says {_written(differing)}",)


def _written(sizes: Mapping[str, int]) -> str:
    return ",".join(f"{dim}={size}" for dim, size in sizes.items())
