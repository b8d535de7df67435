"""Which machines of a job share a switch, a rack or an NVLink domain: by what Slurm tells its tasks, or by their nodes' labels.

One level is used: of those that put machines together, the one with the fewest in one place.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

from hangdog_models import counts
from hangdog_models.rules import node_labels

#: By its name the machines behind each switch.
Switches = Mapping[str, tuple[str, ...]]
#: Contradictions of one job that are told.
_MOST_NOTES = 3


class NetworkPlace(Protocol):
    """Where a machine hangs: `switch` as Slurm says, `domains` as its node's labels do, each as `label=value`."""

    @property
    def switch(self) -> str: ...
    @property
    def domains(self) -> tuple[str, ...]: ...


@dataclass(frozen=True, slots=True)
class SharedSwitches:
    """The switches of a job, and what is contradictory about them, in words."""

    switches: Switches
    notes: tuple[str, ...] = ()


def shared(declared: Switches, announced: Mapping[str, NetworkPlace]) -> SharedSwitches:
    """What a person declares goes before what Slurm says, and that before labels; where they contradict, it is noted."""
    levels = _levels(announced)
    narrowest = min(filter(_groups, _usable(levels)), key=_largest, default={})
    sources = (("job.toml", declared), ("Slurm", _of_slurm(announced)), ("the nodes' labels", narrowest))
    given = [(who, switches) for who, switches in sources if switches]
    if not given:
        return SharedSwitches({}, tuple(_incomplete(announced, levels)))
    (who, believed), *others = given
    notes = [*_contradicted(who, believed, others), *_torn(levels)]
    return SharedSwitches(believed, tuple(notes[:_MOST_NOTES]))


def _of_slurm(announced: Mapping[str, NetworkPlace]) -> Switches:
    """The machines behind each switch; nothing where one is behind all of them, or a machine's is not known."""
    found = _by_name((machine, local.switch) for machine, local in announced.items())
    return {} if "" in found or len(found) < 2 else found


def _levels(announced: Mapping[str, NetworkPlace]) -> dict[str, Switches]:
    """By label the machines of each of its values; only what all machines carry."""
    by_label: dict[str, dict[str, str]] = {}
    for machine, local in announced.items():
        for domain in local.domains:
            by_label.setdefault(_label(domain), {})[machine] = domain
    return {label: _by_name(of.items()) for label, of in by_label.items() if len(of) == len(announced)}


def _usable(levels: Mapping[str, Switches]) -> Iterator[Switches]:
    """Of each family the narrowest level there is."""
    for family in node_labels.families():
        if (label := next(filter(levels.__contains__, family.used), None)) is not None:
            yield levels[label]


def _label(domain: str) -> str:
    return domain.partition("=")[0]


def _by_name(placed: Iterable[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for machine, name in sorted(placed):
        found.setdefault(name, []).append(machine)
    return {name: tuple(machines) for name, machines in found.items()}


def _groups(switches: Switches) -> bool:
    """Whether it tells machines apart, and puts some together."""
    return len(switches) > 1 and _largest(switches) > 1


def _largest(switches: Switches) -> int:
    return max(map(len, switches.values()), default=0)


def _incomplete(announced: Mapping[str, NetworkPlace], levels: Mapping[str, Switches]) -> Iterator[str]:
    """Why labels that some machines carry are of no use."""
    used = {label for family in node_labels.families() for label in family.used}
    silent = [name for name, local in announced.items() if used.isdisjoint(map(_label, local.domains))]
    if silent and len(silent) < len(announced):
        yield f"which machines share a switch is not known: no label of {counts.named(silent)} tells it, as others' do"
    elif announced and not silent and used.isdisjoint(levels):
        yield "which machines share a switch is not known: their nodes carry labels of different kinds"


def _contradicted(who: str, believed: Switches, others: Sequence[tuple[str, Switches]]) -> Iterator[str]:
    for other, switches in others:
        if (pair := _crossing(believed, switches)) is not None:
            one, two, three = pair
            yield (
                f"{who} is believed, but {other} contradict{'s' if other == 'Slurm' else ''} it about switches: "
                f"{one} is together with {two} there, and with {three} here"
            )


def _crossing(believed: Switches, others: Switches) -> tuple[str, str, str] | None:
    """A machine, one that only the others put together with it, and one that only the believed do.

    None where each lies within one of the other, as a leaf's machines within a spine's.
    """
    theirs = {machine for machines in others.values() for machine in machines}
    here = {machine: frozenset(machines) & theirs for machines in believed.values() for machine in machines}
    for machines in others.values():
        there = frozenset(machines) & here.keys()
        for mine in sorted({here[machine] for machine in there}, key=min):
            if (more := there - mine) and (fewer := mine - there):
                return min(mine & there), min(more), min(fewer)
    return None


def _torn(levels: Mapping[str, Switches]) -> Iterator[str]:
    """Values that lie within several of a wider label of the same family: one of them is wrong, or old."""
    for family in node_labels.families():
        present = [label for label in family.labels if label in levels]
        for narrow, wide in pairwise(present):
            above = {machine: name for name, machines in levels[wide].items() for machine in machines}
            for name, machines in levels[narrow].items():
                if len(several := {above[machine] for machine in machines}) > 1:
                    yield f"the nodes' labels contradict each other: {name} is below {counts.named(several)}"
