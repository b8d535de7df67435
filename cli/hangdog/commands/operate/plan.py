"""`hangdog plan` says how many spares to keep and where to put checkpoint copies, before anything fails."""

import json
import sys
from collections.abc import Sequence
from math import prod
from pathlib import Path

import click

from hangdog.options import Number, format_option, seconds
from hangdog.output.plan_text import heading, pairs, pool_json, pools_table
from hangdog.output.terminal import console_for, printable
from hangdog_models.counts import counted
from hangdog_models.errors import WrongUse
from hangdog_models.planning.standby import FleetDemand, compound, pool, single, spares
from hangdog_models.reading.job import read_job
from hangdog_models.topology import DEFAULT_ORDER, Layout, build

#: Percentiles shown beside the one asked for, so that people see what the next step costs.
SHOWN = (0.9, 0.95, 0.99, 0.999)


@click.group("plan")
def command() -> None:
    """Plan how many spares to keep, and where to put checkpoint copies.

    It only calculates, and changes nothing. Use it before something fails.
    """


@command.command("standby")
@click.option("--machines", type=click.IntRange(1), required=True, help="How many machines the job has.")
@click.option(
    "--p",
    "daily",
    type=Number(0, min_open=True),
    required=True,
    help="Incidents per machine and day; Llama 3 had 0.0038.",
)
@click.option(
    "--over",
    metavar="SHARE:MACHINES",
    multiple=True,
    help="This share of incidents evicts this many machines, such as 0.1:8; may be repeated. All others evict one.",
)
@click.option(
    "--replenish",
    callback=seconds,
    metavar="DURATION",
    default="1d",
    show_default=True,
    help="Time to replace an evicted machine: 4h, 3d.",
)
@click.option(
    "--quantile",
    type=Number(0.5, 1, max_open=True),
    default=0.99,
    show_default=True,
    help="Probability that the spares suffice.",
)
@click.option("--spares", "kept", type=click.IntRange(0), help="Also show what this many spares are worth.")
@click.option(
    "--delay",
    callback=seconds,
    metavar="DURATION",
    default="768s",
    show_default=True,
    help="Downtime when spares run out. ByteRobust measured 768 s to requeue 1,024 machines.",
)
@format_option
def standby(
    machines: int,
    daily: float,
    over: tuple[str, ...],
    replenish: float,
    quantile: float,
    kept: int | None,
    delay: float,
    form: str,
) -> None:
    """Say how many warm spare machines a job needs.

    Incidents come at random. Until an evicted machine is replaced, they share the spares. There are two models: in
    `single` (ByteRobust's binomial) each incident takes one machine. In `compound` the number of incidents is Poisson,
    and --over says which share takes a whole group. If verdicts evict groups, use `compound`.
    """
    fleet = FleetDemand(machines, daily, replenish, _sizes(over))
    alone, demand = single(fleet), compound(fleet)
    rows = sorted({spares(demand, each) for each in (*SHOWN, quantile)} | ({kept} if kept is not None else set()))
    answer, plain = spares(demand, quantile), spares(alone, quantile)
    pools = [pool(demand, count) for count in rows]
    if form == "json":
        document = {
            "schema": "hangdog.standby/1",
            "machines": machines,
            "daily": daily,
            "replenish_s": replenish,
            "sizes": {str(size): share for size, share in sorted(fleet.sizes.items())},
            "quantile": quantile,
            "spares": answer,
            "single": plain,
            "incidents": fleet.incidents,
            "pools": [pool_json(each, fleet, delay) for each in pools],
        }
        click.echo(json.dumps(document, indent=2))
        return
    click.echo(
        f"{counted(answer, 'spare')} {'suffices' if answer == 1 else 'suffice'} with {quantile:.1%} while a machine that left is replaced ({replenish / 3600:g} h)"
    )
    sizes = ", ".join(f"{share:.1%} of {size}" for size, share in sorted(fleet.sizes.items()))
    click.echo(
        f"  {fleet.incidents:.2f} incidents in that time: {counted(machines, 'machine')} x {daily:g} a day; machines evicted: {sizes}"
    )
    click.echo(f"  if each evicted one machine (binomial, as ByteRobust sizes): {plain}")
    console_for(sys.stdout).print(pools_table(pools, fleet, delay, answer))


@command.command("backups")
@click.option("--tp", type=click.IntRange(1), default=1, help="Tensor parallel size.")
@click.option("--cp", type=click.IntRange(1), default=1, help="Context parallel size.")
@click.option("--ep", type=click.IntRange(1), default=1, help="Expert parallel size; it adds no ranks.")
@click.option("--dp", type=click.IntRange(1), default=1, help="Data parallel size.")
@click.option("--pp", type=click.IntRange(1), default=1, help="Pipeline parallel size.")
@click.option("--order", default="-".join(DEFAULT_ORDER), show_default=True, help="Dimensions, fastest-varying first.")
@click.option(
    "--gpus-per-machine", "per", type=click.IntRange(1), help="Ranks on one machine.  [default: each rank by itself]"
)
@click.option("--leaf", type=click.IntRange(1), help="How many machines share a leaf switch, in order.")
@click.option(
    "--topology",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="job.toml",
    help="Read the sizes and the order from this file instead.",
)
@format_option
def backups(
    tp: int,
    cp: int,
    ep: int,
    dp: int,
    pp: int,
    order: str,
    per: int | None,
    leaf: int | None,
    topology: Path | None,
    form: str,
) -> None:
    """Say which rank should hold a copy of each checkpoint shard.

    A copy should survive the eviction of any one machine, leaf switch, or parallel group with all its machines. If no
    placement survives some eviction, the answer names it. Only a checkpoint on other storage survives that one.
    """
    sizes = {"tp": tp, "cp": cp, "ep": ep, "dp": dp, "pp": pp}
    layout = _read(topology) if topology else _layout(sizes, order, per, leaf)
    shape, notes = build(layout, None)
    for note in notes:
        click.echo(printable(note), err=True)
    if shape.world_size == 0:
        raise WrongUse(
            "the job has no ranks", "give its sizes: --tp 8 --dp 16 --pp 8 --gpus-per-machine 8", code="impossible-plan"
        )
    from hangdog_models.planning.backups import place  # not at the top: only the server's extra brings NumPy and SciPy

    placement = place(shape)
    if form == "json":
        document = {
            "schema": "hangdog.backups/1",
            "world_size": shape.world_size,
            "holder": list(placement.holder),
            "survives": list(placement.survives),
            "lost": [{"kind": domain.kind, "name": domain.name} for domain in placement.lost],
            "reasons": list(placement.reasons),
        }
        click.echo(json.dumps(document, indent=2))
        return
    for line in (*heading(placement), *pairs(shape, placement)):
        click.echo(printable(line))


def _sizes(over: Sequence[str]) -> dict[int, float]:
    """Shares of incidents by the machines they evict, from `0.1:8`; raises WrongUse."""
    sizes: dict[int, float] = {}
    for one in over:
        share, _, size = one.partition(":")
        try:
            machines, part = int(size), float(share)
        except ValueError:
            raise WrongUse(
                f"--over {one} is not SHARE:MACHINES",
                "write --over 0.1:8 if 10 % of incidents evict 8 machines",
                code="bad-shares",
            ) from None
        sizes[machines] = sizes.get(machines, 0.0) + part
    rest = 1 - sum(sizes.values())
    return sizes | {1: sizes.get(1, 0.0) + rest} if rest > 0 or not sizes else sizes


def _layout(sizes: dict[str, int], order: str, per: int | None, leaf: int | None) -> Layout:
    dims = tuple(order.split("-"))
    if set(dims) - set(sizes) or len(set(dims)) < len(dims):
        raise WrongUse(
            f"{order!r} is not an order of dimensions",
            f"write it as {'-'.join(DEFAULT_ORDER)}",
            code="bad-dimension-order",
        )
    if leaf and not per:
        raise WrongUse(
            "--leaf counts machines, and no machine is known", "add --gpus-per-machine", code="missing-option"
        )
    world = prod(size for dim, size in sizes.items() if dim != "ep")
    names = [f"node-{number}" for number in range(-(-world // per) if per else 0)]
    leafs = {f"leaf-{at // leaf}": tuple(names[at : at + leaf]) for at in range(0, len(names), leaf)} if leaf else {}
    return Layout(order=dims, sizes=sizes, ranks_per_machine=per, switches=leafs)


def _read(path: Path) -> Layout:
    try:
        return read_job(path.read_text(encoding="utf-8"))[1]
    except UnicodeDecodeError as error:
        raise WrongUse(f"{path} is not text: {error}", "give a job.toml", code="not-text") from error
