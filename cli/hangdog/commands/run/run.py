"""`hangdog run` supervises a training job until it completes, or a person is needed."""

import contextlib
import re
import signal
import socket
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType

import click

from hangdog.options import seconds, server_option
from hangdog.output.terminal import printable
from hangdog.supervising import hooks
from hangdog.supervising.history_file import HistoryFile
from hangdog.supervising.local_cluster import LocalCluster
from hangdog.supervising.logs import JobLog
from hangdog.supervising.outage_bill import outage_lines
from hangdog.supervising.pending_changes import PendingChanges
from hangdog.supervising.run_options import checkpoint_price, ladder_settings, read_copies_file
from hangdog.supervising.run_order import RunOrder
from hangdog.supervising.supervisor import Supervisor
from hangdog.supervising.watcher import WatchedCluster, Watcher
from hangdog_agent.settings import chosen
from hangdog_agent.stalls.progress.safe_regex import safe
from hangdog_models.errors import WrongUse
from hangdog_models.planning.standby import too_few_spares
from hangdog_models.recovery.recovery_history import TESTS, RecoveryRung
from hangdog_models.recovery.recovery_ladder import RecoveryResources
from hangdog_models.recovery.spare_tests import LEVELS as TRIALS
from hangdog_proto.client.server_address import ServerAddress

#: What a machine may be called: its name is part of file names and of command lines.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,100}")
#: The job did not reach its end, and a person was called.
CALLED = 1
#: Signals that ask us to end.
ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@click.command("run", context_settings={"ignore_unknown_options": True})
@click.option(
    "--machine",
    "machines",
    multiple=True,
    metavar="NAME",
    help="A machine of the job; repeat it for each one, in order.  [default: this host]",
)
@click.option(
    "--spare",
    "spares",
    multiple=True,
    metavar="NAME",
    help="A machine that takes the place of an evicted one; may be repeated.",
)
@click.option(
    "--spare-level",
    "levels",
    type=click.Choice([str(level) for level in TRIALS]),
    multiple=True,
    help="Run this level of `hangdog test` on a spare before using it; may be repeated.  [default: none]",
)
@click.option(
    "--spare-budget",
    callback=seconds,
    default="3m",
    show_default=True,
    metavar="DURATION",
    help="Time limit for testing spares; the job is down meanwhile.",
)
@click.option(
    "--spare-ahead",
    is_flag=True,
    help="Test the spares ahead, one at a time while the job runs. One that passed takes a place without a test.",
)
@click.option(
    "--spare-age",
    callback=seconds,
    default="12h",
    show_default=True,
    metavar="DURATION",
    help="With --spare-ahead: for how long a pass counts. A spare is tested again before.",
)
@click.option(
    "--warm-spare",
    default="",
    metavar="COMMAND",
    help="Run COMMAND once for each spare while the job runs, to prepare it; {machine} is its name.",
)
@click.option(
    "--once",
    is_flag=True,
    help="Run COMMAND once for all machines ({active}), as srun does. Without it: once for each machine.",
)
@click.option(
    "--job",
    default="job",
    show_default=True,
    metavar="NAME",
    help="Name of the job; its attempts are NAME-1, NAME-2, ...",
)
@click.option(
    "--state",
    type=click.Path(file_okay=False, path_type=Path),
    default="hangdog-run",
    show_default=True,
    metavar="DIR",
    help="Folder for the history and all logs. A later run with the same DIR continues from that history.",
)
@click.option("--on-rollback", metavar="HOOK", help="Reverts the last code change.")
@click.option("--on-update", metavar="HOOK", help="Applies pending code changes; needs --pending.")
@click.option(
    "--on-diagnose",
    metavar="HOOK",
    help="Tests the machines of the stopped job, and prints the faulty ones, one per line.",
)
@click.option(
    "--on-replay",
    metavar="HOOK",
    help="Replays the job in groups of machines, and prints the faulty ones, one per line.",
)
@click.option("--on-evict", metavar="HOOK", help="Runs at an eviction: can drain the machine or provide a spare.")
@click.option("--on-restart", metavar="HOOK", help="Runs when the job restarts unchanged.")
@click.option("--on-human", metavar="HOOK", help="Calls a person.")
@click.option(
    "--on-spare", metavar="HOOK", help="Tells a person that a spare failed its test ahead; the job goes on meanwhile."
)
@click.option(
    "--pending",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Code changes that wait to be merged, one name per line; `!NAME` is urgent.",
)
@click.option(
    "--copies",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help='Which machines hold checkpoint copies: {"shard": ["machine", ...]}.',
)
@click.option(
    "--checkpoint",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="The last checkpoint on shared storage. Its date says how much work a fallback to it would lose.",
)
@click.option(
    "--step-pattern",
    metavar="REGEX",
    help="Regular expression that matches a step line in the job's log.  [default: learned]",
)
@click.option(
    "--patience",
    callback=seconds,
    default="60s",
    show_default=True,
    metavar="DURATION",
    help="How long to wait for a better verdict when one names neither a machine nor the software.",
)
@click.option(
    "--grace",
    callback=seconds,
    default="10s",
    show_default=True,
    metavar="DURATION",
    help="Time from SIGTERM to SIGKILL when the job is stopped.",
)
@click.option(
    "--hook-limit",
    callback=seconds,
    default="2h",
    show_default=True,
    metavar="DURATION",
    help="Time limit for one hook.",
)
@click.option(
    "--ladder",
    multiple=True,
    metavar="NAME=NUMBER",
    help="Change a limit of the recovery ladder, such as evictions=1; may be repeated (docs/recovery.md).",
)
@click.option(
    "--set",
    "agent",
    multiple=True,
    metavar="NAME=NUMBER",
    help="Change a setting of the agents that this command starts (docs/agent.md).",
)
@click.option("--attach", is_flag=True, help="Use the server and agents that already watch the machines; see --server.")
@server_option
@click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED, metavar="COMMAND...")
@click.pass_context
def command(
    ctx: click.Context,
    /,
    machines: tuple[str, ...],
    spares: tuple[str, ...],
    levels: tuple[str, ...],
    spare_budget: float,
    spare_ahead: bool,
    spare_age: float,
    warm_spare: str,
    once: bool,
    job: str,
    state: Path,
    pending: Path | None,
    copies: Path | None,
    checkpoint: Path | None,
    step_pattern: str | None,
    patience: float,
    grace: float,
    hook_limit: float,
    ladder: tuple[str, ...],
    agent: tuple[str, ...],
    attach: bool,
    server: ServerAddress,
    words: tuple[str, ...],
    **on: str | None,
) -> None:
    """Run a training job, and restart it when it hangs or fails.

    hangdog starts COMMAND once for each machine. It replaces {machine}, {index}, {machines}, {first}, {active}, {port}
    and {attempt} in it. After a verdict or a failure the recovery ladder picks the next step: evict, test, restart,
    roll back, replay or call a person. hangdog writes the step to the history before it acts. A HOOK is a command or a
    webhook URL.

    The job's output goes to stdout, hangdog's own messages to stderr. Exit status: 0 the job completed, 1 a person is
    needed.
    """
    names = machines or (socket.gethostname(),)
    _check_names((*names, *spares, job))
    order = RunOrder(
        words, names, spares, job, state, once, _hooks(on), hook_s=hook_limit, grace_s=grace, patience_s=patience,
        levels=tuple(sorted(map(int, set(levels)))), test_s=spare_budget,
        ahead_s=spare_age if spare_ahead else 0.0, warm=warm_spare,
    )  # fmt: skip
    _check_spares(order)
    if (pending is None) is not (RecoveryRung.UPDATE not in order.hooks):
        raise WrongUse(
            "--pending and --on-update need each other",
            "--pending lists the changes, --on-update applies them",
            code="missing-option",
        )
    chosen(agent)  # what is wrong is said before anything is started
    pattern = safe(step_pattern) if step_pattern else None
    limited = ladder_settings(ladder)
    if advice := too_few_spares(len(names), len(spares)):
        _tell(advice)
    with _ending(), HistoryFile(state / "history.jsonl") as kept, _watcher(attach, server, order, agent) as watcher:
        supervisor = Supervisor(
            order,
            kept,
            watcher,
            _tell,
            _pass_on,
            _now,
            lambda: RecoveryResources(
                copies=read_copies_file(copies, _tell), price=checkpoint_price(checkpoint, _now())
            ),
            PendingChanges(pending),
            [JobLog(pattern) for _ in order.machines],
            limited,
            {"HANGDOG_STEP_PATTERN": step_pattern} if step_pattern else {},
        )
        try:
            finished = supervisor.run()
        finally:
            for line in outage_lines(kept.entries, _now()):
                _tell(line)
    _tell("the job reached its end" if finished else "a person is needed: run the same command again to go on")
    ctx.exit(0 if finished else CALLED)


def _check_spares(order: RunOrder) -> None:
    for option, given in (("--spare-level", order.levels), ("--warm-spare", order.warm)):
        if given and not order.spares:
            raise WrongUse(f"{option} needs a spare", "name one: --spare NAME", code="missing-option")
    if order.ahead_s and not order.levels:
        raise WrongUse("--spare-ahead needs a level", "say which: --spare-level 1", code="missing-option")
    if RecoveryRung.SPARE in order.hooks and not order.ahead_s:
        raise WrongUse("--on-spare needs tests ahead", "ask for them: --spare-ahead", code="missing-option")
    hooks.command_words(order.warm)


def _hooks(on: Mapping[str, str | None]) -> dict[RecoveryRung, str]:
    acts = {"on_restart": RecoveryRung.REATTEMPT}
    found = {
        acts.get(name) or RecoveryRung(name.removeprefix("on_")): hook for name, hook in on.items() if hook is not None
    }
    for act, hook in found.items():
        hooks.check(hook, act in TESTS)
    return found


def _check_names(names: Sequence[str]) -> None:
    for name in names:
        if not _NAME.fullmatch(name):
            raise WrongUse(
                f"{name!r} is not a name for a machine or job", "use letters, digits, `.`, `_` and `-`", code="bad-name"
            )
    if len(set(names[:-1])) < len(names) - 1:
        raise WrongUse("a machine is named twice", "name each one once, as --machine or as --spare", code="named-twice")


@contextlib.contextmanager
def _watcher(attach: bool, server: ServerAddress, order: RunOrder, agent: Sequence[str]) -> Iterator[Watcher]:
    if attach:
        yield WatchedCluster(server)
        return
    with LocalCluster(order.state / "watch", (*order.machines, *order.spares), agent) as local:
        yield local


@contextlib.contextmanager
def _ending() -> Iterator[None]:
    """Has a signal end the job in order, once: a second one must not leave half of it behind."""

    def leave(number: int, _frame: FrameType | None) -> None:
        for each in ENDINGS:
            signal.signal(each, signal.SIG_IGN)
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + number)

    caught = [
        number for number in ENDINGS if signal.getsignal(number) is not signal.SIG_IGN
    ]  # nohup ignores one for us
    before = {number: signal.signal(number, leave) for number in caught}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _tell(line: str) -> None:
    with contextlib.suppress(BrokenPipeError):
        click.echo(f"hangdog: {printable(line)}", err=True)


def _pass_on(output: bytes) -> None:
    with contextlib.suppress(BrokenPipeError):  # nobody reads it any more: the job goes on, its logs are in the state
        sys.stdout.buffer.write(output)
        sys.stdout.buffer.flush()


def _now() -> float:
    return time.time()  # noqa: TID251  # a command is where the clock is read
