"""Reads the warnings of XLA's collectives on one machine: which participants wait at a rendezvous, and who has not come.

`rank` in such a line is the place of a participant in `global_devices`. All participants write into one log only where all
of them are local to one process.
"""

import re
from dataclasses import dataclass, field

from hangdog_models.findings import Finding, Impact
from hangdog_models.ranks import MAX_RANK, Rank, format_ranks

CODE = "XLA rendezvous"
_STUCK = re.compile(
    r"(waiting for \d{1,9}ms for and may be stuck|Thread is unstuck!).{0,120}?: participant"
    r" (?:\w{1,64}\{rank=(?P<place>\d{1,7}),|for device ordinal (?P<device>\d{1,7}),)"
    r".{0,400}?run_id=RunId: (?P<run>\d{1,20}), global_devices=\[(?P<devices>[\d,]{1,7000})\], num_local_participants=(?P<local>\d{1,7}),"
    r" collective_op_kind=(?P<kind>\w{1,40}), op_id=(?P<id>-?\d{1,20})"
)
#: Rendezvous that are kept, and participants of each that get a finding of their own.
_MOST = 64


@dataclass(frozen=True, slots=True)
class LocalRendezvous:
    """One rendezvous: the operation, the devices that take part, and how many of them belong to the process."""

    run: int
    operation: str
    devices: tuple[int, ...]
    local: int


@dataclass(slots=True)
class RendezvousWaits:
    """Who waits at which rendezvous: places in its list of devices."""

    waiting: dict[LocalRendezvous, set[int]] = field(default_factory=dict)

    def take(self, line: str) -> bool:
        """Notes a line; true if it tells of a rendezvous. Who was let go waits no longer."""
        found = _STUCK.search(line)
        if found is None:
            return False
        devices = tuple(int(number) for number in found["devices"].split(",") if number and len(number) <= 7)
        operation = f"{found['kind']} {found['id']}"
        one = LocalRendezvous(int(found["run"]), operation, devices, int(found["local"]))
        place = int(found["place"] or found["device"])  # before 2022 a device's number on its machine stands there
        if not found[1].startswith("waiting"):
            self.waiting.get(one, set()).discard(place)
        elif place < len(devices) and (one in self.waiting or len(self.waiting) < _MOST):
            self.waiting.setdefault(one, set()).add(place)
        return True

    def findings(self, source: str, alone: bool) -> list[Finding]:
        """Those who wait are victims. `alone`: nothing else tells ranks, so devices may stand for them."""
        open_ = {one: places for one, places in self.waiting.items() if places}
        if not open_:
            return []
        if crossed := _different(source, open_):
            return [crossed]
        one, places = list(open_.items())[-1]
        # The last one is where the process stands now.
        at = f"{len(places)} of {one.local} participants of this process wait at an XLA rendezvous"
        if not alone or one.local != len(one.devices) or max(one.devices) > MAX_RANK:
            return [Finding(source, CODE, Impact.VICTIM, f"{at} for the others")]
        missing = tuple(sorted(Rank(device) for place, device in enumerate(one.devices) if place not in places))
        if not missing:
            return [Finding(source, CODE, Impact.VICTIM, f"{at}, and all have come")]
        what = f"{at}; device{'' if len(missing) == 1 else 's'} {format_ranks(missing)} did not come"
        return [
            Finding(source, CODE, Impact.VICTIM, what, rank=Rank(one.devices[place]), ranks=missing)
            for place in sorted(places)[:_MOST]
        ]


def _different(source: str, waiting: dict[LocalRendezvous, set[int]]) -> Finding | None:
    """Participants of one run at different operations, none of them at both: each side waits for the other."""
    last, places = list(waiting.items())[-1]
    for one, others in waiting.items():
        alike = (one.run, one.devices) == (last.run, last.devices)
        if alike and one.operation != last.operation and places.isdisjoint(others):
            what = (
                f"devices wait at different XLA operations for each other: {one.operation} and {last.operation}, "
                f"in one run of the program"
            )
            return Finding(source, "mismatched collectives", Impact.PROGRAM, what)
    return None
