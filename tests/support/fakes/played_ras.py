"""A played NCCL RAS behind a real socket: a conversation as each version holds it, and what a test makes of it."""

import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

TEXT = b"""\
NCCL version 2.27.3 compiled with CUDA 12.8

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         1         2         2         2   RUNNING      OK
"""
#: As 2.28.9 writes it for a missing rank: no comma stands behind its members.
JSON = b"""\
{
  "nccl_version": "2.28.9",
  "communicators": [
    {
      "hash": "0xab",
      "size": 2,
      "ranks": [
      ],
      "missing_ranks": [
        {
          "rank": 1,
          "host": "10.0.0.1",
          "pid": 77,
          "cuda_dev": 1
          "nvml_dev": 1
          "status": {
            "unresponsive": true
            "considered_dead": false
          }
        }
      ]
    }
  ]
}
"""

Say = Callable[[bytes], object]


class Played(socketserver.StreamRequestHandler):
    """One connection to a RAS; what it answers to the last request is the test's, in `status`."""

    timeout = 20.0
    json = True
    greeting: bytes | None = b"SERVER PROTOCOL 2\n"
    asked: list[str]

    def handle(self) -> None:
        with suppress(OSError):
            while line := self.rfile.readline().decode().strip():
                self.asked.append(line)
                if line.endswith("STATUS"):
                    self.status(self.wfile.write)
                    return
                answer = self.answer(line)
                if answer is not None:
                    self.wfile.write(answer)

    def answer(self, line: str) -> bytes | None:
        if line.startswith("CLIENT PROTOCOL "):
            return self.greeting
        if line == "SET FORMAT json" and not self.json:
            return b"ERROR: Unknown command SET FORMAT json\n"
        return b"OK\n"

    def status(self, say: Say) -> None:
        say(JSON if self.json else TEXT)


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = False
    block_on_close = True


@contextmanager
def served(**changed: Any) -> Iterator[tuple[int, list[str]]]:
    """A RAS on a free port, and what it was asked."""
    asked: list[str] = []
    with Server(("127.0.0.1", 0), type("Changed", (Played,), {"asked": asked} | changed)) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield server.server_address[1], asked
        finally:
            server.shutdown()
            thread.join()
