"""Which of the servers it knows an agent talks to: the one it was sent to, else the next one after each loss."""

import zlib
from collections.abc import Sequence

from hangdog_models.errors import WrongUse

#: Servers that one agent may know; a few share one database.
MOST = 16


class Servers:
    """The servers, of which one is `current`."""

    def __init__(self, addresses: Sequence[str], machine: str) -> None:
        """The machine's name decides where it begins, so that the agents of a cluster spread evenly."""
        self._addresses = tuple(addresses)
        self._at = zlib.crc32(machine.encode()) % len(self._addresses)
        self._sent = False

    @property
    def current(self) -> str:
        """The server to talk to now, HOST:PORT."""
        return self._addresses[self._at]

    def send(self, address: str) -> bool:
        """It was told to go to another server; whether it goes: only to one that its own settings name."""
        if address not in self._addresses or address == self.current:
            return False
        self._at, self._sent = self._addresses.index(address), True
        return True

    def lost(self) -> None:
        """The line broke, or never came about: the next one's turn. One that it was just sent to is tried first."""
        if not self._sent:
            self._at = (self._at + 1) % len(self._addresses)
        self._sent = False


def listed(text: str) -> tuple[str, ...]:
    """The servers that a setting names, `HOST:PORT[,HOST:PORT...]`; raises WrongUse."""
    found = tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    if not 0 < len(found) <= MOST:
        raise WrongUse(
            f"{text[:100]!r} does not name 1 to {MOST} servers",
            "write HOST:PORT, or HOST:PORT,HOST:PORT",
            code="wrong-address",
        )
    return found
