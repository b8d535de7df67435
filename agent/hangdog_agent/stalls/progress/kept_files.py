"""Holds where a trainer's files are reached from, so that they can be read once more when it has ended; and opened rings."""

import os
import time
from typing import Any

#: Of so many files; each holds a descriptor, of which there are 256.
_MOST = 128
#: And rings: a machine has 16 trainers.
_MOST_RINGS = 64
#: Not asked after for so long it is let go: a folder or a file that is held cannot be unmounted. Seconds.
_HELD_S = 20.0

#: What a wish is looked up from: a file that the trainer has open, or its root folder and the path from there.
Start = tuple[int, str | None]


class KeptRings:
    """Opened rings, which are read again and again: to reach one takes three times as long as to read it.

    Each is reached anew when it was held for a while: its trainer may have ended meanwhile, which only shows on the way.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[object, ...], tuple[int, float]] = {}

    def opened(self, wish: dict[str, Any]) -> int | None:
        """The descriptor of a ring that is held; None where it is none, was removed, or is to be reached anew."""
        key = wish["pid"], wish["started"], wish["path"]
        if key not in self._kept:
            return None
        handle, since = self._kept[key]
        if time.monotonic() - since < _HELD_S and os.fstat(handle).st_nlink:
            return handle
        os.close(self._kept.pop(key)[0])
        return None

    def keep(self, wish: dict[str, Any], handle: int) -> None:
        """Holds an opened ring; what was held longest gives way."""
        if len(self._kept) >= _MOST_RINGS:
            os.close(self._kept.pop(next(iter(self._kept)))[0])
        self._kept[wish["pid"], wish["started"], wish["path"]] = handle, time.monotonic()

    def expire(self) -> None:
        """Closes what nobody asked for since it was to be reached anew."""
        oldest = time.monotonic() - 2 * _HELD_S
        for key in [key for key, (_, since) in self._kept.items() if since < oldest]:
            os.close(self._kept.pop(key)[0])


class KeptFiles:
    """What is held. The descriptors are O_PATH ones, which open nothing."""

    def __init__(self) -> None:
        self._kept: dict[tuple[object, ...], tuple[int, str | None, float]] = {}

    def start(self, wish: dict[str, Any], reached: Start | None) -> Start | None:
        """Where a wish begins, now that it was reached, or was not: then where it was reached last, if its trainer ended."""
        key = wish["pid"], wish["started"], wish["descriptor"], wish["path"]
        now = time.monotonic()
        if reached is None and wish.get("ended") and key in self._kept:
            handle, path, _ = self._kept[key]
            self._kept[key] = handle, path, now
            return os.dup(handle), path
        if reached is not None and wish.get("keep"):
            self._let_go(key)
            if len(self._kept) < _MOST:
                self._kept[key] = os.dup(reached[0]), reached[1], now
        return reached

    def expire(self) -> None:
        """Closes what is no longer asked for."""
        oldest = time.monotonic() - _HELD_S
        for key in [key for key, (_, _, used) in self._kept.items() if used < oldest]:
            self._let_go(key)

    def _let_go(self, key: tuple[object, ...]) -> None:
        if (held := self._kept.pop(key, None)) is not None:
            os.close(held[0])
