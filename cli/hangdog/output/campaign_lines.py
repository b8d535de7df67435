"""What `hangdog test` does over a server: has machines tested until it is known which is at fault, and shows what came of it."""

import contextlib
import json
import sys
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from hangdog.output.lines import Line, add_row, print_line, table
from hangdog.output.terminal import console_for, printable
from hangdog.output.times import local_time, utc
from hangdog.retry import RetryPolicy
from hangdog_models.actions.by_hand import running_on
from hangdog_models.counts import counted
from hangdog_models.errors import HangdogError, OurFault, ServerUnreachable, WrongUse
from hangdog_models.views.answer_text import percent
from hangdog_proto.client.campaigns import OWN, CampaignClient, CampaignLine, CampaignStep, WantedReplay
from hangdog_proto.client.server_address import ServerAddress

#: As `hangdog test local` has them.
STATUSES = {"convicted": 1, "failed": 1, "inconclusive": 2, "not convicted": 0}
#: Rows of a kind that people are shown; JSON has them all.
SHOWN = 32


@dataclass(frozen=True, slots=True)
class WantedTests:
    """Whom to test, and how: machines by name, or those an incident suspects."""

    machines: tuple[str, ...]
    incident: str
    levels: tuple[int, ...]
    budget_s: float
    why: str
    replay: WantedReplay = OWN


def run(server: ServerAddress, wanted: WantedTests, form: str) -> int:
    """Starts a campaign, follows it to its end and prints its report; the exit status."""
    with CampaignClient(server) as client:
        machines = wanted.machines
        with contextlib.suppress(WrongUse):  # what is wrong with it the request itself is told, after who may ask
            if not machines:
                machines, _ = client.plan((), wanted.incident, wanted.levels, wanted.budget_s, wanted.replay)
        _warn_of_jobs(client, machines)
        given = (wanted.machines, wanted.incident, wanted.levels, wanted.budget_s, wanted.why)
        asked = client.run(*given, replay=wanted.replay)
        return _follow_to_end(client, asked, form)


def follow(server: ServerAddress, name: str, form: str) -> int:
    """Follows a campaign that somebody else started; the exit status."""
    with CampaignClient(server) as client:
        return _follow_to_end(client, client.follow(name), form, started_here=False)


def abort(server: ServerAddress, name: str) -> int:
    """Ends a campaign."""
    with CampaignClient(server) as client:
        line = client.abort(name)
    click.echo(f"campaign {line.id}: {printable(line.state)}", err=True)
    return 0


def show_plan(server: ServerAddress, wanted: WantedTests, form: str) -> int:
    """Prints what a campaign would begin with; nobody is tested."""
    with CampaignClient(server) as client:
        given = (wanted.machines, wanted.incident, wanted.levels, wanted.budget_s, wanted.replay)
        machines, plan = client.plan(*given)
        _warn_of_jobs(client, machines)
    if form == "json":
        click.echo(json.dumps({"schema": "hangdog.plan/1", "machines": list(machines), **plan}, indent=2))
        return 0
    console = console_for(sys.stdout)
    summary = f"{counted(len(machines), 'machine')}; first round: {printable(str(plan.get('because')))}"
    print_line(Line(summary), console)
    rows = table("test", "machines", "repetitions")
    launches = plan.get("launches", [])
    for one in launches[:SHOWN]:
        add_row(rows, one["test"], ", ".join(one["machines"]), str(one["repetitions"]))
    console.print(rows)
    _rest(launches)
    return 0


def _warn_of_jobs(client: CampaignClient, machines: Sequence[str]) -> None:
    """Says on stderr, before a test begins, which jobs still run on its machines."""
    on: dict[str, list[str]] = {}
    for line in client.machines():
        for local in line.jobs if line.name in machines and line.connected else ():
            on.setdefault(local.job, []).append(line.name)
    for job, names in on.items():
        click.echo(running_on(job, names), err=True)


def show_list(server: ServerAddress, form: str) -> int:
    """Prints the latest campaigns."""
    with CampaignClient(server) as client:
        lines = client.campaigns()
    if form == "json":
        click.echo(
            json.dumps({"schema": "hangdog.campaigns/1", "campaigns": [_as_json(one) for one in lines]}, indent=2)
        )
        return 0
    rows = table("campaign", "began", "state", "machines", "convicted", "by", "why")
    for one in lines:
        convicted = ", ".join(one.convicted) or "-"
        add_row(
            rows,
            one.id,
            local_time(one.began),
            one.state,
            str(len(one.machines)),
            convicted,
            one.who,
            one.why or one.note,
        )
    if lines:
        console_for(sys.stdout).print(rows)
    else:
        click.echo("no campaign yet; hangdog test run --machines A,B starts one")
    return 0


def print_report(report: Mapping[str, Any], console: Console) -> None:
    """The report for people: who is convicted and why, what was bought of the others, and what was left untested."""
    for one in report["convicted"]:
        parts = f" ({', '.join(one['parts'])})" if one["parts"] else ""
        headline = f"convicted  {one['machine']}{parts}, {percent(one['probability'])}"
        console.print(Text(printable(headline), "bold red"))
        for reason, times in Counter(one["because"]).items():
            often = f" ({times} times)" if times > 1 else ""
            console.print(Text(f"  {printable(reason)}{often}", "dim"))
    for one in report["tell"]:
        console.print(
            Text(printable(f"tell  the people of the network: {one['where']} {' - '.join(one['names'])}"), "red")
        )
    if replay := report.get("replay"):
        console.print(printable(_replayed(replay)))
    rows = table("machine", "not convicted by", "launches", "repetitions", "would have shown")
    for one in report["not_convicted"][:SHOWN]:
        shown = ", ".join(f"{mode} {percent(value)}" for mode, value in one["would_have_shown"].items())
        add_row(rows, one["machine"], one["by"], str(one["launches"]), str(one["repetitions"]), shown)
    if report["not_convicted"]:
        console.print(rows)
        _rest(report["not_convicted"])
    for one in report["untested"][:SHOWN]:
        by = f" by {one['by']}" if one["by"] else ""
        console.print(Text(printable(f"not tested{by}: {one['machine']}: {one['why']}"), "yellow"))
    _rest(report["untested"])
    if report["instead"] and not report["convicted"]:
        console.print(printable(f"instead of more tests: evict {', '.join(report['instead'])}"))
    console.print(Text(printable(f"{report['verdict']} ({report['because']})"), "bold"))


def _replayed(replay: Mapping[str, Any]) -> str:
    what = f"{replay['name']}" if replay["name"] else "a small GPT"
    phases = ", ".join(replay["phases"]) or "no phase"
    crossed = f"; failed groups cross at {', '.join(replay['crossed'][:SHOWN])}" if replay["crossed"] else ""
    return f"replayed  {what}, groups of {replay['group_size']}: {phases}{crossed}"


def _follow_to_end(
    client: CampaignClient, steps: Generator[CampaignStep, None, None], form: str, started_here: bool = True
) -> int:
    """The exit status, once the report is printed; what happens meanwhile goes to stderr."""
    name = ""
    retry: RetryPolicy | None = None
    try:
        while True:
            try:
                for step in steps:
                    if retry is not None:
                        retry.answered()
                    name = step.campaign
                    click.echo(printable(step.text), err=True)
                    if step.report is not None:
                        return _print_result(step.report, form)
                break
            except ServerUnreachable as error:
                if not name:
                    raise
                retry = retry or RetryPolicy(f"campaign {name}", f"hangdog test follow {name}")
                retry.lost(error)
                steps = client.follow(name)  # the server that is started next goes on with it
    except KeyboardInterrupt:
        if name and started_here:
            _interrupted(client, name, form)
        elif name:
            click.echo(f"the campaign goes on: hangdog test follow {name}", err=True)
        raise
    raise OurFault(f"the server ended campaign {name} without a report", "its log says more", code="no-verdict")


def _interrupted(client: CampaignClient, name: str, form: str) -> None:
    """Ends a campaign of ours, and prints what it knew."""
    click.echo(f"ending campaign {name}; once more, and it goes on without you", err=True)
    try:
        client.abort(name)
        for step in client.follow(name):
            if step.report is not None:
                _print_result(step.report, form)
    except HangdogError as error:
        click.echo(f"campaign {name} may go on: {printable(str(error))}; hangdog test abort {name}", err=True)


def _print_result(report: Mapping[str, Any], form: str) -> int:
    if form == "json":
        click.echo(json.dumps(report, indent=2))
    else:
        print_report(report, console_for(sys.stdout))
    status = STATUSES.get(report.get("verdict", ""))
    if status is None:
        raise OurFault(
            "the server's report has an unknown verdict",
            "is the server another version of hangdog?",
            code="unreadable-answer",
        )
    return status


def _as_json(line: CampaignLine) -> dict[str, object]:
    return {
        "campaign": line.id,
        "state": line.state,
        "began": utc(line.began),
        "why": line.why,
        "who": line.who,
        "incident": line.incident or None,
        "machines": list(line.machines),
        "convicted": list(line.convicted),
        "note": line.note,
    }


def _rest(rows: Sequence[object]) -> None:
    if len(rows) > SHOWN:
        click.echo(f"and {len(rows) - SHOWN} more; --format json has them all")
