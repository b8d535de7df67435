"""The bands of a funnel as the page draws them: a piece of it in SVG each, and in words."""

from collections.abc import Iterator
from typing import Any

from markupsafe import Markup

from hangdog_models.ranks import size
from hangdog_models.views.pictures.waiting_funnel import Band, Funnel
from hangdog_models.views.waits_view import Known
from hangdog_server.web.render import runs

#: No band is narrower, in hundredths of the widest: one rank beside a hundred thousand is to be seen.
LEAST = 3.0
#: How a band is drawn by what is known of it; words say the same.
PATTERNS = {Known.COUNTERS: "counters", Known.FRAMES: "frames", Known.GUESSED: "guessed", Known.UNKNOWN: "unknown"}


def funnel_bands(funnel: Funnel) -> list[dict[str, Any]]:
    """The bands, nearest to the suspect first."""
    return list(_bands(funnel))


def _bands(funnel: Funnel) -> Iterator[dict[str, Any]]:
    widest = max((size(band.ranks) for band in funnel.bands), default=1)
    above = _wide(size(funnel.suspect), widest)
    for band in funnel.bands:
        below = _wide(size(band.ranks), widest)
        yield {
            "shape": _shape(above, below, PATTERNS[band.known]),
            "count": size(band.ranks),
            "ranks": runs(band.ranks),
            "dim": band.dim,
            "what": band.what,
            "steps": _steps(band),
            "known": str(band.known),
        }
        above = below


def _steps(band: Band) -> str:
    if not band.steps:
        return "wait, and nothing tells for whom"
    return "wait for it" if band.steps == 1 else "wait for those above" if band.steps == 2 else "wait further away"


def _wide(ranks: int, widest: int) -> float:
    return max(LEAST, min(100.0, 100.0 * ranks / widest))


def _shape(above: float, below: float, pattern: str) -> Markup:
    """A piece of the funnel: from the width of what is above it to its own in its upper part."""
    points = f"{50 - above / 2:.1f},0 {50 + above / 2:.1f},0 {50 + below / 2:.1f},16 {50 + below / 2:.1f},38 {50 - below / 2:.1f},38 {50 - below / 2:.1f},16"
    return Markup(
        '<svg class="band {}" viewBox="0 0 100 40" preserveAspectRatio="none" aria-hidden="true"><polygon points="{}"></polygon></svg>'
    ).format(pattern, points)
