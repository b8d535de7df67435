"""The answer in a few words, the same in a terminal, on a page and in a post-mortem."""

from collections.abc import Iterable, Sequence

from hangdog_models.counts import counted
from hangdog_models.diagnosis.findings.failing_paths import PATH
from hangdog_models.ranks import format_ranks
from hangdog_models.reading.printable import escaped
from hangdog_models.verdict import Activity, ClusterView, Culprit, Kind, StallCause, Verdict

#: Machines named in the headline; all of them stand under `evict`.
MACHINES = 4
#: Characters of a rank set in the headline.
WIDTH = 32

#: From which probability on it is known who it is.
HALF = 0.5
#: Why a culprit holds the job up, as people say it.
_REASONS = {
    StallCause.MACHINE: "its machine",
    StallCause.GROUP: "a path or device of its group",
    StallCause.SOFTWARE: "its code",
    StallCause.DEPENDENCY: "a service it waits for",
    StallCause.SLOW: "work that takes its time",
    StallCause.HEALTHY: "a healthy phase",
    StallCause.UNKNOWN: "something not seen",
}
#: Kinds that blame no machine: there, calling a machine suspect would send somebody to the wrong place.
BLAMELESS = (Kind.SOFTWARE, Kind.DEPENDENCY)

#: Activities whose written value people would not say; `unknown` is what stands still where no rule knows the place.
_WORDS = {Activity.UNKNOWN: "asleep", Activity.DATALOADER: "data loader", Activity.GIL: "interpreter lock"}


def headline(verdict: Verdict) -> str:
    """The answer in one line: what it is, which machines, how sure, and what to do now."""
    if _known(verdict):
        return f"{verdict.kind}: {answer(verdict)}. {order(verdict)}"
    sure = "" if verdict.kind is Kind.UNDETERMINED else f" ({percent(verdict.confidence)} sure)"
    return f"{verdict.kind}: {answer(verdict)}{sure}. {order(verdict)}"


def judged_by(rules: str) -> str:
    """The rule sets of a verdict in a few words: their names are in its JSON."""
    names = rules.split()
    if len(names) < 2:
        return rules
    dates = sorted({name.partition("@")[2] for name in names})
    return f"{counted(len(names), 'rule set')} of {dates[0]}{f' to {dates[-1]}' if len(dates) > 1 else ''}"


def answer(verdict: Verdict) -> str:
    """What it is, and which machines; how sure, where who it is and why are two matters."""
    if _known(verdict):
        return _who_and_why(verdict)
    first = verdict.suspects[0] if verdict.suspects else None
    names = verdict.evict.machines or (first.machines if first else ())
    ranks = _unplaced(verdict)
    who = some(names, MACHINES) or (rank_text(ranks, WIDTH) if ranks else "a machine")
    several = len(names) > 1 or (not names and len(ranks) > 1)
    return {
        Kind.MACHINE: f"{who} {'hold' if several else 'holds'} the job up",
        Kind.GROUP: _of_group(verdict),
        Kind.SOFTWARE: "the code is at fault, no machine is",
        Kind.DEPENDENCY: "a service that many ranks share blocks them",
        Kind.SLOW: f"{who} {'hold' if several else 'holds'} the job back"
        if first
        else "the job makes progress, but is held back",
        Kind.NONE: "the job is making progress",
        Kind.UNDETERMINED: "the evidence does not decide" + _likeliest(verdict),
    }[verdict.kind]


def order(verdict: Verdict) -> str:
    """What to do now."""
    if verdict.evict.machines:
        return f"Evict {some(verdict.evict.machines, MACHINES)}."
    if verdict.kind is Kind.UNDETERMINED:
        return "Evict nobody; collect what is named below."
    if verdict.kind is Kind.GROUP:
        alone = verdict.suspects[0].machines if verdict.suspects else ()
        tested = f"test {escaped(alone[0])}" if len(alone) == 1 else "test its machines in pairs"
        return f"Evict nobody yet: {tested}."
    if verdict.kind is Kind.MACHINE:
        names = verdict.suspects[0].machines if verdict.suspects else ()
        if verdict.suspects and not names:
            return f"Evict nobody yet: find the machine of {rank_text(_unplaced(verdict), WIDTH)}."
        return f"Evict nobody yet: look again{f', or test {some(names, MACHINES)}' if names else ''}."
    return "Evict nobody."


def _unplaced(verdict: Verdict) -> tuple[int, ...]:
    """The ranks of the first suspect, and of the others of unknown machine that are as surely guilty as not."""
    others = (suspect for suspect in verdict.suspects[1:] if suspect.probability > 0.5 and not suspect.machines)
    return tuple(sorted({rank for suspect in (*verdict.suspects[:1], *others) for rank in suspect.ranks}))


def percent(probability: float) -> str:
    """A probability in whole percent; certainty is never rounded up to."""
    if 0 < probability < 0.005:
        return "<1%"
    return ">99%" if 0.995 <= probability < 1 else f"{probability:.0%}"


def rank_text(ranks: Sequence[int], width: int | None = None) -> str:
    """`rank 7`, or `ranks 0-3, 7`: wraps at its commas; cut between two runs when wider than `width`, then with the count."""
    if not ranks:
        return "no rank"
    runs = format_ranks(ranks).split(",")
    text = ", ".join(runs)
    if width is not None and len(text) > width:
        text = f"{text[:width].rpartition(', ')[0] or runs[0]}, ... ({len(ranks)} in all)"
    return f"rank {text}" if len(ranks) == 1 else f"ranks {text}"


def some(names: Iterable[str], most: int) -> str:
    """The first of the names, and how many more there are."""
    known = [escaped(name) for name in names]
    rest = len(known) - most
    return ", ".join(known[:most]) + (f" and {rest} more" if rest > 0 else "")


def doing(cluster: ClusterView) -> str:
    """What the ranks of a cluster do, and in which group: `collective in dp`, `data loader`."""
    word = _WORDS.get(cluster.activity, cluster.activity.replace("_", " "))
    return f"{word} in {escaped(cluster.dim)}" if cluster.dim else word


def _known(verdict: Verdict) -> bool:
    """Whether it is known who holds the job up, and less so why."""
    apart = verdict.kind not in (Kind.NONE, Kind.GROUP) and not verdict.evict.machines
    return apart and verdict.culprit is not None and verdict.culprit.probability >= HALF


def _who_and_why(verdict: Verdict) -> str:
    assert verdict.culprit is not None
    who, sure = _culprit(verdict.culprit), percent(verdict.culprit.probability)
    likely = sorted(((p, cause) for cause, p in verdict.causes.items() if p >= LEAST), key=lambda one: -one[0])
    why = " or ".join(f"{_REASONS[cause]} ({percent(p)})" for p, cause in likely[:2])
    return f"{who} {'holds' if len(verdict.culprit.ranks) < 2 else 'hold'} the job up ({sure}), likely {why}"


def _likeliest(verdict: Verdict) -> str:
    found = verdict.culprit
    return f"; likeliest is {_culprit(found)} ({percent(found.probability)})" if found is not None else ""


def _culprit(culprit: Culprit) -> str:
    on = some(culprit.machines, MACHINES)
    return f"{rank_text(culprit.ranks, WIDTH)}{f' on {on}' if on else ''}"


def _of_group(verdict: Verdict) -> str:
    """Of a group that waits as a whole that it does; of ranks that merely stand apart together that they do."""
    first = verdict.suspects[0].ranks if verdict.suspects else ()
    group = next((group for group in verdict.groups if not first or group.ranks == first), None)
    if group is not None and group.dim == PATH:
        ends = verdict.suspects[0].machines if verdict.suspects else ()
        if len(ends) == 1:
            return f"a path at {escaped(ends[0])} fails"
        between = " and ".join(map(escaped, ends)) if len(ends) == 2 else counted(len(ends), "machine")
        return f"{'the path' if len(ends) == 2 else 'the network'} between {between} fails"
    if group is not None:
        return f"{escaped(group.dim)} {rank_text(group.ranks, WIDTH)} all joined, and nothing completes"
    return f"what {rank_text(first, WIDTH) if first else 'the ranks of one group'} do together does not complete"


#: A verdict this old says nothing of what is suspected now. Seconds.
RECENT_S = 24 * 3600.0
#: Less probable suspects are no news.
LEAST = 0.1


def accuses(kind: str) -> bool:
    """Whether a verdict of this kind suspects machines, whatever it lists; without a verdict (`""`) nobody is suspected."""
    return kind not in ("", Kind.NONE, *BLAMELESS)
