"""Runs a job to its end: starts it, watches it, and on trouble climbs the recovery ladder, each step written down first."""

import os
import secrets
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from hangdog.demo.conductor import free_port
from hangdog.demo.prctl import adopt_orphans
from hangdog.supervising import hooks
from hangdog.supervising.attempt import DEATH_S, TOKEN_ENV, Attempt
from hangdog.supervising.descendants import kill, pause, with_environ
from hangdog.supervising.history_file import HistoryFile
from hangdog.supervising.logs import JobLog
from hangdog.supervising.pending_changes import PendingChanges
from hangdog.supervising.run_order import RunOrder, commands, machines_in_use
from hangdog.supervising.spare_upkeep import SpareUpkeep
from hangdog.supervising.spares import free_spares, run_spare_tests, spares_coming_in
from hangdog.supervising.watcher import Watcher, newest
from hangdog_models.counts import counted
from hangdog_models.recovery.ladder_state import stand
from hangdog_models.recovery.recovery_history import (
    MERGES,
    RESTARTS,
    Began,
    Entry,
    Finished,
    OutageOpened,
    Progressed,
    RecoveryRung,
    RecoveryStep,
    SpareOutcome,
    Steady,
    StepDone,
    Stepped,
    Tried,
    Troubled,
)
from hangdog_models.recovery.recovery_ladder import RecoveryResources, next_step
from hangdog_models.recovery.settings import LadderSettings
from hangdog_models.recovery.trouble import Cause, Trouble, of_exit, of_verdict

#: Between two looks at the job's logs and processes, and between two questions for a verdict. Seconds.
TICK_S, ASK_S = 0.2, 1.0
#: Where the process of a job that is started once for all machines ended.
ALL = "all machines together"
#: Acts that need no hook.
OWN = frozenset({RecoveryRung.EVICT, RecoveryRung.REATTEMPT, RecoveryRung.HUMAN, RecoveryRung.WAIT})

Clock = Callable[[], float]


@dataclass(slots=True)
class Supervisor:
    """Supervises one job; `means` is asked for whenever there is trouble, `clock` gives Unix seconds."""

    order: RunOrder
    history: HistoryFile
    watcher: Watcher
    report: Callable[[str], None]
    forward_output: Callable[[bytes], None]
    clock: Clock
    resources: Callable[[], RecoveryResources]
    pending: PendingChanges
    logs: list[JobLog]
    settings: LadderSettings = field(default_factory=LadderSettings)
    environ: Mapping[str, str] = field(default_factory=dict)
    _upkeep: SpareUpkeep = field(init=False)
    _attempt: Attempt | None = None
    _job: str = ""
    _since: float = 0.0
    _unsure_since: float | None = None
    _lacking: bool = False

    def __post_init__(self) -> None:
        self._upkeep = SpareUpkeep(
            self.order, self.watcher, self.report, self.clock, lambda: self.history.entries, self._note
        )

    def run(self) -> bool:
        """Whether the job reached its end; False when a person was called instead."""
        adopt_orphans()
        self._recover()
        try:
            while True:
                self._start()
                outcome = self._follow()
                if outcome is None:
                    self._note(Finished(self.clock()))
                    return True
                if not self._climb(outcome):
                    return False
        finally:
            self._upkeep.end()
            self._stop()

    def _recover(self) -> None:
        """Goes on with what an earlier supervisor left: its processes are ended, its open step is not done again."""
        entries = self.history.entries
        tokens = [entry.token for entry in entries if isinstance(entry, Began)]
        for token in tokens[-1:]:
            until = time.monotonic() + DEATH_S
            while (left := with_environ(TOKEN_ENV, token)) and time.monotonic() < until:
                kill(left, signal.SIGKILL)
                pause()
        run = next((entry.run for entry in entries if isinstance(entry, OutageOpened)), secrets.token_hex(6))
        done = {entry.number for entry in entries if isinstance(entry, StepDone)}
        self.history.add(OutageOpened(self.clock(), run))
        for entry in entries:
            if isinstance(entry, Stepped) and entry.number not in done:
                words = "hangdog run ended meanwhile: whether it was done is not known, and it is not done again"
                self.report(f"step {entry.number}, {entry.step.act}: {words}")
                self.history.add(StepDone(self.clock(), entry.number, ok=False, message=words))

    def _start(self) -> None:
        machines = self._machines()
        number = 1 + sum(isinstance(entry, Began) for entry in self.history.entries)
        token = secrets.token_hex(8)
        # a name of its own: what is known of the dead ranks of the last attempt must not be taken for these
        self._job = f"{self.order.job}-{number}"
        self.history.add(Began(self.clock(), machines, token))
        self.report(f"attempt {number} starts on {', '.join(machines)}")
        environ = {**os.environ, **self.environ, "HANGDOG_JOB": self._job, TOKEN_ENV: token}
        folder = self.order.state / f"attempt-{number}"
        self._attempt = Attempt(commands(self.order, machines, free_port(), number), environ, folder, self.logs)
        self._since = self.clock()

    def _follow(self) -> Trouble | RecoveryStep | None:
        """Follows the job until it is in trouble, or a step is due that it is in no trouble for; None when it is at its end."""
        assert self._attempt is not None
        tells_steps = any(isinstance(entry, Progressed) for entry in self.history.entries)
        began, first, last, asked, steady = time.monotonic(), 0.0, 0.0, 0.0, False
        self._unsure_since = None
        while True:
            time.sleep(TICK_S)
            now, beat = self.clock(), time.monotonic()
            if self._attempt.follow(self.forward_output):
                self._since, last, self._unsure_since = now, beat, None
                if not first:
                    first, tells_steps = beat, True
                    self._note(Progressed(now))
            statuses = self._attempt.ended(beat)
            if statuses is not None:
                self._attempt.follow(self.forward_output)
                if not any(statuses.values()):
                    return None
                words = self._attempt.last_lines()
                if self.order.once:  # its one process stands for all: where it failed is not known
                    (status,), (last_lines,) = statuses.values(), words.values()
                    return of_exit({ALL: status}, {ALL: last_lines})
                return of_exit(statuses, words)
            # a job that hangs until its own watchdog ends it has been there for long, and has not trained
            trained_s = last - first if tells_steps else beat - began
            if not steady and trained_s >= self.settings.steady_s:
                steady = True
                self._note(Steady(now))
            if beat - asked >= ASK_S:
                asked = beat
                if (outcome := self._next_step(now, beat)) is not None:
                    return outcome

    def _next_step(self, now: float, beat: float) -> Trouble | RecoveryStep | None:
        """What is to be done about a job that runs: by its verdict, or by the changes that wait; mostly nothing."""
        self.watcher.restart_dead(beat)
        self._note_changes(now)
        self._upkeep.tick(self._free())
        step = next_step(self.history.entries, None, now, RecoveryResources(hands=self._hands()), self.settings)
        if step.act is not RecoveryRung.WAIT:
            return step
        found = newest(self.watcher, self._job)
        if found is None:
            return None
        trouble = self._here(of_verdict(found[1]))
        if trouble.cause is Cause.NONE:
            return None
        if trouble.cause not in (Cause.MACHINE, Cause.SOFTWARE):  # it may yet get on, or a later look may say more
            self._unsure_since = beat if self._unsure_since is None else self._unsure_since
            if beat - self._unsure_since < self.order.patience_s:
                return None
        return replace(trouble, what=f"{trouble.what} (incident {found[0]})")

    def _here(self, trouble: Trouble) -> Trouble:
        """The same trouble, with those of its choices that are machines of this attempt; without any it blames nobody."""
        machines = self._machines()
        choices = tuple(one for one in trouble.choices if set(one) <= set(machines))
        if choices == trouble.choices:
            return trouble
        strangers = sorted({name for one in trouble.choices for name in one} - set(machines))
        cause = trouble.cause if choices else Cause.UNKNOWN
        return Trouble(cause, f"{trouble.what}; {', '.join(strangers)} is no machine of this job", choices)

    def _note_changes(self, now: float) -> None:
        for change in self.pending.new(now, self.history.entries):
            self._note(change)

    def _note(self, entry: Entry) -> bool:
        """Keeps what no step depends on, and says whether it could: a full disk must not end a job that trains."""
        try:
            self.history.add(entry)
        except OSError as error:
            if not self._lacking:  # what is noted again and again until the disk takes it is told once
                self.report(f"the history is not complete: {error}")
            self._lacking = True
        else:
            self._lacking = False
        return not self._lacking

    def _climb(self, outcome: Trouble | RecoveryStep) -> bool:
        """Carries out steps until the job may be started again; False when a person is called."""
        now = self.clock()
        if isinstance(outcome, Trouble):
            self._note_changes(now)  # one that came since the last look, or a job that failed before the first
            self.history.add(Troubled(now, min(self._since, now), outcome))
            self.report(f"trouble: {outcome.what}")
        while True:
            step = outcome
            if isinstance(outcome, Trouble):
                step = self._decide(outcome)
            assert isinstance(step, RecoveryStep)
            ok = self._carry_out(step)
            if step.act is RecoveryRung.HUMAN:
                return False
            if step.act in RESTARTS and (ok or step.act is not RecoveryRung.ROLLBACK):
                return True

    def _carry_out(self, step: RecoveryStep) -> bool:
        number = 1 + sum(isinstance(entry, Stepped) for entry in self.history.entries)
        whom = f" {', '.join(step.machines or step.changes)}" if step.machines or step.changes else ""
        self.report(f"step {number}: {step.act}{whom}, because " + "; ".join(step.reasons))
        self.history.add(Stepped(self.clock(), number, step))
        self._stop()
        if step.wait_s:
            self.report(f"waiting for {step.wait_s:.0f} s")
            time.sleep(step.wait_s)
        answer = self._by_hook(step, number)
        if answer.message:
            self.report(f"step {number}: {'done' if answer.ok else 'NOT done'}: {answer.message}")
        if answer.convicted:
            self.report(f"step {number}: convicted {', '.join(answer.convicted)}")
        self.history.add(StepDone(self.clock(), number, answer.ok, answer.message, answer.convicted))
        return answer.ok

    def _by_hook(self, step: RecoveryStep, number: int) -> hooks.HookAnswer:
        """What the hooks of a step say: the one that brings its changes in, then its own; none has nothing to say."""
        acts = (*((RecoveryRung.UPDATE,) if step.act in MERGES and step.changes else ()), step.act)
        run = next(entry.run for entry in self.history.entries if isinstance(entry, OutageOpened))
        log = self.order.state / f"step-{number}.log"
        machines = (*self.order.machines, *self.order.spares)
        answer = hooks.HookAnswer(True)
        for act in dict.fromkeys(acts):
            hook = self.order.hooks.get(act)
            if hook is not None and answer.ok:
                answer = hooks.carry_out(hook, step, f"{run}-{number}", machines, log, self.order.hook_s)
        return answer

    def _decide(self, trouble: Trouble) -> RecoveryStep:
        """The next step. Spares that it takes have passed their test, and those that did not pass it are not counted."""
        passed: tuple[str, ...] = ()
        unfit: dict[str, str] = {}
        while True:
            resources = self._resources(unfit)
            step = next_step(self.history.entries, trouble, self.clock(), resources, self.settings)
            new = [name for name in spares_coming_in(step, self._machines(), resources.spares) if name not in passed]
            if not new or not self.order.levels:
                return step
            if fresh := self._upkeep.fresh(new):
                self._upkeep.leave(fresh)
                passed += fresh
                self.report(f"{', '.join(fresh)} passed a test ahead: no test is needed now")
                self.history.add(Tried(self.clock(), passed, ()))
                continue
            if self._upkeep.testing in new:
                unfit |= self._finish_test()
                continue
            self.report(f"testing {', '.join(new)}, to replace {', '.join(step.machines)}")
            found = run_spare_tests(self.watcher, self.order, new, f"spare of job {self.order.job}")
            passed += found.passed
            not_passed = {
                name: f"spare {name} is not used: {why}" for name, why in {**found.failed, **found.doubtful}.items()
            }
            for words in not_passed.values():
                self.report(words)
            unfit |= not_passed
            self.history.add(Tried(self.clock(), passed, tuple(found.failed)))

    def _finish_test(self) -> dict[str, str]:
        """Waits for the test ahead of a spare that is needed now; the spare with the reason, if it did not pass."""
        self.report(f"waiting for the test of {self._upkeep.testing} to end")
        found = self._upkeep.finish_test()
        if found is None or found.outcome is not SpareOutcome.DOUBTFUL:
            return {}  # it is taken, out, or tested once more
        return {found.machine: f"spare {found.machine} is not used: {found.message}"}

    def _resources(self, unfit: Mapping[str, str]) -> RecoveryResources:
        spares = self._upkeep.in_order([name for name in self._free() if name not in unfit])
        reasons = (*self._upkeep.reasons(), *unfit.values())
        return replace(self.resources(), spares=spares, unfit=reasons, hands=self._hands())

    def _free(self) -> tuple[str, ...]:
        """The spares that may take a place."""
        return free_spares(self.order, self._machines(), stand(self.history.entries, self.clock()).out)

    def _machines(self) -> tuple[str, ...]:
        """Those of the attempt that runs, or is started next."""
        state = stand(self.history.entries, self.clock())
        return machines_in_use(self.order, state.out, state.fit)

    def _hands(self) -> frozenset[RecoveryRung]:
        return OWN | frozenset(self.order.hooks)

    def _stop(self) -> None:
        if self._attempt is None:
            return
        others = (*self.watcher.processes(), *self._upkeep.processes())
        left = self._attempt.end(self.order.grace_s, others)
        self._attempt = None
        if left:
            self.report(
                f"{counted(left, 'process', 'processes')} of the job would not die within {DEATH_S:g} s: stuck in the kernel"
            )
