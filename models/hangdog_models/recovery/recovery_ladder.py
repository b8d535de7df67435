"""The recovery ladder as one pure decision: what to do next about a job in trouble, and because of what.

The policy of ByteRobust's controller (SOSP 2025, sections 4 and 5): a sure verdict upon a machine evicts it at once; a
restart that fails again is followed by stop-time tests; what tests find nothing about is tried again, then the code is
rolled back, then the job replayed; then a person is called. A software verdict evicts nobody, and a service that does not
answer is waited for. Each rung is climbed a bounded number of times, so a person is always reached.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from hangdog_models.counts import counted
from hangdog_models.planning.checkpoint import Copies, Price, gate, remaining
from hangdog_models.recovery.ladder_state import Standing, stand
from hangdog_models.recovery.recovery_history import Act, Entry, Step
from hangdog_models.recovery.settings import LadderSettings
from hangdog_models.recovery.trouble import Cause, Trouble


@dataclass(frozen=True, slots=True)
class Means:
    """What there is to recover with: spare machines, `hands` for the acts that somebody can carry out, checkpoint copies.

    `unfit` says of spares that are not counted why they are not.
    """

    spares: tuple[str, ...] = ()
    unfit: tuple[str, ...] = ()
    hands: frozenset[Act] = frozenset(Act)
    copies: Copies | None = None
    price: Price = field(default_factory=Price)


@dataclass(frozen=True, slots=True)
class _Case:
    trouble: Trouble
    standing: Standing
    means: Means
    settings: LadderSettings

    def tries(self, act: Act) -> int:
        return self.standing.climbed.get(act, 0)

    def merges(self) -> tuple[str, ...]:
        """The changes that come in with a restart: none once the code itself is suspected."""
        if self.trouble.cause is Cause.SOFTWARE or self.tries(Act.ROLLBACK) or Act.UPDATE not in self.means.hands:
            return ()
        return tuple(change.name for change in self.standing.pending)


_DEFAULTS = LadderSettings()

#: The rungs for each cause, from the lowest up; the last one always holds.
RUNGS: Mapping[Cause, tuple[Act, ...]] = {
    Cause.MACHINE: (Act.EVICT, Act.DIAGNOSE, Act.REATTEMPT, Act.ROLLBACK, Act.REPLAY, Act.HUMAN),
    Cause.UNKNOWN: (Act.EVICT, Act.DIAGNOSE, Act.REATTEMPT, Act.ROLLBACK, Act.REPLAY, Act.HUMAN),
    Cause.SOFTWARE: (Act.ROLLBACK, Act.REATTEMPT, Act.HUMAN),
    Cause.DEPENDENCY: (Act.REATTEMPT, Act.HUMAN),
}


def next_step(
    history: Sequence[Entry],
    trouble: Trouble | None,
    now: float,
    means: Means,
    settings: LadderSettings = _DEFAULTS,
) -> Step:
    """The next step for a job in this trouble, or in none; the history holds all steps before it. `now` in Unix seconds."""
    standing = stand(history, now)
    if trouble is None or trouble.cause is Cause.NONE:
        return _at_peace(trouble, standing, now, means, settings)
    if standing.called:
        return Step(Act.HUMAN, (trouble.what, "a person was called, and has not started the job again"))
    if standing.lately >= settings.a_day:
        return Step(Act.HUMAN, (trouble.what, f"{counted(standing.lately, 'step')} within 24 hours did not mend it"))
    case = _Case(trouble, standing, means, settings)
    because = [trouble.what]
    for act in RUNGS[trouble.cause]:
        answer = _RUNG[act](case)
        if isinstance(answer, Step):
            return Step(answer.act, (*because, *answer.because), answer.machines, answer.changes, answer.wait_s)
        if answer:
            because.append(answer)
    raise AssertionError("the last rung holds")


def _at_peace(trouble: Trouble | None, standing: Standing, now: float, means: Means, settings: LadderSettings) -> Step:
    """Of a job that trains: whether changes have waited for long enough. Never while what was rolled back is on trial."""
    because = (trouble.what,) if trouble is not None else ()
    held = standing.climbed.get(Act.ROLLBACK, 0) or Act.UPDATE not in means.hands
    pending = () if held else standing.pending
    names = tuple(change.name for change in pending)
    for change in pending:
        if change.urgent:
            return Step(Act.UPDATE, (*because, f"change {change.name} is urgent"), changes=names)
    waited = max((now - change.at for change in pending), default=0.0)
    if pending and waited >= settings.window_s:
        words = f"change {pending[0].name} has waited {waited / 3600:.1f} h for a failure to be merged with"
        return Step(Act.UPDATE, (*because, words), changes=names)
    return Step(Act.WAIT, because or ("the job trains",))


def _evict(case: _Case) -> Step | str:
    standing, settings = case.standing, case.settings
    tested = standing.convicted
    if tested:
        choices, why = (tested, *((machine,) for machine in tested)), f"tests convicted {', '.join(tested)}"
    else:
        left = (tuple(name for name in one if name not in standing.out) for one in case.trouble.choices)
        choices, why = tuple(dict.fromkeys(one for one in left if one)), "the verdict is sure enough to evict"
    if not choices:
        return "all that it names are out already" if case.trouble.choices else ""
    if case.tries(Act.EVICT) >= settings.evictions + (settings.convictions if tested else 0):
        return f"{counted(case.tries(Act.EVICT), 'eviction')} did not mend it"
    few = [one for one in choices if len(one) <= settings.machines]
    if not few:
        return f"{len(choices[0])} machines are more than one eviction may take ({settings.machines})"
    afforded = [one for one in few if len(one) <= len(case.means.spares)]
    if not afforded:
        spares = len(case.means.spares)
        lack = f"{', '.join(few[0])} must go, and {spares or 'no'} {'spare is' if spares == 1 else 'spares are'} left"
        return Step(Act.HUMAN, (why, lack, *case.means.unfit))
    copies = case.means.copies
    held = None if copies is None else remaining(copies, standing.out)  # the next checkpoint may not be written yet
    allowed = gate(afforded, held, case.means.price)
    if not allowed.machines:
        return "; ".join(allowed.because)
    return Step(Act.EVICT, (why, *allowed.because), allowed.machines, case.merges())


def _test(act: Act, most: Callable[[LadderSettings], int], why: str) -> Callable[[_Case], Step | str]:
    def rung(case: _Case) -> Step | str:
        if act not in case.means.hands:
            return f"nobody can {act}"
        if act in case.standing.tested:
            return f"{act} was tried since the job was last started"
        if case.tries(act) >= most(case.settings):
            return f"{act} was tried {counted(case.tries(act), 'time')}"
        return Step(act, (why,))

    return rung


def _reattempt(case: _Case) -> Step | str:
    waits = case.trouble.cause is Cause.DEPENDENCY
    most = case.settings.service_reattempts if waits else case.settings.reattempts
    if case.tries(Act.REATTEMPT) >= most:
        return "it was tried again already"
    why = "a service does not answer: no machine and no code is to blame" if waits else "it may have been transient"
    return Step(Act.REATTEMPT, (why,), (), case.merges(), case.settings.service_wait_s if waits else 0.0)


def _rollback(case: _Case) -> Step | str:
    if Act.ROLLBACK not in case.means.hands:
        return "nobody can roll back"
    if case.tries(Act.ROLLBACK) >= case.settings.rollbacks:
        return "the code was rolled back already"
    merged = case.standing.merged
    why = f"{', '.join(merged)} came in last" if merged else "the last change of the code may be why"
    return Step(Act.ROLLBACK, (why,), changes=merged)


def _human(_case: _Case) -> Step:
    return Step(Act.HUMAN, ("nothing is left that may be done without a person",))


_RUNG: Mapping[Act, Callable[[_Case], Step | str]] = {
    Act.EVICT: _evict,
    Act.DIAGNOSE: _test(Act.DIAGNOSE, lambda settings: settings.diagnoses, "stop-time tests may name who is to blame"),
    Act.REATTEMPT: _reattempt,
    Act.ROLLBACK: _rollback,
    Act.REPLAY: _test(Act.REPLAY, lambda settings: settings.replays, "a replay in groups may name who is to blame"),
    Act.HUMAN: _human,
}
