"""What each failure cost: the time from the job's last progress to its next one, and where the time went."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hangdog_models.recovery.recovery_history import Began, Entry, Finished, Progressed, RecoveryRung, Stepped, Troubled


@dataclass(frozen=True, slots=True)
class Outage:
    """Moments of one failure, in Unix seconds, and the `acts` that were carried out.

    `since`: the last progress; `noticed`: the cause was known; `began`: the job was started again; `over`: it made progress.
    The last two are None until they happen."""

    since: float
    noticed: float
    began: float | None = None
    over: float | None = None
    acts: tuple[RecoveryRung, ...] = ()

    def seconds(self, now: float) -> float:
        """Unproductive seconds; until `now` if the outage lasts."""
        return max(0.0, (now if self.over is None else self.over) - self.since)


def outages(history: Sequence[Entry]) -> tuple[Outage, ...]:
    """All failures of a job, in order. A job without step lines makes progress when it is started."""
    found: list[Outage] = []
    tells_steps = any(isinstance(entry, Progressed) for entry in history)
    for entry in history:
        now_open = found[-1] if found and found[-1].over is None else None
        match entry:
            case Troubled() if now_open is None:
                found.append(Outage(min(entry.since, entry.at), entry.at))
            case Troubled() if now_open is not None:  # it failed again before it made progress: one outage
                found[-1] = replace(now_open, began=None)
            case Stepped() if now_open is not None:
                found[-1] = replace(now_open, acts=(*now_open.acts, entry.step.act))
            case Stepped() if entry.step.act is RecoveryRung.UPDATE:
                found.append(Outage(entry.at, entry.at, acts=(RecoveryRung.UPDATE,)))
            case Began() if now_open is not None:
                found[-1] = replace(now_open, began=entry.at, over=None if tells_steps else entry.at)
            case Progressed() | Finished() if now_open is not None:
                found[-1] = replace(now_open, over=entry.at)
            case _:
                pass
    return tuple(found)
