"""How long is waited before what failed, or was in vain, is tried again: twice as long each time, up to a bound."""

#: Doublings after which any bound is reached; a thousand would make a number that is none.
_DOUBLINGS = 32


def pause(tries: int, first_s: float, most_s: float) -> float:
    """Seconds before the next try, after `tries` that followed the first (0: after the first)."""
    return min(most_s, first_s * 2.0 ** min(tries, _DOUBLINGS))
