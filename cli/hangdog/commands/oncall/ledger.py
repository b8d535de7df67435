"""`hangdog ledger` tells what verdicts said of machines."""

import json
import sys
from collections.abc import Iterable

import click
from rich.table import Table

from hangdog.options import Number, format_option, server_option
from hangdog.output.lines import add_row, table
from hangdog.output.terminal import console_for, printable
from hangdog.output.times import local_time, utc
from hangdog_models.machine_history import MachineRecord, VerdictMention
from hangdog_models.views.answer_text import percent
from hangdog_proto.client.incidents import Client

#: Seconds of a day.
DAY_S = 86400.0


@click.command("ledger")
@click.argument("machine", default="")
@click.option("--days", type=Number(0, min_open=True), help="Only what was said within so many days.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="At most so many lines.")
@format_option
@server_option
def command(machine: str, days: float | None, limit: int, form: str, server: str) -> None:
    """List what verdicts said of MACHINE. Without MACHINE: the machines that verdicts named most.

    A verdict suspects a machine, convicts it (says to evict it), or clears it. It clears a machine that an earlier verdict
    on the same incident named. Machines are sorted by their convictions, then by their total probability.
    """
    within_s = (days or 0.0) * DAY_S
    with Client(server) as client:
        entries = client.ledger(machine, within_s, limit) if machine else ()
        machines = () if machine else client.most_suspected(within_s, limit)
    if form == "json":
        known = {"machine": machine, "entries": [_entry(one) for one in entries]} if machine else {
            "machines": [_record(one) for one in machines]
        }  # fmt: skip
        click.echo(json.dumps({"schema": "hangdog.ledger/1", **known}, indent=2))
    elif entries or machines:
        console_for(sys.stdout).print(_lines(entries) if machine else _list(machines))
    else:
        click.echo(f"no verdict named {printable(machine) if machine else 'a machine'}")


def _entry(entry: VerdictMention) -> dict[str, object]:
    return {
        "at": utc(entry.at),
        "mention": entry.mention,
        "probability": round(entry.probability, 3),
        "among": entry.among,
        "verdict": entry.kind,
        "incident": entry.incident,
        "job": entry.job,
    }


def _record(record: MachineRecord) -> dict[str, object]:
    return {
        "machine": record.machine,
        "convicted": record.convicted,
        "suspected": record.suspected,
        "cleared": record.cleared,
        "weight": round(record.weight, 3),
        "last": utc(record.last),
    }


def _lines(entries: Iterable[VerdictMention]) -> Table:
    rows = table("when", "standing", "probability", "verdict", "incident", "job")
    for entry in entries:
        among = f" of {entry.among}" if entry.among > 1 else ""
        likely = "" if entry.mention in ("cleared", "taken back") else f"{percent(entry.probability)}{among}"
        add_row(rows, local_time(entry.at), entry.mention, likely, entry.kind, entry.incident, entry.job)
    return rows


def _list(machines: Iterable[MachineRecord]) -> Table:
    rows = table("machine", "convicted", "suspected", "cleared", "weight", "last named")
    for one in machines:
        counts = (str(one.convicted), str(one.suspected), str(one.cleared))
        add_row(rows, one.machine, *counts, f"{one.weight:.2f}", local_time(one.last))
    return rows
