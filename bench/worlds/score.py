"""What a verdict on a case of a world is worth, and a row of such figures for each kind of case."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hangdog_models.ranks import Rank, parse_ranks
from hangdog_models.topology import Topology
from hangdog_models.verdict import Kind, Verdict

#: How a machine is written in `must_not_evict` that only its ranks name.
OF_RANKS = "rank:"


@dataclass(frozen=True, slots=True)
class Result:
    """What one verdict is worth. `word`: its kind is accepted. `first`: the first suspect is one to be found (None: nobody is).

    `named`: who is to be found is among the suspects. `innocent`: somebody is evicted who is not to be. `said`: the
    probability of its kind.
    """

    case: str
    kind: str
    word: bool
    named: bool
    first: bool | None
    evicted: bool
    innocent: bool
    said: float
    verdict: str

    @property
    def right(self) -> bool:
        return self.word and self.named and not self.innocent


def score(name: str, want: Mapping[str, Any], verdict: Verdict, shape: Topology) -> Result:
    """Weighs a verdict against what is expected of it."""
    must, some = named_ranks(want.get("must_include_ranks", "")), named_ranks(want.get("must_include_any_ranks", ""))
    machines = set(want.get("must_include_machines", []))
    ranks = {rank for suspect in verdict.suspects for rank in suspect.ranks}
    hosts = {machine for suspect in verdict.suspects for machine in suspect.machines}
    found = must <= ranks and (not some or bool(some & ranks)) and machines <= hosts
    sought = must | some
    guilty = machines | {machine for rank in sought if (machine := shape.machine(rank)) is not None}
    lead = verdict.suspects[0] if verdict.suspects else None
    first = bool(lead and (sought.intersection(lead.ranks) or guilty.intersection(lead.machines)))
    evicted = set(verdict.evict.machines)
    spared = set(_spared(want.get("must_not_evict", []), shape))
    return Result(
        name,
        name.partition("-")[2] or name,
        str(verdict.kind) in want["verdict"],
        found or verdict.kind is Kind.NONE,
        first if sought or machines else None,
        bool(evicted & guilty),
        bool(evicted & spared) or len(evicted) > want.get("evict_at_most", 0),
        verdict.confidence,
        str(verdict.kind),
    )


def named_ranks(written: str | Sequence[str]) -> set[Rank]:
    """The ranks that a value of `expected.toml` names."""
    text = written if isinstance(written, str) else ",".join(written)
    return set(parse_ranks(text)) if text else set()


def _spared(written: Iterable[str], shape: Topology) -> Iterator[str]:
    for one in written:
        if one.startswith(OF_RANKS):
            yield from shape.machines_of(tuple(sorted(named_ranks(one.removeprefix(OF_RANKS)))))
        else:
            yield one


def table(results: Sequence[Result]) -> Iterator[str]:
    """A row for each kind of case, and one for all."""
    yield f"{'kind':22} {'n':>4} {'right':>6} {'word':>6} {'first':>6} {'evicted':>8} {'innocent':>9}"
    kinds = sorted({one.kind for one in results})
    for kind, rows in [(kind, [one for one in results if one.kind == kind]) for kind in kinds] + [("all", results)]:
        firsts = [one.first for one in rows if one.first is not None]
        yield (
            f"{kind:22} {len(rows):4} {_share(one.right for one in rows):>6} {_share(one.word for one in rows):>6} "
            f"{_share(firsts):>6} {sum(one.evicted for one in rows):8} {sum(one.innocent for one in rows):9}"
        )


def _share(of: Iterable[bool]) -> str:
    held = list(of)
    return f"{sum(held) / len(held):.0%}" if held else "-"
