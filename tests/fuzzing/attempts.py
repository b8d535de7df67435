"""Gives damaged seeds to a reader, one after the other, and holds what comes of each against what a reader may do."""

import time

from fuzzing.damage import inputs
from fuzzing.readers import TARGETS
from hangdog_models.errors import UnreadableEvidence, WrongUse

#: CPU seconds one small input may take; the slowest reader needs some milliseconds, and a collection of garbage the rest.
SLOW = 5.0


def attempt(name: str, data: bytes) -> float:
    """Gives one input to a reader; CPU seconds it took (a busy machine starves us). Raises whatever the reader raises beside our own errors."""
    begin = time.process_time()
    try:
        TARGETS[name](data)
    except (UnreadableEvidence, WrongUse) as error:
        assert str(error)
    return time.process_time() - begin


def run(name: str, runs: int, seed: int = 0) -> float:
    """Gives a reader so many mutated inputs; seconds of the slowest. Raises what a reader may not raise, with the input."""
    slowest = 0.0
    for _, data in zip(range(runs), inputs(name, seed), strict=False):
        try:
            taken = attempt(name, data)
        except BaseException as error:
            raise AssertionError(f"{name} fails at {data!r}") from error
        if taken > SLOW:
            raise AssertionError(f"{name} takes {taken:.1f} s at {data!r}")
        slowest = max(slowest, taken)
    return slowest
