"""The recovery ladder as one pure decision: the next step for a job in trouble, and its reason.

The policy of ByteRobust's controller (SOSP 2025, sections 4 and 5): a sure verdict on a machine evicts it at once. If
a restart fails again, stop-time tests follow. If they find nothing, the job is restarted, then its code is rolled back,
then the job is replayed, then a person is called. A software verdict evicts no machine. A service that does not answer is
waited for. Each rung has a limit, so a person is always reached.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from hangdog_models.counts import counted
from hangdog_models.planning.checkpoint import Copies, Price, gate, remaining
from hangdog_models.recovery.ladder_state import LadderState, stand
from hangdog_models.recovery.recovery_history import Entry, RecoveryRung, RecoveryStep
from hangdog_models.recovery.settings import LadderSettings
from hangdog_models.recovery.trouble import Cause, Trouble


@dataclass(frozen=True, slots=True)
class RecoveryResources:
    """What there is to recover with: spare machines, `hands` (the rungs that can be carried out here), checkpoint copies.

    `unfit`: the spares that do not count, each with the reason.
    """

    spares: tuple[str, ...] = ()
    unfit: tuple[str, ...] = ()
    hands: frozenset[RecoveryRung] = frozenset(RecoveryRung)
    copies: Copies | None = None
    price: Price = field(default_factory=Price)


@dataclass(frozen=True, slots=True)
class _LadderCase:
    trouble: Trouble
    state: LadderState
    resources: RecoveryResources
    settings: LadderSettings

    def tries(self, act: RecoveryRung) -> int:
        return self.state.climbed.get(act, 0)

    def merges(self) -> tuple[str, ...]:
        """The changes to merge at a restart: none once the code itself is suspected."""
        if (
            self.trouble.cause is Cause.SOFTWARE
            or self.tries(RecoveryRung.ROLLBACK)
            or RecoveryRung.UPDATE not in self.resources.hands
        ):
            return ()
        return tuple(change.name for change in self.state.pending)


_DEFAULTS = LadderSettings()

#: The rungs for each cause, from the lowest up; the last one has no limit.
RUNGS: Mapping[Cause, tuple[RecoveryRung, ...]] = {
    Cause.MACHINE: (
        RecoveryRung.EVICT,
        RecoveryRung.DIAGNOSE,
        RecoveryRung.REATTEMPT,
        RecoveryRung.ROLLBACK,
        RecoveryRung.REPLAY,
        RecoveryRung.HUMAN,
    ),
    Cause.UNKNOWN: (
        RecoveryRung.EVICT,
        RecoveryRung.DIAGNOSE,
        RecoveryRung.REATTEMPT,
        RecoveryRung.ROLLBACK,
        RecoveryRung.REPLAY,
        RecoveryRung.HUMAN,
    ),
    Cause.SOFTWARE: (RecoveryRung.ROLLBACK, RecoveryRung.REATTEMPT, RecoveryRung.HUMAN),
    Cause.DEPENDENCY: (RecoveryRung.REATTEMPT, RecoveryRung.HUMAN),
}


def next_step(
    history: Sequence[Entry],
    trouble: Trouble | None,
    now: float,
    services: RecoveryResources,
    settings: LadderSettings = _DEFAULTS,
) -> RecoveryStep:
    """The next step for a job in this trouble, or in none. `history` has all steps before; `now` is in Unix seconds."""
    state = stand(history, now)
    if trouble is None or trouble.cause is Cause.NONE:
        return _at_peace(trouble, state, now, services, settings)
    if state.called:
        return RecoveryStep(
            RecoveryRung.HUMAN, (trouble.what, "a person was called, and has not started the job again")
        )
    if state.lately >= settings.a_day:
        return RecoveryStep(
            RecoveryRung.HUMAN, (trouble.what, f"{counted(state.lately, 'step')} within 24 hours did not mend it")
        )
    case = _LadderCase(trouble, state, services, settings)
    because = [trouble.what]
    for act in RUNGS[trouble.cause]:
        answer = _RUNG[act](case)
        if isinstance(answer, RecoveryStep):
            return RecoveryStep(answer.act, (*because, *answer.reasons), answer.machines, answer.changes, answer.wait_s)
        if answer:
            because.append(answer)
    raise AssertionError("the last rung holds")


def _at_peace(
    trouble: Trouble | None, state: LadderState, now: float, services: RecoveryResources, settings: LadderSettings
) -> RecoveryStep:
    """For a job that trains: merge changes that have waited for long enough, but not while a rollback is on trial."""
    because = (trouble.what,) if trouble is not None else ()
    held = state.climbed.get(RecoveryRung.ROLLBACK, 0) or RecoveryRung.UPDATE not in services.hands
    pending = () if held else state.pending
    names = tuple(change.name for change in pending)
    for change in pending:
        if change.urgent:
            return RecoveryStep(RecoveryRung.UPDATE, (*because, f"change {change.name} is urgent"), changes=names)
    waited = max((now - change.at for change in pending), default=0.0)
    if pending and waited >= settings.window_s:
        words = f"change {pending[0].name} has waited {waited / 3600:.1f} h for a failure to be merged with"
        return RecoveryStep(RecoveryRung.UPDATE, (*because, words), changes=names)
    return RecoveryStep(RecoveryRung.WAIT, because or ("the job trains",))


def _evict(case: _LadderCase) -> RecoveryStep | str:
    state, settings = case.state, case.settings
    tested = state.convicted
    if tested:
        choices, why = (tested, *((machine,) for machine in tested)), f"tests convicted {', '.join(tested)}"
    else:
        left = (tuple(name for name in one if name not in state.out) for one in case.trouble.choices)
        choices, why = tuple(dict.fromkeys(one for one in left if one)), "the verdict is sure enough to evict"
    if not choices:
        return "all that it names are out already" if case.trouble.choices else ""
    if case.tries(RecoveryRung.EVICT) >= settings.evictions + (settings.convictions if tested else 0):
        return f"{counted(case.tries(RecoveryRung.EVICT), 'eviction')} did not mend it"
    few = [one for one in choices if len(one) <= settings.machines]
    if not few:
        return f"{len(choices[0])} machines are more than one eviction may take ({settings.machines})"
    afforded = [one for one in few if len(one) <= len(case.resources.spares)]
    if not afforded:
        spares = len(case.resources.spares)
        lack = f"{', '.join(few[0])} must go, and {spares or 'no'} {'spare is' if spares == 1 else 'spares are'} left"
        return RecoveryStep(RecoveryRung.HUMAN, (why, lack, *case.resources.unfit))
    copies = case.resources.copies
    held = None if copies is None else remaining(copies, state.out)  # the next checkpoint may not be written yet
    allowed = gate(afforded, held, case.resources.price)
    if not allowed.machines:
        return "; ".join(allowed.reasons)
    return RecoveryStep(RecoveryRung.EVICT, (why, *allowed.reasons), allowed.machines, case.merges())


def _test(
    act: RecoveryRung, most: Callable[[LadderSettings], int], why: str
) -> Callable[[_LadderCase], RecoveryStep | str]:
    def rung(case: _LadderCase) -> RecoveryStep | str:
        if act not in case.resources.hands:
            return f"nobody can {act}"
        if act in case.state.tested:
            return f"{act} was tried since the job was last started"
        if case.tries(act) >= most(case.settings):
            return f"{act} was tried {counted(case.tries(act), 'time')}"
        return RecoveryStep(act, (why,))

    return rung


def _reattempt(case: _LadderCase) -> RecoveryStep | str:
    waits = case.trouble.cause is Cause.DEPENDENCY
    most = case.settings.service_reattempts if waits else case.settings.reattempts
    if case.tries(RecoveryRung.REATTEMPT) >= most:
        return "it was tried again already"
    why = "a service does not answer: no machine and no code is to blame" if waits else "it may have been transient"
    return RecoveryStep(
        RecoveryRung.REATTEMPT, (why,), (), case.merges(), case.settings.service_wait_s if waits else 0.0
    )


def _rollback(case: _LadderCase) -> RecoveryStep | str:
    if RecoveryRung.ROLLBACK not in case.resources.hands:
        return "nobody can roll back"
    if case.tries(RecoveryRung.ROLLBACK) >= case.settings.rollbacks:
        return "the code was rolled back already"
    merged = case.state.merged
    why = f"{', '.join(merged)} came in last" if merged else "the last change of the code may be why"
    return RecoveryStep(RecoveryRung.ROLLBACK, (why,), changes=merged)


def _human(_case: _LadderCase) -> RecoveryStep:
    return RecoveryStep(RecoveryRung.HUMAN, ("nothing is left that may be done without a person",))


_RUNG: Mapping[RecoveryRung, Callable[[_LadderCase], RecoveryStep | str]] = {
    RecoveryRung.EVICT: _evict,
    RecoveryRung.DIAGNOSE: _test(
        RecoveryRung.DIAGNOSE, lambda settings: settings.diagnoses, "stop-time tests may name who is to blame"
    ),
    RecoveryRung.REATTEMPT: _reattempt,
    RecoveryRung.ROLLBACK: _rollback,
    RecoveryRung.REPLAY: _test(
        RecoveryRung.REPLAY, lambda settings: settings.replays, "a replay in groups may name who is to blame"
    ),
    RecoveryRung.HUMAN: _human,
}
