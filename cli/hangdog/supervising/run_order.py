"""What a supervisor is told: what to run on which machines, and by which hooks others carry out its steps."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hangdog_models.errors import WrongUse
from hangdog_models.recovery.recovery_history import RecoveryRung

#: What may stand in the command, and is replaced at each start.
PLACES = ("machine", "index", "machines", "first", "active", "port", "attempt")
_PLACE = re.compile("{(" + "|".join(PLACES) + ")}")


@dataclass(frozen=True, slots=True)
class RunOrder:
    """`once`: the command is started once for all machines, not once on each. Times are in seconds."""

    command: tuple[str, ...]
    machines: tuple[str, ...]
    spares: tuple[str, ...]
    job: str
    state: Path
    once: bool = False
    #: By act: a command line, or the URL of a webhook.
    hooks: Mapping[RecoveryRung, str] = field(default_factory=dict)
    #: A replay, the longest thing a hook does, took two hours at most in ByteRobust's production.
    hook_s: float = 7200.0
    #: From SIGTERM to SIGKILL: time for a job that is stopped for an update to write a checkpoint.
    grace_s: float = 10.0
    #: A verdict that names nobody is waited upon for so long: the server looks again after 10 s, then after 20.
    patience_s: float = 60.0
    #: The levels that a spare passes before it takes a place; none: it is believed to be sound, and takes it at once.
    levels: tuple[int, ...] = ()
    #: The tests of the spares of one eviction, which the job waits for: one launch of each level, planned with 35 to 40 s, twice
    #: over where it takes half of that.
    test_s: float = 180.0
    #: For how long a pass of a test ahead counts; 0: spares are tested when they are needed.
    ahead_s: float = 0.0
    #: The command that prepares a spare, once for each; empty: nothing is prepared.
    warm: str = ""


def machines_in_use(order: RunOrder, out: Collection[str], fit: Collection[str] = ()) -> tuple[str, ...]:
    """The machines the job runs on, with a spare in the place of each that is out; raises WrongUse where none is left.

    Where spares are tested, only those that are `fit` take a place, in that order.
    """
    left = [name for name in order.spares if name not in out]
    if order.levels:
        left = [name for name in fit if name in left]
    found = []
    for name in order.machines:
        if name in out and not left:
            raise WrongUse(
                f"{name} is evicted, and no spare is left", "name another spare: --spare NAME", code="no-spare-left"
            )
        found.append(left.pop(0) if name in out else name)
    return tuple(found)


def commands(order: RunOrder, machines: Sequence[str], port: int, attempt: int) -> dict[str, tuple[str, ...]]:
    """The command line of each process, by the machine it stands for: with `once` one, on the first."""
    found = {}
    for index, machine in enumerate(machines[:1] if order.once else machines):
        values = {
            "machine": machine,
            "index": str(index),
            "machines": str(len(machines)),
            "first": machines[0],
            "active": ",".join(machines),
            "port": str(port),
            "attempt": str(attempt),
        }
        found[machine] = tuple(_filled(word, values) for word in order.command)
    return found


def _filled(word: str, values: Mapping[str, str]) -> str:
    return _PLACE.sub(lambda place: values[place[1]], word)
