"""Opens the sockets of an address that people write as HOST:PORT."""

import contextlib
import errno
import os
import socket

#: Connections that the kernel holds until they are accepted; it takes no more than net.core.somaxconn.
BACKLOG = 4096
#: What is sent and not acknowledged, or not taken, for so long ends its connection: its peer is dead, or reads nothing. ms.
_UNTAKEN_MS = 60_000


def listeners(host: str, port: int) -> list[socket.socket]:
    """The sockets of all that HOST means, which do not block, on one port (0: any free one). Raises OSError, OverflowError.

    0.0.0.0 takes IPv6, too, as gRPC always did.
    """
    if port > 65535:
        raise OverflowError(f"there is no port {port}")  # getaddrinfo takes what is left of it
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    if host == "0.0.0.0" and socket.has_dualstack_ipv6():
        with contextlib.suppress(OSError):  # a machine that has IPv6 switched off
            return [_listening(socket.AF_INET6, ("::", port), both=True)]
    made: list[socket.socket] = []
    for family, _, _, _, address in dict.fromkeys(found):
        if made:
            address = (address[0], made[0].getsockname()[1], *address[2:])
        try:
            made.append(_listening(family, address, both=host == "::"))
        except OSError as error:
            # `localhost` is 127.0.0.1 and ::1 also where a machine has IPv6 switched off
            if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT) or len(found) == 1:
                for one in made:
                    one.close()
                raise
    if not made:
        raise OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
    return made


def _listening(family: int, address: object, both: bool) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setblocking(False)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNTAKEN_MS)  # those it accepts inherit it
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, not both)
        made.bind(address)  # type: ignore[arg-type]  # as getaddrinfo gave it
        made.listen(BACKLOG)
    except BaseException:
        made.close()
        raise
    return made
