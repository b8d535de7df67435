"""`hangdog demo`: hangs a real training job on this machine and compares hangdog's verdict with the truth."""

import contextlib
import json
import random
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import click

from hangdog.demo.demo_plan import DemoOutcome, DemoPlan, draw_plan
from hangdog.demo.faults import FAULTS
from hangdog.demo.shape import MACHINES, SIZES, WORLD_SIZE
from hangdog.output.lines import Line, print_line
from hangdog.output.terminal import console_for
from hangdog.output.verdict_text import print_verdict
from hangdog_models.errors import WrongUse
from hangdog_models.verdict import to_json

#: A seed of four digits is drawn when none is given: short enough to type again.
SEEDS = 10_000
#: What the demo needs beside the bare install; all of it comes with the extra `demo`.
NEEDED = ("torch", "sqlalchemy")


@click.command("demo")
@click.option("--fault", type=click.Choice(list(FAULTS)), help="What to break; chosen by the seed if not given.")
@click.option("--seed", type=click.IntRange(0), help="Repeats a run: fault, rank and moment follow from it.")
@click.option(
    "--keep",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write the evidence there, as a bundle for `hangdog triage`.",
)
@click.option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text", help="For people, or one JSON object."
)
@click.option(
    "--stay", is_flag=True, help="Then go on, and show it all in a browser; the address is printed, Ctrl-C ends it."
)
@click.option("--list", "listed", is_flag=True, help="List the faults and end.")
@click.pass_context
def command(
    ctx: click.Context, fault: str | None, seed: int | None, keep: Path | None, form: str, stay: bool, listed: bool
) -> None:
    """Hang a real training job on this machine, and find the culprit.

    Eight PyTorch processes (tensor 2 x data 2 x pipeline 2, on the CPU) train a small language model on what stands for
    four machines. One rank is broken from outside; then hangdog is asked which machine is to blame. Takes under a
    minute, 4 GiB of memory and no GPU. Exit status: 0 the verdict is right, 1 it is not.
    """
    if listed:
        console = console_for(sys.stdout)
        for name, each in FAULTS.items():
            right = " or ".join(map(str, (each.right, *each.also)))
            print_line(Line(f"one rank: {each.truth}; right is: {right}", f"{name:16} "), console)
        return
    if keep is not None and keep.exists() and any(keep.iterdir()):
        raise WrongUse(f"{keep} is not empty", "name a directory that is empty or does not exist yet", code="not-empty")
    _require_packages()
    plan = draw_plan(random.randrange(SEEDS) if seed is None else seed, fault)

    def say(outcome: DemoOutcome) -> None:
        if form == "json":
            click.echo(json.dumps(_document(outcome), indent=2))
        else:
            _print_outcome(outcome, keep)

    def linger(outcome: DemoOutcome, address: str) -> None:
        say(outcome)
        click.echo(f"pages    {address}   (Ctrl-C ends the demo)", err=form == "json")
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()

    outcome = _play(plan, keep, form == "json", linger if stay else None)
    if not stay:
        say(outcome)
    ctx.exit(0 if outcome.right else 1)


def _require_packages() -> None:
    """Raises WrongUse unless the trainer and the server can be started; torch itself is never loaded here."""
    absent = [name for name in NEEDED if find_spec(name) is None]
    if absent:
        raise WrongUse(
            f"the demo needs {' and '.join(absent)}, not installed here",
            "in hangdog's source tree: make torch",
            code="package-not-installed",
        )


def _play(
    plan: DemoPlan, keep: Path | None, to_stderr: bool, stay: Callable[[DemoOutcome, str], None] | None
) -> DemoOutcome:
    from hangdog.demo.conductor import run_demo

    def tell(line: str) -> None:
        click.echo(line, err=to_stderr)

    sizes = ", ".join(f"{dim} {size}" for dim, size in SIZES.items())
    # before anything is told: who reads it may interrupt at once, and then the folder has to go, too
    folder = Path(tempfile.mkdtemp(prefix="hangdog-demo-"))
    try:
        tell(
            f"seed {plan.seed}: {WORLD_SIZE} ranks ({sizes}) on {len(MACHINES)} machines, {MACHINES[0]} to {MACHINES[-1]}"
        )
        tell("server and agents start, torch is loaded (some ten seconds) ...")
        return run_demo(plan, folder, tell, keep, stay)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _print_outcome(outcome: DemoOutcome, keep: Path | None) -> None:
    plan = outcome.plan
    click.echo()
    print_verdict(outcome.verdict, console_for(sys.stdout))
    click.echo()
    click.echo(f"truth    rank {plan.rank} on {plan.machine}: {plan.fault.truth}")
    right = " or ".join(map(str, (plan.fault.right, *plan.fault.also)))
    click.echo(f"right is {_answer_text(right, outcome.expected)}")
    click.echo(f"verdict  {_answer_text(outcome.verdict.kind, outcome.named)}: {'right' if outcome.right else 'WRONG'}")
    click.echo(
        f"times    {outcome.onset_s:.0f} s from fault to standstill, {outcome.verdict_s:.0f} s from question to verdict"
    )
    click.echo(f"again    hangdog demo --fault {plan.fault.name} --seed {plan.seed}")
    if keep is not None:
        click.echo(f"kept     hangdog triage {keep}")


def _answer_text(kind: str, machines: tuple[str, ...]) -> str:
    return f"{kind}, {', '.join(machines) or 'no machine'}"


def _document(outcome: DemoOutcome) -> dict[str, object]:
    plan = outcome.plan
    return {
        "schema": "hangdog.demo/1",
        "seed": plan.seed,
        "truth": {
            "fault": plan.fault.name,
            "rank": plan.rank,
            "machine": plan.machine,
            "verdict": str(plan.fault.right),
            "machines": list(outcome.expected),
        },
        "right": outcome.right,
        "onset_s": round(outcome.onset_s, 1),
        "verdict_s": round(outcome.verdict_s, 1),
        "verdict": to_json(outcome.verdict),
    }
