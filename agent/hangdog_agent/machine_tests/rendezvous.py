"""Chooses where the members of a group meet: a free port of this machine, at an address that the others can reach."""

import ipaddress
import socket
from collections.abc import Iterable

from hangdog_models.errors import WrongUse


class Rendezvous:
    """A port that is kept free of others until `release`; `at` is HOST:PORT."""

    def __init__(self, others: Iterable[str], server: str) -> None:
        """`others` are addresses of the other members as the server sees them, `server` is its own HOST:PORT.

        One that the server sees as its own machine does not say how we get there; then our way to the server does.
        Raises WrongUse when no address or port is found.
        """
        host, _, port = server.rpartition(":")
        far = next((other for other in others if _far(other)), "")
        own = _own(far, 9) if far else _own(host.strip("[]"), int(port))
        try:
            family = socket.AF_INET6 if ":" in own else socket.AF_INET
            self._held = socket.socket(family, socket.SOCK_STREAM)
            self._held.bind(("", 0))
        except OSError as error:
            raise WrongUse(f"no port is free here: {error.strerror or error}", code="cannot-listen") from error
        number = self._held.getsockname()[1]
        self.at = f"[{own}]:{number}" if ":" in own else f"{own}:{number}"

    def release(self) -> None:
        """Lets go of the port, for whoever is to listen there."""
        self._held.close()


def _own(host: str, port: int) -> str:
    """Our address on the way to a host; nothing is sent. Raises WrongUse."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as way:
            way.connect(address)
            return str(way.getsockname()[0])
    except OSError as error:
        raise WrongUse(
            f"this machine cannot reach {host[:100]!r}: {error.strerror or error}", code="unreachable-machine"
        ) from error


def _far(address: str) -> bool:
    """Whether this is an address, and of another machine than the one that saw it."""
    try:
        return not ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
