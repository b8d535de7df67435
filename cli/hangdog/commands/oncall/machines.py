"""`hangdog machines` lists the machines the server hears of, or tells what one of them was tested for."""

import json
import sys

import click
from rich.table import Table

from hangdog.options import format_option, server_option
from hangdog.output.lines import add_row, table
from hangdog.output.machine_history import print_test_history
from hangdog.output.terminal import console_for
from hangdog.output.times import ago
from hangdog_models.findings import Impact
from hangdog_models.ranks import format_ranks
from hangdog_proto.client.channel_options import ServerAddress
from hangdog_proto.client.incidents import Client, JobLine, MachineLine

#: Findings of a machine that stand in its line; JSON has them all.
NAMED = 3


@click.command("machines")
@click.argument("machine", default="")
@format_option
@server_option
def command(machine: str, form: str, server: ServerAddress) -> None:
    """List the machines whose agents report to the server, the jobs on them and what their checks found.

    Lost ones stay in the list for some hours. A certificate that ends soon is said. With MACHINE, or the UUID of a GPU: what it was tested for, and convicted of.
    """
    if machine:
        print_test_history(server, machine, form)
        return
    with Client(server) as client:
        machines = client.machines()
    if form == "json":
        document = {"schema": "hangdog.machines/1", "machines": [_as_json(machine) for machine in machines]}
        click.echo(json.dumps(document, indent=2))
    elif machines:
        console_for(sys.stdout).print(_table(machines))
    else:
        click.echo("no machine is connected; start hangdog-agent on each")


def _as_json(machine: MachineLine) -> dict[str, object]:
    return {
        "machine": machine.name,
        "connected": machine.connected,
        "silent_s": round(machine.silent_s, 1),
        "agent": machine.version,
        "jobs": [
            {
                "job": job.job,
                "ranks": format_ranks(job.ranks),
                "world_size": job.world_size or None,
                "topology": job.topology or None,
            }
            for job in machine.jobs
        ],
        "stopped": machine.stopped,
        "decided": machine.decided or None,
        "certificate": {"serial": machine.serial, "left_s": round(machine.certificate_left_s)}
        if machine.serial
        else None,
        "findings": [
            {
                "source": finding.source,
                "code": finding.code,
                "impact": str(finding.impact),
                "what": finding.what,
                "device": finding.device or None,
                "times": finding.times,
            }
            for finding in machine.findings
        ],
    }


def _table(machines: tuple[MachineLine, ...]) -> Table:
    rows = table("machine", "agent", "last heard", "jobs", "findings", "version")
    for machine in machines:
        state = "connected" if machine.connected else "stopped" if machine.stopped else "lost"
        if machine.certificate_ends_soon:
            state += f", its certificate ends in {ago(max(machine.certificate_left_s, 0.0))}"
        if machine.decided:
            state += f"; {machine.decided}"
        jobs = "; ".join(_job(job) for job in machine.jobs)
        add_row(rows, machine.name, state, f"{ago(machine.silent_s)} ago", jobs, _findings(machine), machine.version)
    return rows


def _findings(machine: MachineLine) -> str:
    """The codes of what was found, the worst first; `-` where nothing was."""
    order = list(Impact)
    codes = list(dict.fromkeys(f.code for f in sorted(machine.findings, key=lambda found: order.index(found.impact))))
    more = f" and {len(codes) - NAMED} more" if len(codes) > NAMED else ""
    return ", ".join(codes[:NAMED]) + more or "-"


def _job(job: JobLine) -> str:
    of = f" of {job.world_size}" if job.world_size else ""
    return f"{job.job} ({'rank' if len(job.ranks) == 1 else 'ranks'} {format_ranks(job.ranks)}{of})"
