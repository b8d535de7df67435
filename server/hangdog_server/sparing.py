"""Spares the garbage collector the machines of the cluster while an incident runs.

An incident makes some hundred objects for each machine within seconds, and whenever a quarter more objects live than before
the collector goes over all that live: with 16,384 connected agents that are millions, and it took a quarter of the server's
CPU. What lived before the incident is passed over until it ends; what is made meanwhile is looked at as ever.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

#: Where incidents follow one another closely, the collector would never go over what is passed over in each: it is made to
#: before one in so many, which takes a tenth of a second for each thousand agents.
_ALL_AFTER = 20

_running = 0
_spared = 0


@contextmanager
def spared() -> Iterator[None]:
    """Lasts as long as an incident does; there may be several."""
    global _running, _spared
    if not _running:
        _spared += 1
        if _spared % _ALL_AFTER == 0:
            gc.collect()
        gc.freeze()
    _running += 1
    try:
        yield
    finally:
        _running -= 1
        if not _running:
            gc.unfreeze()
