"""How `hangdog plan` tells what it reckoned: pools of spares, and who holds whose checkpoint copies."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from hangdog_models.counts import counted
from hangdog_models.planning.standby import DAY_S, FleetDemand, Pool
from hangdog_models.ranks import Rank, format_ranks
from hangdog_models.topology import Topology

if TYPE_CHECKING:
    from hangdog_models.planning.backups import BackupPlacement

#: Machines of a placement listed in text; JSON has them all.
LISTED = 64


def pool_json(each: Pool, fleet: FleetDemand, delay_s: float) -> dict[str, float]:
    """A pool as JSON."""
    return {
        "spares": each.spares,
        "short": each.short,
        "mean_shortfall": each.shortfall,
        "idle_machine_h_a_day": each.spares * 24.0,
        "waiting_machine_h_a_day": _waiting(each, fleet, delay_s),
    }


def _waiting(each: Pool, fleet: FleetDemand, delay_s: float) -> float:
    """Machine hours a day that the job stands because spares fall short, taken as once in each replenish time that they do."""
    return each.short * delay_s / 3600 * fleet.machines * DAY_S / fleet.replenish_s


def pools_table(pools: Sequence[Pool], fleet: FleetDemand, delay_s: float, answer: int) -> Table:
    """The pools, the one that was asked for in bold."""
    table = Table(
        "spares",
        "fall short",
        "lacking then",
        "idle, machine h/day",
        "job waits, machine h/day",
        box=None,
        header_style="bold",
    )
    for each in pools:
        lacking = f"{each.shortfall / each.short:.1f}" if each.short else "-"
        cells = (
            str(each.spares),
            f"{each.short:.2%}",
            lacking,
            f"{each.spares * 24}",
            f"{_waiting(each, fleet, delay_s):.1f}",
        )
        table.add_row(*(Text(cell, "bold" if each.spares == answer else "") for cell in cells))
    return table


def heading(placement: "BackupPlacement") -> list[str]:
    """What a placement survives and what it does not, and why."""
    survives = ", ".join(placement.survives) or "nothing"
    lines = [f"survives the eviction of any one: {survives}"]
    if placement.lost:
        kinds = ", ".join(dict.fromkeys(domain.kind for domain in placement.lost))
        lines.append(f"does NOT survive {counted(len(placement.lost), 'single eviction')} of: {kinds}")
    return [*lines, *(f"  {sentence}" for sentence in placement.reasons)]


def pairs(shape: Topology, placement: "BackupPlacement") -> list[str]:
    """Who holds whose copies, one line a machine (a rank where no machine is known)."""
    ranks: dict[str, list[int]] = {}
    for rank in range(shape.world_size if placement.holder else 0):
        ranks.setdefault(shape.machine(Rank(rank)) or f"rank {rank}", []).append(rank)
    lines = []
    for name, held in list(ranks.items())[:LISTED]:
        holders = [placement.holder[rank] for rank in held]
        machines = ", ".join(shape.machines_of(holders))
        own = f"{name} ({_ranks(held)})" if shape.machines else name
        lines.append(f"{own} -> {_ranks(holders)}" + (f" on {machines}" if machines else ""))
    more = len(ranks) - len(lines)
    return [*lines, f"and {more} more: --format json has them all"] if more > 0 else lines


def _ranks(ranks: Sequence[int]) -> str:
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {format_ranks(ranks)}"
