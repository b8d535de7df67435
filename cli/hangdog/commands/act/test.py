"""`hangdog test` tests machines that run no job: this one alone, or several over a server until one is convicted."""

import json
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import click
from rich.table import Table
from rich.text import Text

from hangdog.options import Number, format_option, seconds, server_option
from hangdog.output import campaign_lines
from hangdog.output.campaign_lines import WantedTests
from hangdog.output.terminal import console_for, printable
from hangdog_agent.machine_tests.gpu_settings_backup import GpuSettingsBackup
from hangdog_agent.machine_tests.group import Group
from hangdog_agent.machine_tests.level import Level, LevelOutcome
from hangdog_agent.machine_tests.level_runner import SCHEMA, LadderOutcome, LevelsReport, climb, golden, to_json
from hangdog_agent.machine_tests.settings import LevelSettings
from hangdog_agent.machine_tests.standard_levels import ALONE, LEVELS, WantedLevels, standard
from hangdog_agent.machine_tests.torch_engine import Engine, Probe
from hangdog_models.counts import counted
from hangdog_models.errors import HangdogError, UnreadableEvidence, WrongUse
from hangdog_models.reading.json_document import read_json
from hangdog_proto.client.campaigns import WantedReplay
from hangdog_proto.client.server_address import ServerAddress

#: The word stands beside the colour, so nothing is lost without it.
STYLES = {LevelOutcome.PASS: "green", LevelOutcome.INCONCLUSIVE: "yellow", LevelOutcome.FAIL: "bold red"}
STATUSES = {LadderOutcome.CONVICTED: 1, LadderOutcome.FAILED: 1, LadderOutcome.OPEN: 2, LadderOutcome.NOT_CONVICTED: 0}
#: Where systemd has the agent keep what it remembers (StateDirectory= of deploy/systemd).
STATE = Path("/var/lib/hangdog-agent")
#: Characters of a stored report; one of 16 devices has some 100 KB.
REPORT_BYTES = 16 << 20


budget_option = click.option(
    "--budget",
    default="10m",
    show_default=True,
    metavar="DURATION",
    callback=seconds,
    help="Time limit for the whole run: 90s, 10m, 1h.",
)


@click.group("test")
def command() -> None:
    """Test machines, level by level, while no job runs on them.

    \b
    0  passive: read NVML, kernel log, PCIe links and network cards
    1  one device: memory, matrix products, speed; dcgmi diag if installed
    2  inside the machine: every pair of devices
    3  between machines: give each its --meet, --member and --members
    4  bit-wise alignment: a small GPT, compared between devices and --golden
    5  replay: the command after `--`; over a server a small GPT, or --replay NAME

    It skips a level that has nothing to test. A pass does not prove health: it says what was tested, and how often.
    Exit status of `local`, `run` and `follow`: 0 every test passed, 1 a test failed, 2 a test did not finish or none
    ran.
    """


@command.command("local")
@click.option(
    "--level",
    "wanted",
    type=click.IntRange(min(LEVELS), max(LEVELS)),
    multiple=True,
    help=f"Run this level; may be repeated.  [default: {', '.join(map(str, ALONE))}]",
)
@budget_option
@click.option(
    "--processes",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    help="Without accelerators, this many CPU processes act as devices.",
)
@click.option("--first", is_flag=True, help="Stop at the first level that convicts this machine.")
@click.option(
    "--golden",
    "stored",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    multiple=True,
    metavar="REPORT",
    help="JSON report of a healthy machine, to compare bits with; may be repeated.",
)
@click.option("--dcgm", type=click.IntRange(1, 4), default=2, show_default=True, help="The level of dcgmi diag.")
@click.option("--floor", type=Number(0), default=0.0, metavar="TFLOPS", help="A device slower than this fails.")
@click.option(
    "--python",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="PYTHON",
    help="A Python that has torch.  [default: the one that runs hangdog]",
)
@click.option(
    "--state",
    type=click.Path(path_type=Path),
    default=STATE,
    show_default=True,
    metavar="FOLDER",
    help="Level 0: state folder of this machine's agent. It shows which devices have disappeared.",
)
@click.option(
    "--meet", metavar="HOST:PORT", default="", help="Levels 3 and 5: address where the members of the group meet."
)
@click.option(
    "--member", type=click.IntRange(0), default=0, help="Levels 3 and 5: number of this machine in the group, from 0."
)
@click.option("--members", type=click.IntRange(1), default=1, help="Levels 3 and 5: how many machines the group has.")
@click.argument("replayed", metavar="[COMMAND]...", nargs=-1, type=click.UNPROCESSED)
@format_option
@click.pass_context
def local(
    ctx: click.Context,
    wanted: tuple[int, ...],
    budget: float,
    processes: int,
    first: bool,
    stored: tuple[Path, ...],
    dcgm: int,
    floor: float,
    python: Path | None,
    state: Path,
    meet: str,
    member: int,
    members: int,
    replayed: tuple[str, ...],
    form: str,
) -> None:
    """Test this machine, without a server. Level 5 replays COMMAND, which follows `--`."""
    group = Group(meet, member, members)
    if (5 in wanted) != bool(replayed):
        hint = "hangdog test local --level 5 -- python train.py"
        raise WrongUse("level 5 needs a command to replay, and no other level takes one", hint, code="missing-option")
    if 3 in wanted and (wrong := group.wrong()):
        raise WrongUse(
            f"level 3 tests a group of machines: {wrong}",
            "say where member 0 listens: --meet HOST:PORT",
            code="missing-option",
        )
    stored_digests = golden([_read_report(path) for path in stored])
    settings = replace(LevelSettings(), dcgm_level=dcgm, speed_floor_tflops=floor)
    engine = Engine(interpreter=str(python)) if python else Engine()
    options = WantedLevels(processes, stored_digests, group, replayed, str(Path.cwd()), str(state))
    wanted_levels = frozenset(wanted or ALONE)
    stop, until = threading.Event(), time.monotonic() + budget
    with _stop_on_sigterm(stop):
        # before anything wakes a driver that may be sick
        diagnosis = climb(standard(engine, Probe(), settings, options, wanted_levels & {0}), budget, stop, _print_level)
        probe = Probe(why="a level before it has convicted this machine")
        if not (first and diagnosis.verdict is LadderOutcome.CONVICTED) and wanted_levels - {0}:
            _print_progress("looking for devices ...")
            probe = engine.probe(min(settings.start_s, until - time.monotonic()), stop)
        levels = standard(engine, probe, settings, options, wanted_levels - {0})
        left_s = until - time.monotonic()
        diagnosis = climb(levels, left_s, stop, _print_level, not first, GpuSettingsBackup(), diagnosis.levels)
    if form == "json":
        document = to_json(diagnosis, socket.gethostname(), {"torch": probe.torch, "python": engine.interpreter})
        click.echo(json.dumps(document, indent=2))
    else:
        _print(diagnosis)
    ctx.exit(STATUSES[diagnosis.verdict])


@command.command("run")
@click.option("--machines", default="", metavar="A,B,...", help="Test these machines.")
@click.option(
    "--incident",
    default="",
    metavar="ID",
    help="Start from the suspects of this incident; without --machines, test its machines.",
)
@click.option("--dry-run", is_flag=True, help="Show the first tests, but run none.")
@click.option(
    "--level",
    "wanted",
    type=click.IntRange(min(LEVELS), max(LEVELS)),
    multiple=True,
    help="Run this level; may be repeated.  [default: 1 to 4]",
)
@budget_option
@click.option(
    "--replay",
    default="",
    metavar="NAME",
    help="Level 5: replay what the agents' own settings call NAME.  [default: a small GPT that hangdog brings]",
)
@click.option(
    "--group-size",
    type=click.IntRange(2, 256),
    metavar="N",
    help="Level 5: replay in groups of exactly N machines.  [default: the square root of all]",
)
@click.option(
    "--replay-time",
    default="3m",
    show_default=True,
    metavar="DURATION",
    callback=seconds,
    help="Level 5: a replay that takes longer hangs.",
)
@click.option("--why", default="", help="A reason, kept with the campaign.")
@format_option
@server_option
@click.pass_context
def run(
    ctx: click.Context,
    machines: str,
    incident: str,
    dry_run: bool,
    wanted: tuple[int, ...],
    budget: float,
    replay: str,
    group_size: int | None,
    replay_time: float,
    why: str,
    form: str,
    server: ServerAddress,
) -> None:
    """Test machines over the server until one is convicted.

    The server chooses tests round by round. It stops when a machine is convicted, no machine is in doubt, or the budget
    is used up. Ctrl-C stops the tests. Level 5 is launched alone: all machines train together in groups, regrouped in
    each phase so that the groups that fail cross at the faulty machine.
    """
    named = tuple(name.strip() for name in machines.split(",") if name.strip())
    if not (named or incident):
        raise WrongUse("no machines to test are named", "give --machines or --incident", code="no-machine-named")
    if set(wanted) != {5} and (replay or group_size):
        raise WrongUse(
            "--replay and --group-size are of level 5, which is launched alone", "add --level 5", code="missing-option"
        )
    chosen = WantedReplay(replay, group_size or 0, replay_time) if 5 in wanted else WantedReplay()
    tests = WantedTests(named, incident, wanted, budget, why, chosen)
    ctx.exit(campaign_lines.show_plan(server, tests, form) if dry_run else campaign_lines.run(server, tests, form))


@command.command("follow")
@click.argument("campaign", metavar="ID")
@format_option
@server_option
@click.pass_context
def follow(ctx: click.Context, campaign: str, form: str, server: ServerAddress) -> None:
    """Follow a running campaign of tests, or show one that ended. Ctrl-C leaves it running."""
    ctx.exit(campaign_lines.follow(server, campaign, form))


@command.command("abort")
@click.argument("campaign", metavar="ID")
@server_option
@click.pass_context
def abort(ctx: click.Context, campaign: str, server: ServerAddress) -> None:
    """Stop a campaign of tests. It reports what it knows so far."""
    ctx.exit(campaign_lines.abort(server, campaign))


@command.command("list")
@format_option
@server_option
@click.pass_context
def listed(ctx: click.Context, form: str, server: ServerAddress) -> None:
    """List the latest campaigns of tests."""
    ctx.exit(campaign_lines.show_list(server, form))


def _print_level(level: Level) -> None:
    _print_progress(f"level {level.number}, {level.name} ...")


def _print_progress(line: str) -> None:
    """Progress; of a pipe's other end nobody needs it."""
    click.echo(line, err=True)


@contextmanager
def _stop_on_sigterm(stop: threading.Event) -> Iterator[None]:
    """Has SIGTERM end all tests in order, as slurmd and systemd send it; Ctrl-C does so by itself."""

    def leave(number: int, frame: FrameType | None) -> None:
        stop.set()
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _read_report(path: Path) -> Mapping[str, Any]:
    """A stored report; raises UnreadableEvidence where it is none."""
    try:
        with path.open(encoding="utf-8") as file:
            document = read_json(file.read(REPORT_BYTES))
    except (OSError, UnicodeDecodeError, HangdogError) as error:
        raise UnreadableEvidence(
            f"cannot read {path}: {error}",
            "give what --format json wrote",
            code=error.code if isinstance(error, HangdogError) else "unreadable-file",
        ) from error
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise UnreadableEvidence(
            f"{path} is not a report of machine tests", "give what --format json wrote", code="wrong-schema"
        )
    return document


def _print(diagnosis: LevelsReport) -> None:
    console = console_for(sys.stdout)
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for level in diagnosis.levels:
        name = Text(f"{level.number}  {printable(level.name)}")
        if level.skipped:
            table.add_row(name, Text("skipped", "dim"), printable(level.skipped))
        for at, result in enumerate(level.results):
            table.add_row("" if at else name, Text(result.outcome, STYLES[result.outcome]), printable(result.message))
            if result.outcome is not LevelOutcome.PASS:
                for line in result.evidence:
                    table.add_row("", "", Text(printable(line), "dim"))
    console.print(table)
    for remark in diagnosis.remarks:
        console.print(printable(remark))
    console.print(Text(_sentence(diagnosis), "bold"))


def _sentence(diagnosis: LevelsReport) -> str:
    convicted = dict.fromkeys(
        f"{one.sort} {' with '.join(one.names)}".strip() for result in diagnosis.results for one in result.convicts
    )
    tests = sum(result.outcome is LevelOutcome.PASS for result in diagnosis.results)
    return {
        LadderOutcome.CONVICTED: f"convicted: {', '.join(convicted)}",
        LadderOutcome.FAILED: f"a test failed, for which this machine is not to blame yet: {', '.join(convicted)}",
        LadderOutcome.OPEN: "open: nothing failed, and not every test came to an end",
        LadderOutcome.NOT_CONVICTED: f"not convicted by {counted(tests, 'test')}, which is no proof of health",
    }[diagnosis.verdict]
