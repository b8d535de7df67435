"""Tells what the failures of a job cost: each outage with where its time went, and the sum."""

from collections.abc import Iterator, Sequence

from hangdog_models.recovery.outage_cost import Outage, outages
from hangdog_models.recovery.recovery_history import Began, Entry


def outage_lines(history: Sequence[Entry], now: float) -> Iterator[str]:
    """The lines of the bill; times in seconds."""
    found = outages(history)
    began = next((entry.at for entry in history if isinstance(entry, Began)), now)
    total = sum(outage.seconds(now) for outage in found)
    for number, outage in enumerate(found, 1):
        acts = ", ".join(outage.acts) or "nothing"
        yield f"outage {number}: {outage.seconds(now):.0f} s ({_parts(outage, now)}), done: {acts}"
    share = f", {total / (now - began):.1%} of {now - began:.0f} s" if now > began else ""
    yield f"unproductive time: {total:.0f} s{share}"


def _parts(outage: Outage, now: float) -> str:
    """Where the time went: until the trouble was known, until the job was started again, until it got on."""
    moments = (("to notice and judge", outage.noticed), ("to act", outage.began), ("to get on again", outage.over))
    parts, before = [], outage.since
    for what, at in moments:
        parts.append(f"{(now if at is None else at) - before:.0f} s {what}")
        if at is None:
            break
        before = at
    return ", ".join(parts)
