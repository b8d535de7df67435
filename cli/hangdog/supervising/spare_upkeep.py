"""Has the spares of a job that trains tested and prepared ahead: one thing at a time, in processes that nothing waits for."""

import os
import shlex
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hangdog.supervising.background_command import BackgroundCommand
from hangdog.supervising.descendants import pause
from hangdog.supervising.run_order import RunOrder
from hangdog.supervising.watcher import END_S, Watcher
from hangdog_models.errors import UnreadableEvidence
from hangdog_models.reading.json_document import read_json
from hangdog_models.reading.printable import printable
from hangdog_models.recovery.recovery_history import Entry, RecoveryRung, SpareOutcome, SpareTested, SpareWarmed
from hangdog_models.recovery.spare_readiness import (
    SparePolicy,
    SpareReadiness,
    SpareTask,
    in_order_of_use,
    is_fresh,
    next_task,
    readiness,
    tells_a_person,
)
from hangdog_models.recovery.spare_tests import of_campaign
from hangdog_proto.client.server_address import ServerAddress

#: Bytes of a report, and of what is said beside it: one about one machine has some thousand.
REPORT_BYTES = 1 << 20
#: This hangdog, whatever lies in the user's folder.
PYTHON = (sys.executable, "-P", "-m")
#: How the environment names a server, and who asks: the one that watches this job need not be that one.
SERVER_ENV = ("HANGDOG_SERVER", "HANGDOG_SOCKET", "HANGDOG_TLS", "HANGDOG_TOKEN", "HANGDOG_TOKEN_FILE")


@dataclass(frozen=True, slots=True)
class _UpkeepTask:
    task: SpareTask
    machine: str
    process: BackgroundCommand
    report: Path


@dataclass(slots=True)
class SpareUpkeep:
    """Looks after the spares of an order; `note` keeps an entry of the history and says whether it could."""

    order: RunOrder
    watcher: Watcher
    report: Callable[[str], None]
    clock: Callable[[], float]
    history: Callable[[], Sequence[Entry]]
    note: Callable[[Entry], bool]
    policy: SparePolicy = field(init=False)
    _running: _UpkeepTask | None = None
    _others: list[BackgroundCommand] = field(default_factory=list)
    #: Results that the disk did not take yet.
    _unsaved: list[Entry] = field(default_factory=list)

    def __post_init__(self) -> None:
        order = self.order
        levels = order.levels if order.ahead_s else ()
        self.policy = SparePolicy(levels, order.ahead_s, order.warm)

    @property
    def testing(self) -> str:
        """The spare whose test is running; empty if none is."""
        running = self._running
        return running.machine if running is not None and running.task is SpareTask.TEST else ""

    def processes(self) -> Collection[int]:
        """Those that belong to no attempt of the job."""
        running = (self._running.process,) if self._running is not None else ()
        return [process.pid for process in (*running, *self._others)]

    def tick(self, spares: Sequence[str]) -> None:
        """Takes in what ended, and starts what is due for the free `spares`; called about every second."""
        self._unsaved = [entry for entry in self._unsaved if not self.note(entry)]
        self._others = [process for process in self._others if process.result() is None]
        if self._running is not None:
            self._take_in()
        elif (due := next_task(spares, self._known(), self.policy, self.clock())) is not None:
            self._start(*due)

    def in_order(self, spares: Sequence[str]) -> tuple[str, ...]:
        """The free spares in the order in which an eviction should take them."""
        return in_order_of_use(spares, self._known(), self.policy, self.clock(), self.testing)

    def fresh(self, spares: Sequence[str]) -> tuple[str, ...]:
        """Those of the spares that need no test now."""
        known, now = self._known(), self.clock()
        return tuple(name for name in spares if name in known and is_fresh(known[name], self.policy, now))

    def reasons(self) -> tuple[str, ...]:
        """Why spares that tests ahead convicted do not count."""
        return tuple(
            f"spare {name} is not used: {spare.message}"
            for name, spare in self._known().items()
            if spare.outcome is SpareOutcome.CONVICTED
        )

    def leave(self, machines: Collection[str]) -> None:
        """Ends what runs for these machines, as the job comes to them; it is not waited for."""
        running = self._running
        if running is not None and running.machine in machines and running.task is SpareTask.TEST:
            running.process.interrupt()
            self._others.append(running.process)
            self._running = None

    def finish_test(self) -> SpareTested | None:
        """Waits for the test that is running, for its own time at most: an eviction needs the result."""
        machine = self.testing
        while self.testing == machine and machine:
            pause()
            self._take_in()
        known = reversed([*self.history(), *self._unsaved])
        return next((one for one in known if isinstance(one, SpareTested) and one.machine == machine), None)

    def end(self) -> None:
        """Ends all that it started."""
        for process in (*((self._running.process,) if self._running is not None else ()), *self._others):
            process.end()
        self._running, self._others = None, []

    def _known(self) -> Mapping[str, SpareReadiness]:
        return readiness((*self.history(), *self._unsaved), self.policy)

    def _start(self, task: SpareTask, machine: str) -> None:
        folder = self.order.state / "spares"
        log, report = folder / f"{machine}.log", folder / f"{machine}.json"
        try:
            if task is SpareTask.TEST:
                server = self.watcher.server
                command = (*PYTHON, "hangdog", *campaign_words(self.order, server, machine))
                limit_s = self.order.test_s + END_S
                process = BackgroundCommand(command, environ_for(server), report, log, limit_s, REPORT_BYTES)
            else:
                command = tuple(word.replace("{machine}", machine) for word in shlex.split(self.order.warm))
                process = BackgroundCommand(command, os.environ, log, log, self.order.hook_s)
        except OSError as error:
            self._keep(task, machine, SpareOutcome.UNANSWERED, f"cannot start it: {error.strerror}")
            return
        self._running = _UpkeepTask(task, machine, process, report)

    def _take_in(self) -> None:
        """The result of what runs, once it has one."""
        running = self._running
        if running is None or (failed := running.process.result()) is None:
            return
        self._running = None
        before = self._known().get(running.machine, SpareReadiness())
        if running.task is SpareTask.WARM:
            outcome = SpareOutcome.UNANSWERED if failed else SpareOutcome.PASSED
            message = failed
        else:
            outcome, message = self._tested(running, failed)
        self._keep(running.task, running.machine, outcome, message)
        self._tell(running.task, running.machine, before, message)

    def _tested(self, running: _UpkeepTask, failed: str) -> tuple[SpareOutcome, str]:
        machine = running.machine
        try:
            with running.report.open(encoding="utf-8") as file:
                report = read_json(file.read(REPORT_BYTES + 1))
        except (OSError, UnicodeDecodeError, UnreadableEvidence):
            error = next((line for line in running.process.printed() if line.startswith("hangdog: ")), "")
            why = error.removeprefix("hangdog: ") or failed or "it has no report"
            return SpareOutcome.UNANSWERED, f"it could not be tested: {printable(why)}"
        found = of_campaign((machine,), self.order.levels, report if isinstance(report, dict) else {})
        if machine in found.passed:
            return SpareOutcome.PASSED, ""
        outcome = SpareOutcome.CONVICTED if machine in found.failed else SpareOutcome.DOUBTFUL
        return outcome, {**found.failed, **found.doubtful}[machine]

    def _keep(self, task: SpareTask, machine: str, outcome: SpareOutcome, message: str) -> None:
        entry: Entry
        if task is SpareTask.TEST:
            entry = SpareTested(self.clock(), machine, self.order.levels, outcome, message)
        else:
            entry = SpareWarmed(self.clock(), machine, self.order.warm, outcome is SpareOutcome.PASSED, message)
        if not self.note(entry):
            self._unsaved.append(entry)

    def _tell(self, task: SpareTask, machine: str, before: SpareReadiness, message: str) -> None:
        """One line for each change; a person is told of a spare that failed, or that never passes."""
        spare = self._known().get(machine, SpareReadiness())
        if task is SpareTask.WARM:
            if spare.warmed or spare.warm_tries == 1:
                self.report(f"spare {machine} is {'warm' if spare.warmed else f'NOT warm: {printable(message)}'}")
            return
        if spare.outcome is SpareOutcome.PASSED:
            self.report(f"spare {machine} passed its test ahead")
            return
        if (spare.outcome, message) != (before.outcome, before.message):
            self.report(f"spare {machine} is not ready: {message}")
        if tells_a_person(spare):
            self._call(machine, message)

    def _call(self, machine: str, why: str) -> None:
        """Starts the hook that tells a person."""
        hook = self.order.hooks.get(RecoveryRung.SPARE)
        if hook is None:
            return
        log = self.order.state / "spares" / f"{machine}-hook.log"
        name = f"{self.order.job}-{machine}-{int(self.clock())}"
        words = (hook, name, machine, why, str(log), str(self.order.hook_s))
        try:
            command = (*PYTHON, "hangdog.supervising.spare_notice", *words)
            self._others.append(BackgroundCommand(command, os.environ, log, log, self.order.hook_s + END_S))
        except OSError as error:
            self.report(f"cannot tell anyone that spare {machine} is not ready: {error.strerror}")


def campaign_words(order: RunOrder, server: ServerAddress, machine: str) -> tuple[str, ...]:
    """The arguments of the command that has a spare tested over a server."""
    levels = [word for level in order.levels for word in ("--level", str(level))]
    way = ["--server", server.address, *(("--tls", str(server.tls)) if server.tls else ())]
    way += ["--insecure"] if server.insecure else []
    budget = f"{order.test_s:.3f}s"
    why = f"spare of job {order.job}, ahead"
    return ("test", "run", "--machines", machine, *levels, "--budget", budget, "--why", why, "--format", "json", *way)


def environ_for(server: ServerAddress) -> dict[str, str]:
    """Our environment, with the token for this server and for no other."""
    own = {name: value for name, value in os.environ.items() if name not in SERVER_ENV}
    return own | ({"HANGDOG_TOKEN": server.token} if server.token else {})
