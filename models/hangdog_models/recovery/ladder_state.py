"""The state of a job on the recovery ladder, worked out from its history."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hangdog_models.recovery.recovery_history import (
    MERGES,
    TESTS,
    Began,
    Entry,
    Finished,
    MachinesChanged,
    OutageOpened,
    RecoveryRung,
    SpareOutcome,
    SpareTested,
    Steady,
    StepDone,
    Stepped,
    Tried,
)

#: Seconds of the window in which all steps are counted.
DAY_S = 86400.0


@dataclass(frozen=True, slots=True)
class LadderState:
    """What is known of a job's episode and its machines.

    - `climbed`: how often each rung was used in this episode; `lately`: steps within 24 hours; `called`: a person was.
    - `out`: machines ever evicted, or failed as spares; `convicted`: by tests, and still in the job.
    - `fit`: machines that the job ever ran on, then spares that passed their last test; `tested`: since the last start.
    - `pending`: changes not merged yet; `merged`: the last merged ones, which may be rolled back.
    """

    climbed: Mapping[RecoveryRung, int]
    out: tuple[str, ...]
    fit: tuple[str, ...]
    convicted: tuple[str, ...]
    tested: frozenset[RecoveryRung]
    pending: tuple[MachinesChanged, ...]
    merged: tuple[str, ...]
    lately: int
    called: bool


def stand(history: Sequence[Entry], now: float) -> LadderState:
    """Reads a history from its first entry to its last."""
    climbed: Counter[RecoveryRung] = Counter()
    out: dict[str, None] = {}
    used: dict[str, None] = {}
    passed: tuple[str, ...] = ()
    convicted: dict[str, None] = {}
    tested: set[RecoveryRung] = set()
    pending: dict[str, MachinesChanged] = {}
    known: set[str] = set()
    merged: tuple[str, ...] = ()
    steps: dict[int, Stepped] = {}
    called = False
    for entry in history:
        match entry:
            case OutageOpened():
                climbed, called = (Counter(), False) if called else (climbed, called)
            case Steady() | Finished():
                climbed = Counter()
            case Began():
                tested.clear()
                used.update(dict.fromkeys(entry.machines))
            case Tried():
                passed = entry.passed
                out.update(dict.fromkeys(entry.failed))
                convicted = {machine: None for machine in convicted if machine not in entry.failed}
            case SpareTested(outcome=SpareOutcome.CONVICTED):
                out[entry.machine] = None
                convicted.pop(entry.machine, None)
            case MachinesChanged() if entry.name not in known:
                known.add(entry.name)
                pending[entry.name] = entry
            case Stepped(step=step):
                steps[entry.number] = entry
                climbed[step.act] += 1
                called = called or step.act is RecoveryRung.HUMAN
                if step.act in TESTS:
                    tested.add(step.act)
                if step.act is RecoveryRung.EVICT:
                    out.update(dict.fromkeys(step.machines))
                    convicted = {machine: None for machine in convicted if machine not in step.machines}
                if step.act in MERGES:  # a change that could not be merged is not tried again
                    pending = {name: change for name, change in pending.items() if name not in step.changes}
            case StepDone(ok=True):
                done = steps.get(entry.number)
                if done is None:
                    continue
                if done.step.act in TESTS:
                    convicted.update(dict.fromkeys(machine for machine in entry.convicted if machine not in out))
                elif done.step.act is RecoveryRung.ROLLBACK:
                    merged = ()
                elif done.step.act in MERGES and done.step.changes:
                    merged = done.step.changes
            case _:
                pass
    lately = sum(
        now - DAY_S < one.at and one.step.act not in (RecoveryRung.WAIT, RecoveryRung.UPDATE) for one in steps.values()
    )
    return LadderState(
        climbed, tuple(out), tuple(dict.fromkeys((*used, *passed))), tuple(convicted), frozenset(tested),
        tuple(pending.values()), merged, lately, called,
    )  # fmt: skip
