"""Whether the rounds of a slow job are enough, so that no more are taken than needed."""

from hangdog_models.verdict import Kind, Verdict

#: A degrader is named from this probability on; any other verdict must be as sure to end the rounds.
SURE = 0.9
#: Verdicts that more rounds may overturn: a moving job is found sound until some machine is found slow.
OPEN = (Kind.NONE, Kind.UNDETERMINED)


def enough(before: Verdict | None, now: Verdict) -> bool:
    """Whether two judgements in a row are sure and name the same: the next round would change neither."""
    return (
        before is not None
        and _sure(before)
        and _sure(now)
        and before.kind is now.kind
        and _named(before) == _named(now)
    )


def _sure(verdict: Verdict) -> bool:
    return verdict.kind not in OPEN and verdict.confidence >= SURE


def _named(verdict: Verdict) -> object:
    return verdict.suspects[0].machines or verdict.suspects[0].ranks if verdict.suspects else ()
