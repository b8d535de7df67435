"""Which verdicts accuse a machine now: one rule for the page *Now* and for `hangdog why`."""

from hangdog_models.verdict import Kind
from hangdog_models.views.answer_text import BLAMELESS

#: A verdict this old says nothing of what is suspected now. Seconds.
RECENT_S = 24 * 3600.0
#: Less probable suspects are no news.
LEAST = 0.1


def accuses(kind: str) -> bool:
    """Whether a verdict of this kind suspects machines, whatever it lists; without a verdict (`""`) nobody is suspected."""
    return kind not in ("", Kind.NONE, *BLAMELESS)
