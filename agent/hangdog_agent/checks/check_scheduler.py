"""Runs every check at its own interval, each in a thread of its own, so that one that hangs or fails stops no other."""

import logging
import threading
import time
from collections.abc import Mapping, Sequence

from hangdog_agent.checks.check_result import Check, CheckKind, CheckResult, Component, Moment, state
from hangdog_agent.checks.settings import CheckSettings
from hangdog_models.findings import Impact

log = logging.getLogger(__name__)

#: Events that stand at the same time; a storm of them says no more than its first thousand.
_MOST_EVENTS = 1_000
#: What a result of the checks themselves gives as its source.
_SOURCE = "checks"
#: How long closing waits for a check; one that hangs in the kernel is left behind.
_CLOSE_S = 1.0


class Checks:
    """All checks of this machine. Only one thread may tick; `standing` and `unsupported` may be called from any."""

    def __init__(self, checks: Sequence[Check], settings: CheckSettings, boot: str) -> None:
        self._settings = settings
        self._boot = boot
        self._turns = tuple(_Turn(check) for check in checks)
        self._states: dict[str, dict[str, CheckResult]] = {}
        self._events: dict[str, tuple[float, CheckResult]] = {}
        self._unsupported: dict[str, str] = {}
        self._lock = threading.Lock()

    def due(self, now: float) -> tuple[str, ...]:
        """The checks that a tick at `now` would start."""
        return tuple(turn.check.name for turn in self._turns if turn.thread is None and now >= turn.due)

    def pause_s(self, now: float) -> float:
        """Seconds from `now` until the next tick is worth while."""
        waits = [turn.due - now for turn in self._turns if turn.thread is None]
        fast = min((turn.check.every_s for turn in self._turns), default=1.0)
        return max(0.0, min([*waits, fast]))

    def tick(self, now: float, at_s: float) -> tuple[CheckResult, ...]:
        """Starts what is due and answers what is new: states that began, events. `now` is monotonic, `at_s` Unix time.

        Returns within `check_grace_s`; what takes longer is answered by a later tick.
        """
        moment = Moment(now, at_s, self._boot)
        for turn in self._turns:
            if turn.thread is None and now >= turn.due:
                turn.begin(moment)
        until = time.monotonic() + self._settings.check_grace_s
        fresh: list[CheckResult] = []
        for turn in self._turns:
            if turn.thread is not None:
                turn.thread.join(max(0.0, until - time.monotonic()))
                if not turn.thread.is_alive():
                    fresh += self._take(turn, moment)
                elif now - turn.began > self._settings.check_hangs_s:
                    fresh += self._place(turn.check.name, (_hangs(turn, moment),), moment, whole=False)
        return tuple(fresh)

    def results(self, now: float) -> tuple[CheckResult, ...]:
        """What holds at `now`: all states, and the events of the last `check_keep_s`; what a capture wants beside it."""
        with self._lock:
            states = [result for each in self._states.values() for result in each.values()]
            since = now - self._settings.check_keep_s
            return (*states, *(result for at, result in self._events.values() if at >= since))

    def unsupported(self) -> Mapping[str, str]:
        """The checks that have nothing to look at here, and why."""
        with self._lock:
            return dict(self._unsupported)

    def close(self) -> None:
        """Ends all checks and what they hold; one that hangs in the kernel is left behind."""
        for turn in self._turns:
            turn.check.close()
        until = time.monotonic() + _CLOSE_S
        for turn in self._turns:
            if turn.thread is not None:
                turn.thread.join(max(0.0, until - time.monotonic()))

    def _take(self, turn: "_Turn", moment: Moment) -> tuple[CheckResult, ...]:
        """The answer of a check that has ended."""
        turn.thread = None
        check = turn.check
        with self._lock:
            if turn.why and self._unsupported.get(check.name) != turn.why:
                log.info("check %s does not apply here: %s", check.name, turn.why)
            if turn.why:
                self._unsupported[check.name] = turn.why
            else:
                self._unsupported.pop(check.name, None)
        pause = self._settings.check_again_s if turn.why else check.every_s
        turn.due = max(turn.began + pause, moment.now)
        return self._place(check.name, turn.results, moment, whole=not turn.failed)

    def _place(self, name: str, results: Sequence[CheckResult], moment: Moment, whole: bool) -> tuple[CheckResult, ...]:
        """Keeps results and answers the new ones; `whole`: states that are not among them have ended."""
        with self._lock:
            before = self._states.get(name, {})
            states = {result.identity: result for result in results if result.lasting}
            fresh = [result for identity, result in states.items() if identity not in before]
            for result in results:
                if not result.lasting and result.identity not in self._events:
                    if len(self._events) >= _MOST_EVENTS:
                        del self._events[next(iter(self._events))]
                    self._events[result.identity] = moment.now, result
                    fresh.append(result)
            self._states[name] = states if whole else before | states
            return tuple(fresh)


class _Turn:
    """One check between two of its looks."""

    def __init__(self, check: Check) -> None:
        self.check = check
        self.due = float("-inf")
        self.began = 0.0
        self.thread: threading.Thread | None = None
        self.results: tuple[CheckResult, ...] = ()
        self.why = ""
        self.failed = False
        self._applies = False

    def begin(self, moment: Moment) -> None:
        self.began, self.results, self.why, self.failed = moment.now, (), "", False
        self.thread = threading.Thread(target=self._run, args=(moment,), name=f"hangdog-{self.check.name}", daemon=True)
        self.thread.start()

    def _run(self, moment: Moment) -> None:
        try:
            if not self._applies:
                self.why = self.check.supported()
                self._applies = not self.why
            # What applied once and is gone now is evidence, so nobody asks a second time whether it applies.
            self.results = self.check.look(moment) if self._applies else ()
        except Exception as error:  # a bug in one check must not stop the others; it is told as a result
            log.exception("check %s failed", self.check.name)
            stated = "check failed", Impact.TELLS_NOTHING, f"the check {self.check.name} failed: {error!r}"
            self.results = (state(self.check.name, _SOURCE, Component(CheckKind.MACHINE), stated, moment),)
            self.failed = True


def _hangs(turn: _Turn, moment: Moment) -> CheckResult:
    name = turn.check.name
    words = f"the check {name} has had no answer for {moment.now - turn.began:.0f} s: what it reads hangs in the kernel"
    stated = "check hangs", Impact.SUSPECTS, words
    return state(name, _SOURCE, Component(CheckKind.MACHINE), stated, moment)
