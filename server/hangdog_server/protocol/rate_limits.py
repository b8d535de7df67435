"""How much each peer may ask of the server: budgets that refill with time, and what is told of those who exceed them.

`now` is in seconds on a steady clock. It is asked for every message, so it is arithmetic on two numbers: without a lock, and
without a clock of its own, which the libraries for this bring.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field

from hangdog_models.errors import WrongUse
from hangdog_server.settings import ServerSettings

#: Seconds until the same complaint about the same peer is logged again: a broken agent comes back every few seconds.
SELDOM_S = 300.0
#: Different complaints about one peer that are logged within that time: what it says must not fill a disk.
EACH = 20
#: Peers remembered at once; beyond that the idle ones are forgotten, and then the oldest.
_MOST = 32768


@dataclass(slots=True)
class RateBudget:
    """So much at once (`most`), and so much a second again."""

    most: float
    per_s: float
    left: float = field(init=False)
    at: float | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.left = self.most

    def take(self, much: float, now: float) -> bool:
        """Takes from the budget; False when it is overdrawn, and stays so until it has refilled."""
        if self.at is not None:
            self.left = min(self.most, self.left + (now - self.at) * self.per_s)
        self.at = now
        self.left = max(self.left - much, -self.most)
        return self.left >= 0

    def full(self, now: float) -> bool:
        """Whether nothing of it is taken: then it need not be remembered."""
        return self.at is None or self.left + (now - self.at) * self.per_s >= self.most


class Budgets:
    """A budget of each peer, over all of its connections: whoever comes back does not begin anew."""

    def __init__(self, most: float, per_s: float) -> None:
        self._most = most
        self._per_s = per_s
        self._of: dict[Hashable, RateBudget] = {}

    def take(self, whose: Hashable, much: float, now: float) -> bool:
        """Takes from a peer's budget; False when it is overdrawn."""
        if len(self._of) >= _MOST and whose not in self._of:
            self._of = {peer: budget for peer, budget in self._of.items() if not budget.full(now)}
            while len(self._of) >= _MOST:
                del self._of[next(iter(self._of))]
        budget = self._of.get(whose)
        if budget is None:
            budget = self._of[whose] = RateBudget(self._most, self._per_s)
        return budget.take(much, now)


class RateLimits:
    """What agents and people may ask of the server, by its settings. Everything raises WrongUse when it is too much."""

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self._messages = Budgets(settings.burst_messages, settings.messages_per_s)
        self._bytes = Budgets(settings.burst_bytes, settings.bytes_per_s)
        self._recorded = Budgets(settings.recorded_bytes_per_h, settings.recorded_bytes_per_h / 3600)
        self._snapshots = Budgets(settings.snapshots_per_min, settings.snapshots_per_min / 60)
        self._greeting = 0

    def count_message(self, machine: str, size: int, now: float) -> None:
        """An agent said something of so many bytes."""
        settings = self._settings
        many = not self._messages.take(machine, 1, now)
        much = not self._bytes.take(machine, size, now)
        if many or much:
            rate = f"{settings.messages_per_s} messages" if many else f"{settings.bytes_per_s >> 20} MiB"
            raise WrongUse(
                f"the agent of {machine} sends more than {rate} a second",
                "it is broken, or the server's limit is too low for it: docs/server.md",
                code="rate-limited",
            )

    def recorded(self, machine: str, size: int, now: float) -> bool:
        """An agent hands over a look it recorded, of so many bytes; False when it has to keep it for later."""
        return self._recorded.take(machine, size, now)

    def snapshot(self, person: str, now: float) -> None:
        """Somebody asks for a snapshot."""
        most = self._settings.snapshots_per_min
        if not self._snapshots.take(person, 1, now):
            raise WrongUse(
                f"{person} asks for more than {most} snapshots a minute", "wait a minute", code="rate-limited"
            )

    def greet(self) -> None:
        """A stream begins whose agent has not said who it is; `greeted` ends that."""
        if self._greeting >= self._settings.max_greeting:
            raise WrongUse(
                f"{self._greeting} agents are connecting at once, which is the limit",
                "the agent tries again by itself",
                code="too-many-agents",
            )
        self._greeting += 1

    def greeted(self) -> None:
        """Its agent said who it is, or it ended."""
        self._greeting -= 1


class LogThrottle:
    """What was complained of lately: the same of one peer is told once, then not again for a while."""

    def __init__(self) -> None:
        self._logged: dict[Hashable, dict[str, float]] = {}

    def tell(self, whose: Hashable, what: str, now: float) -> bool:
        """Whether to tell of it now."""
        if len(self._logged) >= _MOST:
            self._logged = {
                peer: reported for peer, reported in self._logged.items() if now - max(reported.values()) < SELDOM_S
            }
        mine = {stated: at for stated, at in self._logged.get(whose, {}).items() if now - at < SELDOM_S}
        if what in mine or len(mine) >= EACH or len(self._logged) >= _MOST:
            return False
        self._logged[whose] = mine | {what: now}
        return True
