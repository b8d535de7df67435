"""What the certificates say that the agents of connected machines have shown, and when these end.

`now` is in seconds on a steady clock, as in `fleet`.
"""

from dataclasses import dataclass

from hangdog_proto.x509 import ends_soon
from hangdog_server.auth.tls import Peer


@dataclass(frozen=True, slots=True)
class CertificateFacts:
    """The certificate of a connected machine: who it says its owner is, and from when to when it lasts, on the steady clock."""

    peer: Peer
    serial: str
    begins: float
    ends: float

    def ends_soon(self, now: float) -> bool:
        """Whether it has little left."""
        return ends_soon(self.begins, self.ends, now)


class ShownCertificates:
    """The certificates by machine."""

    def __init__(self) -> None:
        self._held: dict[str, CertificateFacts] = {}

    def note(self, machine: str, peer: Peer | None, ahead_s: float) -> None:
        """A machine is connected by this certificate; the steady clock is so many seconds ahead of Unix time."""
        self._held.pop(machine, None)
        if peer is not None and (leaf := peer.leaf) is not None:
            self._held[machine] = CertificateFacts(peer, leaf.serial, leaf.begins + ahead_s, leaf.ends + ahead_s)

    def forget(self, machine: str) -> None:
        """A machine is connected no longer."""
        self._held.pop(machine, None)

    def of(self, machine: str) -> CertificateFacts | None:
        """The certificate of a connected machine; None without one."""
        return self._held.get(machine)

    def soonest(self, now: float) -> list[tuple[float, str]]:
        """Seconds left of each, and its machine, the soonest to end first."""
        return sorted((held.ends - now, machine) for machine, held in self._held.items())

    def ending(self, now: float) -> list[str]:
        """The machines whose certificates have little left, by name."""
        return sorted(machine for machine, held in self._held.items() if held.ends_soon(now))
