"""Many connections from many addresses of this machine to one port: `python -m support.servers.crowd PORT COUNT [ADDRESSES] [HEX]`.

It runs in a process of its own, for its open files are not those of the server. It prints `here N` once all are made,
and holds them until its stdin ends; HEX is what each connection says.
"""

import resource
import selectors
import socket
import sys
import time

#: Connections that are being made at once: fewer than the queue of any listening port here.
AT_ONCE = 500
#: A connection that was not made after so long is none. Seconds.
PATIENCE_S = 20.0


def main(port: int, count: int, addresses: int, said: bytes) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    made: list[socket.socket] = []
    selector = selectors.DefaultSelector()
    begun, until = 0, time.monotonic() + PATIENCE_S
    waiting = 0
    while (begun < count or waiting) and time.monotonic() < until:
        while begun < count and waiting < AT_ONCE:
            one = socket.socket()
            one.setblocking(False)
            index = begun % addresses + 2
            one.setsockopt(socket.SOL_IP, 24, 1)  # IP_BIND_ADDRESS_NO_PORT: the port is chosen per destination
            one.bind((f"127.0.{index >> 8}.{index & 255}", 0))
            one.connect_ex(("127.0.0.1", port))
            selector.register(one, selectors.EVENT_WRITE)
            begun, waiting, until = begun + 1, waiting + 1, time.monotonic() + PATIENCE_S
        for key, _ in selector.select(1.0):
            one = key.fileobj  # type: ignore[assignment]
            selector.unregister(one)
            waiting -= 1
            if one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0:
                try:
                    if said:
                        one.send(said)
                except OSError:
                    pass
                made.append(one)
    print(f"here {len(made)}", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    given = sys.argv[1:]
    main(int(given[0]), int(given[1]), int(given[2]) if len(given) > 2 else 250, bytes.fromhex("".join(given[3:])))
