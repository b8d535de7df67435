"""The reasoning behind a verdict, for `triage --explain`: odds by evidence, who waits for whom, and every frame's fate."""

from collections.abc import Iterable, Iterator

from rich.console import Console
from rich.text import Text

from hangdog.terminal import printable
from hangdog_models.diagnosis.canonicalise import CanonicalFrame
from hangdog_models.diagnosis.case import Case
from hangdog_models.diagnosis.cluster import Cluster
from hangdog_models.diagnosis.conclude import probabilities
from hangdog_models.diagnosis.hypothesis import Hypothesis
from hangdog_models.diagnosis.waits import Hold
from hangdog_models.ranks import format_ranks

#: How many of each are shown before `and N more`.
EXPLANATIONS, HOLDS, CLUSTERS = 8, 24, 8
#: Characters of a rank set.
RANKS_WIDTH = 60


def print_explanation(case: Case, console: Console) -> None:
    """Prints what the verdict on `case` was drawn from; plain text, never wider than the console wraps it."""
    for title, lines in (
        ("odds, and what each piece of evidence moved", _odds(case)),
        ("who waits for whom", _waits(case)),
        ("frames kept (+) and dropped (-), outermost first", _frames(case)),
    ):
        console.print()
        console.print(Text(title, "bold"))
        for line in lines:
            console.print(Text(f"  {printable(line)}"), soft_wrap=True)


def _odds(case: Case) -> Iterator[str]:
    weighed = sorted(probabilities(case.hypotheses), key=lambda entry: -entry[1])
    for hypothesis, probability in weighed[:EXPLANATIONS]:
        yield f"{probability:6.1%}  {hypothesis.kind}{_whose(hypothesis)}: odds {hypothesis.odds:.3g}"
        for factor in hypothesis.factors:
            yield f"          x {factor.times:<8.3g} {factor.why}"
    yield from _more(len(weighed), EXPLANATIONS)


def _whose(hypothesis: Hypothesis) -> str:
    names = ", ".join(hypothesis.units[:4]) + (" ..." if len(hypothesis.units) > 4 else "")
    ranks = f" (ranks {_short(hypothesis.ranks)})" if hypothesis.ranks else ""
    return f" {names}{ranks}" if names else ranks


def _waits(case: Case) -> Iterator[str]:
    waits = case.waits
    yield f"ranks that wait for nobody: {_short(waits.roots) or 'none'}"
    if waits.crowd:
        yield f"ranks that stand still together and count as waiting: {_short(waits.crowd)}"
    known = [hold for hold in waits.holds if hold.dim is not None]
    for hold in known[:HOLDS]:
        yield _hold(hold)
    yield from _more(len(known), HOLDS)
    if waits.loose:
        yield f"ranks whose evidence does not tell for whom they wait: {_short(sorted(waits.loose))}"


def _hold(hold: Hold) -> str:
    lost = f", those of {hold.assumed} lost" if hold.assumed else ""
    source = f"counters{lost}" if hold.counted else "guessed from who is there" if hold.inferred else "frames"
    whom = f"wait for {_short(hold.awaited)}" if hold.awaited else "have all joined" if hold.joined else "wait"
    return f"{hold.dim}: ranks {_short(hold.inside)} in {hold.what} {whom} (by {source})"


def _frames(case: Case) -> Iterator[str]:
    for number, cluster in enumerate(case.clusters[:CLUSTERS]):
        yield f"#{number} ranks {_short(cluster.ranks)}: {cluster.sample.activity} by rule {cluster.sample.rule!r}"
        yield from (f"     {_frame(frame)}" for frame in _signature(cluster))
    yield from _more(len(case.clusters), CLUSTERS)


def _signature(cluster: Cluster) -> tuple[CanonicalFrame, ...]:
    return cluster.sample.signature.frames if cluster.sample.signature else ()


def _frame(frame: CanonicalFrame) -> str:
    return f"+ {frame}" if frame.kept else f"- {frame}  [{frame.rule}]"


def _short(ranks: Iterable[int]) -> str:
    text = format_ranks(ranks)
    return text if len(text) <= RANKS_WIDTH else text[:RANKS_WIDTH].rpartition(",")[0] + ",..."


def _more(count: int, shown: int) -> Iterator[str]:
    if count > shown:
        yield f"and {count - shown} more"
