"""`hangdog capture` writes an evidence bundle of the trainers on this machine, or on several machines."""

import json
import os
import shlex
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from hangdog.capture import bundle_archive, capture_summary, remote_shells
from hangdog.capture.job_choice import choose
from hangdog.capture.judged_hosts import HostsOrder, capture_hosts, would_run
from hangdog.capture.local_capture import CaptureOrder, JobCapture, LocalCapture
from hangdog.evidence.packed import zst
from hangdog.options import Number, format_option
from hangdog.output.terminal import printable
from hangdog_agent.capture import pyspy
from hangdog_agent.capture.process_capture import Tools
from hangdog_agent.discovery.discover import RankProcesses
from hangdog_agent.discovery.process_table import ProcessTable
from hangdog_agent.discovery.watch import Watch
from hangdog_agent.procfs import Proc
from hangdog_agent.settings import chosen
from hangdog_models.counts import counted
from hangdog_models.errors import UnreadableEvidence, WrongUse
from hangdog_models.stack import Missing

#: Looks, and seconds between them: three tell a stuck rank from one that was merely seen in that place.
LOOKS, EVERY_S = 3, 5.0
#: Machines that capture at the same time: each costs this one a process that waits.
AT_ONCE = 32
#: What stands for stdout.
STDOUT = Path("-")


class Over(click.ParamType[str]):
    """A program that runs commands on other machines, with options of its own."""

    name = "over"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(name) for name in remote_shells.SHELLS if name.startswith(incomplete)]


@click.command("capture")
@click.argument("hosts", nargs=-1)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, allow_dash=True),
    metavar="FILE",
    help="The archive to write (.tar.zst, .tar.gz), or - for stdout; with --over, the folder for all archives. It must "
    "not exist yet.  [default: hangdog-MACHINE-TIME.tar.zst]",
)
@click.option("--job", default="", metavar="NAME", help="The job to capture; needed if several run here.")
@click.option(
    "--pid",
    "pids",
    type=click.IntRange(1),
    multiple=True,
    help="Capture only the rank of this process; may be repeated. Python processes whose ranks nothing tells are "
    "numbered as given.",
)
@click.option("--looks", type=click.IntRange(1, 100), default=LOOKS, show_default=True, help="How many looks to take.")
@click.option(
    "--every",
    type=Number(0, 3600),
    default=EVERY_S,
    show_default=True,
    metavar="SECONDS",
    help="Time from the start of one look to the start of the next.",
)
@click.option(
    "--native",
    type=click.Choice(["all", "none"]),
    default="none",
    show_default=True,
    help="Also read native stacks of all stalled ranks. It stops each of them for half a second.",
)
@click.option("--machine", metavar="NAME", help="This machine's name in the bundle.  [default: its host name]")
@click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="NAME=NUMBER",
    help="Change a setting of the agent's capture, such as look_s=10; may be repeated.",
)
@click.option("--dry-run", is_flag=True, help="Only list the ranks to capture or, with --over, the commands to run.")
@click.option(
    "--over",
    type=Over(),
    metavar="ssh|srun|kubectl|pdsh",
    help="Capture on HOSTS through this program, then judge it all. It can have options: 'ssh -p 2222'.",
)
@click.option(
    "--remote", default="hangdog", show_default=True, metavar="COMMAND", help="The command that runs hangdog on HOSTS."
)
@click.option(
    "--at-once",
    type=click.IntRange(1, 512),
    default=AT_ONCE,
    show_default=True,
    help="How many hosts to capture at once.",
)
@click.option(
    "--deadline",
    type=Number(0, min_open=True),
    metavar="SECONDS",
    help="Leave out a host that has not answered by then.  [default: enough for a slow host]",
)
@click.option("--no-triage", is_flag=True, help="Copy the captures of HOSTS here, but do not judge them.")
@format_option
@click.pass_context
def command(
    ctx: click.Context,
    hosts: tuple[str, ...],
    output: Path | None,
    job: str,
    pids: tuple[int, ...],
    looks: int,
    every: float,
    native: str,
    machine: str | None,
    assignments: tuple[str, ...],
    dry_run: bool,
    over: str | None,
    remote: str,
    at_once: int,
    deadline: float | None,
    no_triage: bool,
    form: str,
) -> None:
    """Write an evidence bundle of the trainers that run here, or on HOSTS. It needs no agent and no server.

    Each look holds the stacks of all ranks, the kernel's view of them, and whether the job makes progress. The bundle
    also holds flight recorder dumps, NCCL's report, the kernel log and nvidia-smi, if there are any. hangdog stops a
    trainer only if there is no other way to read it, for a few milliseconds.

    `hangdog triage FILE...` judges the bundles of all machines together. With --over, each of HOSTS (`gpu-a[01-16]`)
    captures itself. hangdog then copies the bundles here and prints the verdict.

    Exit status: 0 written, 65 nothing could be read; with --over, the status of the verdict.
    """
    order = CaptureOrder(looks, every, native == "all")
    if over is None:
        if hosts:
            raise click.UsageError(f"HOSTS need a program to reach them: --over ssh {shlex.join(hosts)}")
        if output == STDOUT and form == "json":
            raise click.UsageError("stdout takes the archive or the JSON, not both: drop -o - or --format json")
        _here(job, pids, order, machine or socket.gethostname(), assignments, output, dry_run, form)
        return
    if not hosts or pids or machine or output == STDOUT:
        raise click.UsageError("--over needs HOSTS and writes to a folder; it takes neither --pid nor --machine")
    call = remote_shells.parse(over)
    settings = chosen(assignments).capture
    slow_s = looks * max(every, settings.look_s) + (300.0 if order.native else 0.0) + 60.0
    asked = HostsOrder(
        call=call,
        hosts=remote_shells.expanded(call.shell, hosts),
        remote=(*shlex.split(remote), *_remote_words(job, order, assignments)),
        folder=output or Path(f"hangdog-capture-{_stamp(_now())}"),
        deadline_s=deadline or slow_s,
        at_once=at_once,
        judged=not no_triage,
    )
    if dry_run:
        for line in would_run(asked):
            click.echo(line)
        return
    ctx.exit(capture_hosts(asked, form, _say))


def _here(
    job: str,
    pids: tuple[int, ...],
    order: CaptureOrder,
    machine: str,
    assignments: tuple[str, ...],
    output: Path | None,
    dry_run: bool,
    form: str,
) -> None:
    """Captures this machine."""
    settings, proc = chosen(assignments), Proc()
    table = ProcessTable(proc, ray_logs=bool(settings.capture.ray_logs))
    watch = Watch(table, None, (os.getpid(),), settings.link.forget_s)
    watch.see()  # ranks that only their connections tell are numbered once nobody has come between two passes
    members = watch.see()
    if pids and not {member.process.pid for member in members}.intersection(pids):
        table.name_ranks(tuple(dict.fromkeys(pids)))  # nothing outside of these processes tells their ranks
        members = watch.see()
    if dry_run and members and not (job or pids):
        _list(members, form)
        return
    choice = choose(members, job, pids, table.unreadable())
    if dry_run:
        _list(choice.of(members), form)
        return
    at_s = _now()
    path = output or Path(f"hangdog-{machine.replace('/', '_')}-{_stamp(at_s)}.tar.zst")
    if path == STDOUT:
        if sys.stdout.isatty():
            raise WrongUse(
                "a terminal cannot show an archive",
                "write it to a file with -o, or into a pipe",
                code="output-is-a-terminal",
            )
    else:
        bundle_archive.require_new(path)
    tool = pyspy.load()
    if isinstance(tool, Missing):
        _say(f"no stacks can be read: {tool}")
    _say(f"job {choice.job.key} on {machine}: {counted(len(choice.ranks), 'rank')}")
    tools = Tools(proc, tool, settings.capture)
    capture = LocalCapture(machine, watch, choice, tools, settings, _now, _say).take(order)
    if path == STDOUT:
        count = bundle_archive.pack(capture.content(), sys.stdout.buffer, zst.packing, at_s)
        sys.stdout.buffer.flush()
    else:
        count = bundle_archive.write(path, capture.content(), at_s)
    _report(capture, path, count, form)
    if not capture.readable:
        raise UnreadableEvidence(
            "could not read a stack of any rank; the bundle holds only what the kernel says of them",
            _remedy(capture),
            code="no-stack",
        )


def _list(members: Sequence[RankProcesses], form: str) -> None:
    if form == "json":
        click.echo(json.dumps(capture_summary.listing(members), indent=2))
        return
    for line in capture_summary.listed_lines(members):
        click.echo(printable(line))


def _report(capture: JobCapture, path: Path, count: int, form: str) -> None:
    if form == "json":
        click.echo(json.dumps(capture_summary.as_json(capture, str(path), count), indent=2))
    for one in capture_summary.unread(capture):
        for line in one.lines():
            _say(line)
    for remark in (*capture.snapshot.account.notes, *capture.remarks):
        _say(remark)
    if form == "text" and path != STDOUT:
        name = printable(shlex.quote(str(path)))
        click.echo(f"{counted(count, 'file')} in {name}: hangdog triage {name}")


def _remedy(capture: JobCapture) -> str:
    return next((one.remedy for one in capture_summary.unread(capture) if one.remedy), "`hangdog doctor` says why")


def _remote_words(job: str, order: CaptureOrder, assignments: tuple[str, ...]) -> tuple[str, ...]:
    options: Mapping[str, str] = {
        "--looks": str(order.looks),
        "--every": f"{order.every_s:g}",
        "--native": "all" if order.native else "none",
    }
    words = [word for option in options.items() for word in option]
    words += [f"--job={job}"] if job else []
    return ("capture", "-o", "-", *words, *(f"--set={one}" for one in assignments))


def _say(text: str) -> None:
    click.echo(printable(text), err=True)


def _now() -> float:
    return time.time()  # noqa: TID251 - a command is what reads the clock


def _stamp(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y%m%dT%H%M%SZ")
