"""What hangdog got wrong, sorted so that a class of misses shows before its single cases do."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

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
        beside = ", the peer contains it" if peer.contained else ""
        if got.abstained:
            return f"undetermined{beside}"
        return f"{'evicts the innocent only' if got.evicted and not got.caught else 'contains part of it' if got.caught else 'evicts nobody'}{beside}"
    if got.contained and peer.contained and got.evicted > peer.evicted:
        return "evicts more than the peer"
    return "" if got.right else "another kind"


def classes(found: Iterable[Miss]) -> list[str]:
    """Lines that count the misses by fault, evidence, way and kind, the most frequent first, each with some seeds."""
    listed = list(found)
    counts = Counter(_class(miss) for miss in listed)
    lines = []
    for key, count in sorted(counts.items(), key=lambda entry: (-entry[1], entry[0])):
        seeds = [f"{m.trial.seed}@{m.trial.ranks}" for m in listed if _class(m) == key]
        more = " ..." if len(seeds) > EXAMPLES else ""
        lines.append(f"{count:5}  {'  '.join(key)}  seed@ranks {' '.join(seeds[:EXAMPLES])}{more}")
    return lines


def _class(miss: Miss) -> tuple[str, str, str, str]:
    trial = miss.trial
    return trial.fault, str(trial.evidence), miss.why, f"says {trial.ours.answer.kind or 'nothing'}"


def line(miss: Miss) -> str:
    """One miss: how to show it, what was true and what was said."""
    trial, answer = miss.trial, miss.trial.ours.answer
    said = f"{answer.kind}" if isinstance(answer.kind, Kind) else trial.ours.crash
    if answer.probability is not None and answer.suspects:
        said += f", suspects {_some(answer.suspects[0])} {answer.probability:.2f}"
    return (
        f"--show {trial.seed} --ranks {trial.ranks} --fault {trial.fault}  [{trial.evidence}, {trial.framework}] {miss.why}: "
        f"true {'/'.join(trial.kinds)} {_some(trial.guilty)}; said {said}, evicts {_some(answer.evicted)}; "
        f"peer evicts {_some(trial.theirs.answer.evicted)}"
    )


def _some(machines: Sequence[str]) -> str:
    more = f" and {len(machines) - MACHINES} more" if len(machines) > MACHINES else ""
    return " ".join(machines[:MACHINES]) + more if machines else "nobody"
