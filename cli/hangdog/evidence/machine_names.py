"""Finds the machine of a log or a tool's output where no `machine-<NAME>` folder tells it, by the names that the job knows."""

import re
from collections.abc import Collection

from hangdog_models.ranks import MAX_RANK
from hangdog_models.topology import Layout

_NUMBERED = re.compile(r"node-(\d{1,7})")
#: Parts of one word of a path that are joined to find a name, and characters of a path that are looked at.
_PARTS, _LONGEST = 12, 512


def host_in(path: str, hosts: Collection[str]) -> str | None:
    """The one of these hosts, which logs name, whose name stands as a word in a path."""
    return machine_in(path, Layout(machines=dict.fromkeys(hosts, ()))) if hosts else None


def machine_in(path: str, layout: Layout) -> str | None:
    """The one machine of the job whose name stands as a word in a path (`gpu-a17/dmesg.txt`, `dmesg_gpu-a17.log`)."""
    found: set[str] = set()
    for word in re.split(r"[/_]", path[-_LONGEST:]):
        parts = re.split(r"([.-])", word)[: 2 * _PARTS]
        for begin in range(0, len(parts), 2):
            for end in range(begin + 1, len(parts) + 1, 2):
                name = "".join(parts[begin:end])
                if _is_machine(name, layout):
                    found.add(name)
    longest = max((len(name) for name in found), default=0)
    best = [name for name in found if len(name) == longest]
    return best[0] if len(best) == 1 else None


def only_machine(layout: Layout) -> str | None:
    """The machine of a job that has one; None where it has several, or nothing tells."""
    if layout.machines:
        return next(iter(layout.machines)) if len(layout.machines) == 1 else None
    world, per = _world(layout), layout.ranks_per_machine
    return "node-0" if per and 0 < world <= per else None


def _is_machine(name: str, layout: Layout) -> bool:
    if name in layout.machines:
        return not name.isdigit()  # a number in a path may count anything
    numbered = _NUMBERED.fullmatch(name)
    if numbered is None or not layout.ranks_per_machine or layout.machines:
        return False
    return int(numbered[1]) * layout.ranks_per_machine < (_world(layout) or MAX_RANK)


def _world(layout: Layout) -> int:
    return layout.world_size or layout.product() or 0
