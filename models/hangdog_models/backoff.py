"""How long to wait before a failed or useless attempt is repeated: doubling each time, up to a bound."""

#: Doublings after which any bound is reached; a thousand would overflow a float.
_DOUBLINGS = 32


def pause(tries: int, first_s: float, most_s: float) -> float:
    """Seconds before the next attempt, after `tries` that followed the first (0: after the first)."""
    return min(most_s, first_s * 2.0 ** min(tries, _DOUBLINGS))
