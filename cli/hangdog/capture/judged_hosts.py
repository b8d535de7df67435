"""Has several machines capture themselves, and judges what came of all of them."""

import json
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from hangdog.capture.capture_summary import SCHEMA
from hangdog.capture.host_captures import HostCapture, HostCaptures
from hangdog.capture.remote_shells import RemoteCall
from hangdog.output.terminal import printable
from hangdog_models.counts import counted
from hangdog_models.errors import UnreadableEvidence, WrongUse

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class HostsOrder:
    """What is asked of `hosts`: that each runs `remote`, at most `deadline_s` seconds, `at_once` of them at a time."""

    call: RemoteCall
    hosts: tuple[str, ...]
    remote: tuple[str, ...]
    folder: Path
    deadline_s: float
    at_once: int
    judged: bool


def would_run(order: HostsOrder) -> Iterator[str]:
    """The command line of each host."""
    for host in order.hosts:
        yield shlex.join(order.call.command(host, order.remote, order.deadline_s))


def capture_hosts(order: HostsOrder, form: str, say: Say) -> int:
    """Captures all hosts, prints the verdict, and answers the exit status; raises UnreadableEvidence where none answered."""
    try:
        order.folder.mkdir(mode=0o700)
    except OSError as error:
        what = f"cannot make the folder {printable(str(order.folder))}: {error.strerror}"
        raise WrongUse(
            what, "name a new folder with -o, in a place where you can write", code="unwritable-file"
        ) from error
    say(f"capturing {counted(len(order.hosts), 'host')} over {order.call.name}, {order.at_once} at a time")

    def show(one: HostCapture) -> None:
        say(f"{one.host}: {one.problem or 'captured'}")

    captures = HostCaptures(order.call, order.remote, order.folder, order.deadline_s)
    came = captures.take(order.hosts, order.at_once, show)
    lacking = [one for one in came if one.file is None]
    files = [one.file for one in came if one.file is not None]
    say(f"{len(files)} of {counted(len(came), 'host')} answered, in {order.folder}")
    if not files:
        first = f"{lacking[0].host}: {lacking[0].problem}"
        raise UnreadableEvidence(
            f"no host answered; {first}",
            "`--dry-run` shows the commands: try one of them by hand",
            code="no-host-answered",
        )
    status, verdict = _judged(files, lacking, form) if order.judged else (0, None)
    if form == "json":
        click.echo(json.dumps(_document(came, verdict), indent=2))
    elif not order.judged:
        click.echo(f"hangdog triage {printable(shlex.quote(str(order.folder)))}/*.tar.zst")
    return status


def _judged(files: Sequence[Path], lacking: Sequence[HostCapture], form: str) -> tuple[int, Mapping[str, object]]:
    # here: who only wants the captures does not wait for the diagnosis to be loaded
    from hangdog.offline import open_case
    from hangdog.output.terminal import console_for
    from hangdog.output.verdict_text import print_verdict
    from hangdog_models.diagnosis.verdict.conclude import conclude
    from hangdog_models.verdict import to_json

    remarks = tuple(f"{one.host} was not captured: {one.problem}" for one in lacking)
    verdict = conclude(open_case(files, remarks=remarks))
    if form == "text":
        print_verdict(verdict, console_for(sys.stdout))
    return verdict.exit_code, to_json(verdict)


def _document(came: Sequence[HostCapture], verdict: Mapping[str, object] | None) -> dict[str, object]:
    hosts = [
        {"host": one.host, "output": str(one.file) if one.file else None, "problem": one.problem or None}
        for one in came
    ]
    return {"schema": SCHEMA, "hosts": hosts, "verdict": verdict}
