"""Spares the garbage collector the machines of the cluster while an incident runs.

An incident makes some hundred objects for each machine within seconds, and whenever a quarter more objects live than before
the collector goes over all that live: with 16,384 connected agents that are millions, and it took a quarter of the server's
CPU. What lived before the incident is passed over until it ends; what is made meanwhile is looked at as ever.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_running = 0


@contextmanager
def spared() -> Iterator[None]:
    """Lasts as long as an incident does; there may be several."""
    global _running
    if not _running:
        gc.freeze()
    _running += 1
    try:
        yield
    finally:
        _running -= 1
        if not _running:
            gc.unfreeze()
