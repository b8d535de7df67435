"""Whether looks at a slow job suffice, so that no more are taken than are needed."""

from hangdog_models.verdict import Kind, Verdict

#: A degrader is named from so probable on, and so sure must be whatever else ends the looks.
SURE = 0.9
#: Verdicts that more looks may overturn: a job that moves is found sound as long as nobody is found slow.
OPEN = (Kind.NONE, Kind.UNDETERMINED)


def enough(before: Verdict | None, now: Verdict) -> bool:
    """Whether two judgements in a row are sure and name the same: what the next look adds would change neither."""
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
