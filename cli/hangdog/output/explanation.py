"""The reasoning behind a verdict, for `triage --explain`: odds by evidence, who waits for whom, and every frame's fate."""

from collections.abc import Iterable, Iterator, Sized

from rich.console import Console

from hangdog.output.lines import Line, print_sections
from hangdog.output.terminal import printable
from hangdog_models.counts import counted
from hangdog_models.diagnosis.clustering.exact_clusters import Cluster
from hangdog_models.diagnosis.hypotheses.hypothesis import Hypothesis
from hangdog_models.diagnosis.observe.canonicalise import CanonicalFrame
from hangdog_models.diagnosis.verdict.case import Case
from hangdog_models.diagnosis.verdict.conclude import probabilities
from hangdog_models.diagnosis.verdict.decision import total
from hangdog_models.diagnosis.waits.waits import GroupWait
from hangdog_models.verdict import Verdict
from hangdog_models.views.answer_text import MACHINES, rank_text, some

#: Whose minutes a cost is made of.
PARTS = ("by the job that waits", "by innocent machines", "by people")
#: How many of each are shown before `and N more`.
EXPLANATIONS, GROUP_WAITS, CLUSTERS = 8, 24, 8
#: Characters of a rank set.
RANKS_WIDTH = 60
#: A probability below this is told as such, not as none.
LEAST = 0.001
#: Columns by which the rest of a wrapped frame is indented.
HANG = 2


def print_explanation(case: Case, verdict: Verdict, console: Console) -> None:
    """Prints what the verdict on `case` was drawn from; plain text, never wider than the console."""
    sections = (
        ("expected cost of each step, in GPU-minutes", _costs(case, verdict)),
        ("odds, and what each piece of evidence moved", _odds(case)),
        ("who waits for whom", _waits(case)),
        ("frames kept (+) and dropped (-), outermost first", _frames(case)),
    )
    print_sections(sections, console)


def _costs(case: Case, verdict: Verdict) -> Iterator[Line]:
    """Cheapest first, and of what each cost is made."""
    for step in verdict.compared:
        if step.cost is None:
            continue
        parts = [
            f"{amount:,.0f} {what}"
            for amount, what in zip((step.cost.waiting, step.cost.machines, step.cost.people), PARTS, strict=True)
            if round(amount)
        ]
        whom = f" {some(step.machines, MACHINES)}" if step.machines else ""
        yield Line(
            f"{str(step.do).replace('_', ' ')}{whom}: {' + '.join(parts) or 'nothing'}", f"{total(step.cost):9,.0f}  "
        )
    prices = case.options.prices
    yield Line(
        f"{counted(verdict.world_size, 'rank')} wait; a person counts as {prices.person_gpus:g}, a look takes {prices.look:g} min, "
        f"a test {prices.test:g}, people {prices.people:g} (--price)"
    )


def _odds(case: Case) -> Iterator[Line]:
    weighed = sorted(probabilities(case.hypotheses), key=lambda entry: -entry[1])
    for hypothesis, probability in weighed[:EXPLANATIONS]:
        likely = f"{probability:6.1%}" if probability >= LEAST else f"{f'<{LEAST:.1%}':>6}"
        likely = f"{f'>{1 - LEAST:.1%}':>6}" if probability > 1 - LEAST else likely
        yield Line(f"{hypothesis.kind}{_whose(hypothesis)}: odds {hypothesis.odds:.3g}", f"{likely}  ")
        for factor in hypothesis.factors:
            yield Line(printable(factor.why), f"          x {factor.times:<8.3g} ")
    yield from _more(len(weighed), EXPLANATIONS)


def _whose(hypothesis: Hypothesis) -> str:
    names = ", ".join(map(printable, hypothesis.units[:4])) + (" ..." if len(hypothesis.units) > 4 else "")
    ranks = f" ({_short(hypothesis.ranks)})" if hypothesis.ranks else ""
    return f" {names}{ranks}" if names else ranks


def _waits(case: Case) -> Iterator[Line]:
    waits = case.waits
    if waits.roots:
        yield Line(f"{_short(waits.roots)} {_verb(waits.roots)} for nobody")
    else:
        yield Line("everybody waits for somebody")
    if waits.crowd:
        yield Line(f"{_short(waits.crowd)} stand still together, and count as waiting")
    known = [hold for hold in waits.holds if hold.dim is not None]
    for hold in known[:GROUP_WAITS]:
        yield Line(printable(_group_wait(hold)))
    yield from _more(len(known), GROUP_WAITS)
    if waits.loose:
        loose = sorted(waits.loose)
        yield Line(f"{_short(loose)} {_verb(loose)}, and the evidence does not tell for whom")


def _group_wait(group_wait: GroupWait) -> str:
    lost = f", those of {group_wait.assumed} lost" if group_wait.assumed else ""
    source = (
        f"counters{lost}" if group_wait.counted else "guessed from who is there" if group_wait.inferred else "frames"
    )
    wait, have = _verb(group_wait.inside), "has" if len(group_wait.inside) == 1 else "have"
    whom = (
        f"{wait} for {_short(group_wait.awaited)}"
        if group_wait.awaited
        else f"{have} joined, as all have"
        if group_wait.joined
        else wait
    )
    return f"{group_wait.dim}: {_short(group_wait.inside)} in {group_wait.what} {whom} (by {source})"


def _frames(case: Case) -> Iterator[Line]:
    for number, cluster in enumerate(case.clusters[:CLUSTERS]):
        sample = cluster.sample
        yield Line(printable(f"{_short(cluster.ranks)}: {sample.activity} by rule {sample.rule!r}"), f"#{number} ")
        for frame in _signature(cluster):
            why = "" if frame.kept else f"  [{frame.rule}]"
            yield Line(f"{printable(str(frame))}{why}", f"     {'+' if frame.kept else '-'} ", hang=HANG)
    yield from _more(len(case.clusters), CLUSTERS)


def _signature(cluster: Cluster) -> tuple[CanonicalFrame, ...]:
    return cluster.sample.signature.frames if cluster.sample.signature else ()


def _short(ranks: Iterable[int]) -> str:
    return rank_text(list(ranks), RANKS_WIDTH)


def _verb(ranks: Sized) -> str:
    return "waits" if len(ranks) == 1 else "wait"


def _more(count: int, shown: int) -> Iterator[Line]:
    if count > shown:
        yield Line(f"and {count - shown} more")
