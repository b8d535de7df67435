"""What hangdog got wrong, sorted so that a class of misses shows before its single cases do."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from shlex import quote

from accuracy.table import SHORT
from accuracy.trial import Trial
from hangdog_models.verdict import Kind

#: Seeds shown of each class; each can be looked at with --show.
EXAMPLES = 6
#: Machines written of one set.
MACHINES = 4


@dataclass(frozen=True, slots=True)
class Miss:
    """One answer that fell short, and the way in which it did."""

    trial: Trial
    why: str


def misses(trials: Iterable[Trial]) -> Iterator[Miss]:
    """Every answer of hangdog that is wrong or dearer than the peer's; one miss a trial, the gravest."""
    for trial in trials:
        why = _why(trial)
        if why:
            yield Miss(trial, why)


def _why(trial: Trial) -> str:
    got, peer = trial.ours.score, trial.theirs.score
    if trial.ours.crash:
        return "crashed"
    if got.wrong:
        return "evicts, and nobody is guilty"
    if got.guilty and not (got.contained or got.named):
        if got.abstained:
            return "undetermined"
        return "contains part of it" if got.caught else "evicts the innocent only" if got.evicted else "evicts nobody"
    if got.contained and peer.contained and got.evicted > peer.evicted:
        return "evicts more than the peer"
    if got.right:
        return "another is first" if not got.guilty and got.top1 == 0.0 else ""
    return "undetermined, and nobody is guilty" if got.abstained else "another kind"


def classes(found: Iterable[Miss]) -> list[str]:
    """Lines that count the misses by fault, way, kind and looks, the most frequent first, each with some seeds.

    Where all ranks are at one place, stacks do not tell code that left something out from a device that broke.
    """
    sets: dict[tuple[str, ...], list[Trial]] = {}
    for miss in found:
        said, looks = miss.trial.ours.answer.kind or "nothing", miss.trial.looks
        key: tuple[str, ...] = (
            miss.trial.fault,
            miss.why,
            f"says {said}",
            "one look" if looks == 1 else f"{looks} looks",
            *(("all at one place",) if miss.trial.ours.answer.together else ()),
        )
        sets.setdefault(key, []).append(miss.trial)
    lines = []
    for key, trials in sorted(sets.items(), key=lambda entry: (-len(entry[1]), entry[0])):
        evidence = Counter(trial.evidence for trial in trials)
        through = ", ".join(f"{count} {SHORT[level]}" for level, count in evidence.items())
        held = sum(trial.theirs.score.contained for trial in trials)
        beside = f", the peer contains {held}" if held else ""
        seeds = list(dict.fromkeys(f"{trial.seed}@{trial.ranks}" for trial in trials))
        more = " ..." if len(seeds) > EXAMPLES else ""
        lines.append(
            f"{len(trials):5}  {' | '.join(key)}  ({through}{beside})  seed@ranks {' '.join(seeds[:EXAMPLES])}{more}"
        )
    return lines


def line(miss: Miss) -> str:
    """One miss: how to show it, what was true and what was said."""
    trial, answer = miss.trial, miss.trial.ours.answer
    said = f"{answer.kind}" if isinstance(answer.kind, Kind) else trial.ours.crash
    if answer.probability is not None and answer.suspects:
        said += f", suspects {_some(answer.suspects[0])} {answer.probability:.2f}"
    return (
        f"--show {trial.seed} --ranks {trial.ranks} --fault {quote(trial.fault)}  [{trial.evidence}, {trial.looks} look(s), {trial.framework}] {miss.why}: "
        f"true {'/'.join(trial.kinds)} {_some(trial.guilty)}; said {said}, evicts {_some(answer.evicted)}; "
        f"peer evicts {_some(trial.theirs.answer.evicted)}"
    )


def _some(machines: Sequence[str]) -> str:
    more = f" and {len(machines) - MACHINES} more" if len(machines) > MACHINES else ""
    return " ".join(machines[:MACHINES]) + more if machines else "nobody"
