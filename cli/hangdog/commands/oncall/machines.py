"""`hangdog machines` lists the machines the server hears of, or tells what one of them was tested for."""

import json
import sys

import click
from rich.table import Table

from hangdog.list_options import list_document, list_options, say_extent
from hangdog.options import format_option, server_option
from hangdog.output.lines import add_row, table
from hangdog.output.machine_history import print_test_history
from hangdog.output.terminal import console_for
from hangdog.output.times import ago
from hangdog_models.findings import Impact
from hangdog_models.lists.list_kinds import MACHINES
from hangdog_models.lists.list_query import ListQuery
from hangdog_models.lists.machine_now import MachineCondition
from hangdog_models.ranks import format_ranks
from hangdog_proto.client.incidents import JobLine, MachineLine
from hangdog_proto.client.list_client import ListClient
from hangdog_proto.client.server_address import ServerAddress

#: Findings of a machine that stand in its line; JSON has them all.
NAMED = 3


@click.command("machines")
@click.argument("machine", default="")
@list_options(MACHINES)
@format_option
@server_option
def command(machine: str, query: ListQuery, form: str, server: ServerAddress) -> None:
    """List the machines, those first that somebody has to see to: the jobs on them and what their checks found.

    Lost ones stay in the list for some hours, those that verdicts named for as long as these are kept. A certificate that
    ends soon is said. With MACHINE, or the UUID of a GPU: what it was tested for, and convicted of.

    \b
    hangdog machines --state suspected --job llama --limit 20
    hangdog machines --search "gpu-a1 ecc"
    """
    if machine:
        print_test_history(server, machine, form)
        return
    with ListClient(server) as client:
        page = client.machines_page(query)
    if form == "json":
        machines = [_as_json(machine) for machine in page.rows]
        document = {"schema": "hangdog.machines/1", "machines": machines, "list": list_document(page)}
        click.echo(json.dumps(document, indent=2))
    elif page.rows:
        console_for(sys.stdout).print(_table(page.rows))
    elif not page.known:
        click.echo("no machine is connected; start hangdog-agent on each")
        return
    say_extent(page, form)


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
        "states": list(machine.states),
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
        absent = MachineCondition.ABSENT in machine.states
        state = "connected" if machine.connected else "stopped" if machine.stopped else "absent" if absent else "lost"
        if MachineCondition.SUSPECTED in machine.states:
            state += ", suspected"
        if machine.certificate_ends_soon:
            state += f", its certificate ends in {ago(max(machine.certificate_left_s, 0.0))}"
        if machine.decided:
            state += f"; {machine.decided}"
        jobs = "; ".join(_job(job) for job in machine.jobs)
        add_row(
            rows,
            machine.name,
            state,
            "-" if absent else f"{ago(machine.silent_s)} ago",
            jobs,
            _findings(machine),
            machine.version,
        )
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
