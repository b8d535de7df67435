"""Which findings of a machine's checks are news that an incident should tell: those that convict, and those that strike twice.

`now` is in seconds on a steady clock. Nothing here waits.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from hangdog_models.findings import Finding, Impact

#: What speaks against a machine without convicting it: once may be chance.
_MAY_HEAL = frozenset({Impact.RESET, Impact.SUSPECTS})
#: So many strikes within the window are no chance.
STRIKES = 2
#: Strikes remembered of one part of a machine.
_REMEMBERED = 8

#: Code and device.
_Part = tuple[str, str]


@dataclass(slots=True)
class _Shown:
    """What one machine showed last: its convicting findings, and how many there were of each part; and when each struck."""

    convicting: frozenset[_Part] = frozenset()
    counts: Counter[_Part] = field(default_factory=Counter)
    strikes: dict[_Part, list[float]] = field(default_factory=dict)


class CheckStrikes:
    """What the machines of a cluster showed; `window_s` is how near to each other two strikes are."""

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._machines: dict[str, _Shown] = {}

    def strike(self, machine: str, findings: Sequence[Finding], first: bool, now: float) -> tuple[Finding, ...]:
        """The findings that are news; `first`: since its agent is connected, so that nobody saw them begin.

        A finding that lasts strikes once. Whoever comes back with it has not struck again.
        """
        before = _Shown() if first else self._machines.get(machine, _Shown())
        counts = Counter((one.code, one.device) for one in findings)
        convicting = frozenset((one.code, one.device) for one in findings if one.impact is Impact.CONVICTS)
        strikes: dict[_Part, list[float]] = {}
        for part in counts.keys() | before.strikes.keys():
            ages = [one.age_s or 0.0 for one in findings if (one.code, one.device) == part] if first else []
            new = [now - age for age in ages] or [now] * (counts[part] - before.counts[part])
            recent = [at for at in (*before.strikes.get(part, ()), *new) if now - at <= self._window_s]
            if recent:
                strikes[part] = recent[-_REMEMBERED:]
        twice = {part for part, moments in strikes.items() if len(moments) >= STRIKES}
        found = [
            one
            for one in findings
            if ((one.code, one.device) in convicting - before.convicting and one.impact is Impact.CONVICTS)
            or ((one.code, one.device) in twice and one.impact in _MAY_HEAL)
        ]
        opening = {(one.code, one.device) for one in found}
        kept = {part: moments for part, moments in strikes.items() if part not in opening}
        if findings or kept:
            self._machines[machine] = _Shown(convicting, counts, kept)
        else:
            self._machines.pop(machine, None)
        return tuple(found)
