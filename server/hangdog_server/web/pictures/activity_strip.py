"""Half an hour of a job as a strip: how many of its ranks moved, and under it how long a step took where its lines tell."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from markupsafe import Markup

from hangdog_server.cluster.job_activity import BIN_S, RankMotion

#: Heights within the strip of 40: the ranks, and the steps beneath.
RANKS, STEPS, GAP = 26.0, 10.0, 4.0
#: No share of ranks that does not move is drawn lower: one of a hundred thousand is to be seen.
LEAST = 2.0

Bins = Sequence[RankMotion | None]


def activity_strip(bins: Bins) -> Markup:
    """The strip with its words; empty where nothing was noted."""
    seen = [one for one in bins if one is not None]
    if not seen:
        return Markup("")
    known = [one.step_s for one in seen if one.step_s > 0]
    words = _words(bins, seen, known)
    shapes = Markup("").join((*_ranks(bins), *(_steps(bins, max(known)) if known else ())))
    high = RANKS + (GAP + STEPS if known else 0)
    drawn = Markup(
        '<svg class="strip" viewBox="0 0 {} {:g}" preserveAspectRatio="none" role="img" aria-label="{}">{}</svg>'
    ).format(len(bins), high, words, shapes)
    return Markup('<div class="activity">{}<p class="quiet">{}</p></div>').format(drawn, words)


def _ranks(bins: Bins) -> Iterator[Markup]:
    """Bins that are alike are one shape: what moves stands at the bottom, what does not above it."""
    at = 0
    for one, alike in groupby(bins, key=lambda one: (one.moving, one.still, one.unseen) if one else (0, 0, 0)):
        wide = len(list(alike))
        if sum(one):
            moving, still, unseen = _heights(one)
            for kind, high, y in (
                ("moves", moving, RANKS - moving),
                ("stands", still, unseen),
                ("unseen", unseen, 0.0),
            ):
                if high:
                    yield Markup('<rect class="{}" x="{}" y="{:.1f}" width="{}" height="{:.1f}"></rect>').format(
                        kind, at, y, wide, high
                    )
        at += wide


def _heights(counts: tuple[int, int, int]) -> tuple[float, float, float]:
    _, still, unseen = (max(LEAST, RANKS * one / sum(counts)) if one else 0.0 for one in counts)
    return max(0.0, RANKS - still - unseen), min(still, RANKS - unseen), unseen


def _steps(bins: Bins, longest: float) -> Iterator[Markup]:
    """The time of a step as a line in pieces, one for each stretch in which it is known."""
    for known, stretch in groupby(enumerate(bins), key=lambda one: one[1] is not None and one[1].step_s > 0):
        if known:
            points = [(at, RANKS + GAP + STEPS * (1 - one.step_s / longest)) for at, one in stretch if one]
            text = " ".join(f"{x},{y:.1f} {x + 1},{y:.1f}" for x, y in points)
            yield Markup('<polyline class="steps" points="{}"></polyline>').format(text)


def _words(bins: Bins, seen: list[RankMotion], known: list[float]) -> str:
    last, first = seen[-1], next(at for at, one in enumerate(bins) if one is not None)
    span = (len(bins) - first) * BIN_S
    past = f"{span / 60:.0f} minutes" if span >= 120 else f"{span:.0f} s"
    if last.still:
        now = f"{last.still:,} of {last.ranks:,} {'rank stands' if last.ranks == 1 else 'ranks stand'} still"
    elif last.ranks == 1:
        now = "its rank is not seen to stand still"
    else:
        now = f"none of its {last.ranks:,} ranks is seen to stand still"
    unseen = f", {last.unseen:,} not seen" if last.unseen else ""
    most = max(one.still for one in seen)
    worst = f", at the most {most:,}" if most > last.still else ""
    step = f"; a step {'takes' if last.step_s else 'took'} {_time(known[-1])}" if known else ""
    return f"{now}{unseen}; over the last {past}{worst}{step}"


def _time(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s" if seconds < 100 else f"{seconds:.0f} s"
