"""Which parallel sizes a job has: as HANGDOG_TOPOLOGY says, else as its command lines do; what contradicts is said."""

from collections.abc import Mapping, Sequence
from math import prod

from hangdog_agent.discovery.command_line import CommandLine
from hangdog_models.counts import counted
from hangdog_models.errors import HangdogError
from hangdog_models.reading.job import read_sizes
from hangdog_models.topology import DEFAULT_ORDER

#: Options that are named in a note.
_SHOWN = 4


def topology(announced: str, lines: Sequence[CommandLine], world: int) -> tuple[str, tuple[str, ...]]:
    """The sizes as HANGDOG_TOPOLOGY would say them, empty where nobody does, and what there is to say of them.

    `lines` are what the command lines of the trainers say, `world` the number of ranks, 0 where it is not known.
    """
    speaking = [line for line in lines if line.given]
    if not speaking:
        return announced, ()
    first = speaking[0]
    options = ", ".join(first.given[:_SHOWN])
    if first.contradicted:
        return announced, (
            f"the command line gives {', '.join(first.contradicted)} twice, with different sizes: not used",
        )
    if any(line.sizes != first.sizes for line in speaking):
        return announced, (f"the command lines of its ranks contradict each other about {options}: not used",)
    if not first.sizes:
        return announced, ()
    if announced:
        return announced, _contradiction(announced, first)
    ways = prod(size for dim, size in first.sizes.items() if dim != "ep")
    if not world or world % ways:
        many = counted(world, "rank") if world else "a number of ranks that is not known"
        return "", (f"the command line says {_written(first.sizes)} ({options}), which does not fit {many}: not used",)
    sizes = {**first.sizes, "dp": world // ways}
    text = ",".join(f"{dim}={sizes[dim]}" for dim in DEFAULT_ORDER if sizes.get(dim, 1) > 1) or f"dp={world}"
    return text, (f"its parallel sizes, {text}, are those of its command line ({options})",)


def _contradiction(announced: str, line: CommandLine) -> tuple[str, ...]:
    try:
        sizes = read_sizes(announced)
    except HangdogError:
        return ()  # the server says so
    differing = {dim: size for dim, size in line.sizes.items() if sizes.get(dim, 1) != size}
    if not differing:
        return ()
    return (f"HANGDOG_TOPOLOGY={announced} is believed, but the command line says {_written(differing)}",)


def _written(sizes: Mapping[str, int]) -> str:
    return ",".join(f"{dim}={size}" for dim, size in sizes.items())
