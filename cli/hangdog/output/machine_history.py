"""Shows what one machine was tested for, and what it was convicted of."""

import json
import sys
from dataclasses import asdict
from typing import Any

import click
from rich.text import Text

from hangdog.output.lines import add_row, table
from hangdog.output.terminal import console_for, printable
from hangdog.output.times import local_time, utc
from hangdog_models.machine_history import MachineTest, MachineTests
from hangdog_models.views.repeated_tests import alike, times
from hangdog_proto.client.campaigns import CampaignClient
from hangdog_proto.client.server_address import ServerAddress


def print_test_history(server: ServerAddress, machine: str, form: str) -> None:
    """Asks the server for the past of a machine, or of the one that holds a part of that name, and prints it."""
    with CampaignClient(server) as client:
        history = client.test_history(machine)
    if form == "json":
        click.echo(json.dumps(_as_json(machine, history), indent=2))
        return
    console = console_for(sys.stdout)
    if history.parts:
        console.print(printable(f"holds {', '.join(history.parts)}"))
    for one in history.convictions:
        what = one.part or "the machine"
        where = f", in {one.machine} then" if one.part and one.machine != machine else ""
        line = f"convicted  {local_time(one.at)}  {what} by campaign {one.campaign}{where}"
        console.print(Text(printable(line), "red"))
    if history.probation:
        console.print(
            printable(f"on probation until {local_time(history.probation)}: campaigns suspect it more than others")
        )
    rows = table("when", "test", "outcome", "repetitions", "with", "says", "campaign")
    for test, many in alike(history.tests):
        cells = (
            test.test,
            times(many) + test.outcome,
            str(test.repetitions),
            ", ".join(test.others),
            test.says,
            test.campaign,
        )
        add_row(rows, local_time(test.at), *cells)
    if history.tests:
        console.print(rows)
    else:
        click.echo(
            f"no campaign tested {printable(machine)}; hangdog why {printable(machine)} says what else is known of it"
        )


def _as_json(machine: str, past: MachineTests) -> dict[str, Any]:
    return {
        "schema": "hangdog.past/1",
        "machine": machine,
        "parts": list(past.parts),
        "probation": utc(past.probation) if past.probation else None,
        "convictions": [{**asdict(one), "at": utc(one.at)} for one in past.convictions],
        "tests": [_test(one) for one in past.tests],
    }


def _test(one: MachineTest) -> dict[str, Any]:
    document = {**asdict(one), "at": utc(one.at)}
    del document["level"]  # hangdog.past/1 does not have it: the test's name says as much
    return document
