"""Counts alerts that may heal by themselves: so many within a window of time make a case."""

from collections import deque

#: Things counted at the same time; a machine has some tens of ports and GPUs.
_MOST = 1_000


class Strikes:
    """Alerts by key; `needed` of them within `window_s` seconds count."""

    def __init__(self, needed: int, window_s: float) -> None:
        self._needed = max(1, needed)
        self._window_s = window_s
        self._seen: dict[str, deque[float]] = {}

    def strike(self, key: str, now: float) -> bool:
        """Takes note of an alert; whether it counts now."""
        if key not in self._seen and len(self._seen) >= _MOST:
            del self._seen[next(iter(self._seen))]
        self._seen.setdefault(key, deque(maxlen=self._needed)).append(now)
        return self.counts(key, now)

    def counts(self, key: str, now: float) -> bool:
        """Whether enough alerts of this key fell into the window that ends now."""
        seen = self._seen.get(key, deque())
        return len(seen) == self._needed and now - seen[0] <= self._window_s

    def heal(self, key: str) -> None:
        """Forgets the alerts of a key."""
        self._seen.pop(key, None)
