"""Spares the garbage collector the machines of the cluster while an incident runs, and for a while behind it.

An incident makes some hundred objects for each machine within seconds, nearly all of which live until it ends, and whenever a
quarter more objects live than before the collector goes over all of them: with 16,384 connected agents that stopped the
server for 2.4 s, in the middle of incidents at first, and just before the verdict was stored where only their looks were
spared. What was made a moment ago is looked at, more rarely than else; what has outlived that, and what lived before, is
passed over.

Thresholds are set, too, because gc.freeze alone does not keep what the incident itself makes from being gone over: making
400,000 objects of three parts beside a frozen 150,000 takes 0.4 s of a core so, and 1.1 s with the usual thresholds.
"""

import asyncio
import gc
from collections.abc import Iterator
from contextlib import contextmanager

#: Where incidents follow one another closely, or overlap, the collector would never go over what is passed over in each: it is
#: made to before one in so many, which takes a tenth of a second for each thousand agents.
_ALL_AFTER = 20
#: So long behind the last incident the collector may go over everything again, when it would by itself: most jobs that hang
#: together, or again at once, have had their verdicts by then. Seconds.
_AFTER_S = 600.0
#: So many objects are made, less those gone again, before what was made a moment ago is looked at: with Python's 700 all
#: that lives until the incident ends was looked at twice for nothing. 100,000 are some 10 MiB.
_YOUNG = 100_000
#: Collections of what was made a moment ago before one of all: more than there are in any incident.
_NEVER = 1_000_000_000

#: So long behind the last incident the collector looks as often as before: by then all that the incident made is gone without
#: it, where at its end it would first go over all of that. Seconds.
_GONE_S = 2.0

_running = 0
_spared = 0
_usual: tuple[int, int, int] | None = None
_timers: tuple[asyncio.TimerHandle, ...] = ()


@contextmanager
def spared() -> Iterator[None]:
    """Lasts as long as an incident does; there may be several. Needs the running event loop."""
    global _running, _spared, _usual, _timers
    _spared += 1
    if _spared % _ALL_AFTER == 0:
        gc.unfreeze()
        gc.collect()
    for timer in _timers:
        timer.cancel()
    if _usual is None:
        _usual = gc.get_threshold()
        gc.set_threshold(_YOUNG, _usual[1], _NEVER)
    gc.freeze()
    _running += 1
    try:
        yield
    finally:
        _running -= 1
        if not _running:
            loop = asyncio.get_running_loop()
            _timers = loop.call_later(_GONE_S, _as_usual), loop.call_later(_AFTER_S, gc.unfreeze)


def _as_usual() -> None:
    global _usual
    if _usual is not None:
        gc.set_threshold(*_usual)
        _usual = None
