"""Reads `job.toml`, the declaration of a job's shape, and sizes written as `tp=2,dp=2,pp=2`."""

import math
import tomllib
from collections.abc import Mapping
from typing import Any

from hangdog_models.errors import UnreadableEvidence, WrongUse
from hangdog_models.ranks import MAX_RANK, Rank, parse_ranks
from hangdog_models.snapshot import Job
from hangdog_models.topology import DEFAULT_ORDER, Groups, Layout

#: Group names and switches one job declares at most; real jobs have about ten dimensions.
_MOST_NAMES = 64
#: Characters of a job.toml: 16,384 machines in a table of their own are below 1 MB.
_MOST_TEXT = 8 << 20


def read_job(text: str) -> tuple[Job, Layout]:
    """The job and its layout; raises UnreadableEvidence on what is no TOML, WrongUse on values that make no sense.

    Keys and tables that are not known are passed over: the contract grows by adding.
    """
    document = _toml(text)
    job, topology = _table(document, "job"), _table(document, "topology")
    layout = Layout(
        world_size=_size(job, "world_size", "[job]"),
        order=_order(topology.get("order")),
        sizes=_sizes(topology),
        ranks_per_machine=_size(topology, "gpus_per_node", "[topology]"),
        groups=_groups(_table(document, "groups")),
        machines=_machines(_table(document, "machines")),
        switches=_switches(_table(document, "switches")),
    )
    _check_product(layout.sizes)
    stalled = job.get("stalled_s")
    stalled_s = None if stalled is None else _seconds(stalled, "[job] stalled_s", "write stalled_s = 1800")
    return Job(_text(job, "id"), _text(job, "framework").lower(), stalled_s), layout


def read_interval(text: str) -> float | None:
    """Seconds between two rounds from a `rounds.toml`; None when it does not say; raises like `read_job`."""
    interval = _toml(text).get("interval_s")
    return None if interval is None else _seconds(interval, "interval_s", "write interval_s = 0.75")


def read_sizes(text: str) -> dict[str, int]:
    """Parallel sizes from `tp=2,dp=2,pp=2`, in the order written; raises WrongUse."""
    sizes: dict[str, int] = {}
    for part in text.replace(" ", "").split(","):
        if not part:
            continue
        dim, equals, size = part.partition("=")
        if not dim.isidentifier() or not equals or not (size.isascii() and size.isdigit()) or len(size) > 7:
            raise WrongUse(
                f"{part[:40]!r} is no parallel size", "write sizes as tp=2,dp=2,pp=2", code="bad-parallel-sizes"
            )
        if dim in sizes:
            raise WrongUse(
                f"{dim} is given twice in {text[:80]!r}", "write sizes as tp=2,dp=2,pp=2", code="named-twice"
            )
        sizes[dim] = _positive(int(size), dim)
    _check_product(sizes)
    return sizes


def _toml(text: str) -> dict[str, Any]:
    if len(text) > _MOST_TEXT:
        raise UnreadableEvidence(f"{len(text)} characters; {_MOST_TEXT} are read", code="too-large")
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # TOMLDecodeError; integers of thousands of digits; deep nesting
        raise UnreadableEvidence(f"not TOML: {error}", code="damaged-toml") from error


def _table(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    table = document.get(name, {})
    if not isinstance(table, dict):
        raise WrongUse(
            f"[{name}] is no table", f"write [{name}] on a line of its own, then its keys", code="wrong-setting"
        )
    return table


def _text(table: Mapping[str, Any], key: str) -> str:
    value = table.get(key, "")
    if not isinstance(value, str):
        raise WrongUse(f"[job] {key} = {value!r} is no text", f'write {key} = "…"', code="wrong-setting")
    return value


def _seconds(value: object, name: str, hint: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9:
        raise WrongUse(f"{name} = {str(value)[:40]} is no number of seconds", hint, code="wrong-setting")
    return float(value)


def _size(table: Mapping[str, Any], key: str, where: str) -> int | None:
    value = table.get(key)
    return None if value is None else _positive(value, f"{where} {key}")


def _positive(value: object, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= MAX_RANK:
        raise WrongUse(
            f"{name} = {str(value)[:40]} is no size",
            f"a size is a whole number from 1 to {MAX_RANK}",
            code="bad-parallel-sizes",
        )
    return value


def _order(value: object) -> tuple[str, ...]:
    if value is None:
        return DEFAULT_ORDER
    dims = tuple(value.split("-")) if isinstance(value, str) else ()
    if not dims or len(dims) > _MOST_NAMES or len(set(dims)) < len(dims) or not all(dim.isidentifier() for dim in dims):
        raise WrongUse(
            f"[topology] order = {str(value)[:80]!r} is no order",
            'write order = "tp-cp-ep-dp-pp"',
            code="bad-dimension-order",
        )
    return dims


def _sizes(topology: Mapping[str, Any]) -> dict[str, int]:
    """Sizes of the dimensions that the order or the convention knows, in the order they are written."""
    known = {*DEFAULT_ORDER, *_order(topology.get("order"))}
    return {dim: _positive(size, f"[topology] {dim}") for dim, size in topology.items() if dim in known}


def _check_product(sizes: Mapping[str, int]) -> None:
    product = math.prod(size for dim, size in sizes.items() if dim != "ep")
    if product > MAX_RANK:
        raise WrongUse(f"the parallel sizes make {product} ranks", f"{MAX_RANK} at most", code="too-many")


def _groups(table: Mapping[str, Any]) -> dict[str, Groups]:
    if len(table) > _MOST_NAMES:
        raise WrongUse(f"[groups] holds {len(table)} names", f"{_MOST_NAMES} at most", code="too-many")
    return {dim: tuple(_disjoint(table[dim], f"[groups] {dim}").values()) for dim in table}


def _machines(table: Mapping[str, Any]) -> dict[str, tuple[Rank, ...]]:
    return _disjoint(table, "[machines]")


def _disjoint(table: object, where: str) -> dict[str, tuple[Rank, ...]]:
    """Named rank sets (a list counts its names) of which no two share a rank, so they are never larger than a job."""
    named = dict(enumerate(table)) if isinstance(table, list) else table
    if not isinstance(named, dict):
        raise WrongUse(
            f"{where} = {str(table)[:40]!r} is no list of rank sets", 'write ["0,2", "1,3"]', code="bad-rank-set"
        )
    found: dict[str, tuple[Rank, ...]] = {}
    taken: set[Rank] = set()
    for name, text in named.items():
        if not isinstance(text, str):
            raise WrongUse(f"{where}: {str(text)[:40]!r} is no rank set", 'write ranks as "0-3,7"', code="bad-rank-set")
        ranks = parse_ranks(text)
        twice = next((rank for rank in ranks if rank in taken), None)
        if twice is not None:
            raise WrongUse(
                f"{where}: rank {twice} is named twice", "the sets of one table share no rank", code="named-twice"
            )
        taken.update(ranks)
        found[str(name)] = ranks
    return found


def _switches(table: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    for name, machines in table.items():
        if not isinstance(machines, list) or not all(isinstance(machine, str) for machine in machines):
            raise WrongUse(
                f"[switches] {name[:40]!r} is no list of machines",
                'write "leaf-3" = ["gpu-a17", "gpu-a18"]',
                code="wrong-setting",
            )
    return {name: tuple(machines) for name, machines in table.items()}
