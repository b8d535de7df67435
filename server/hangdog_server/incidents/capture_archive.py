"""What is kept of one incident's captures: each as it came, and beside them, once, the pieces that they name.

While the store fails they wait in memory: a full disk must not keep a standstill from being judged.
"""

import logging

from hangdog_proto.codec.piece_cache import PieceCache
from hangdog_proto.codec.pieces import PIECES
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_server.store.captures import RawCapture
from hangdog_server.store.leases import NotOurs
from hangdog_server.store.store import Store
from hangdog_server.store.store_errors import StoreFailed

#: Bytes of captures of all incidents that may wait in memory: some looks of 16,384 ranks. Later ones are not kept.
MOST_WAITING = 256 << 20

log = logging.getLogger(__name__)


class Archive:
    """The captures of one incident on their way into the store."""

    def __init__(self, store: Store, dictionary: PieceCache, incident: str, first: int = 0) -> None:
        """What is kept of the incident from before has numbers below `first`."""
        self._store = store
        self._dictionary = dictionary
        self._incident = incident
        self._waiting: list[RawCapture] = []
        self._pieces: list[pb.Piece] = []
        self._stored: set[bytes] = set()
        self._batches = first
        self._unwritten: list[RawCapture] = []
        self._waiting_bytes = 0

    def add(self, machine: str, number: int, capture: pb.Capture, before: bytes | None = None) -> None:
        """Takes a capture in, and beside it what `together.kept` says of looks before it; it is in the store after the next
        `keep`.
        """
        self._waiting.append(RawCapture(machine, number, capture.SerializeToString(), before))
        self._pieces += self._dictionary.pieces(capture, self._stored)

    async def keep(self) -> None:
        """Keeps all that came since, all or none; where the store fails they wait in memory. Raises NotOurs."""
        try:
            await self.write()
        except NotOurs:
            raise
        except StoreFailed as error:
            log.error("incident %s: its captures wait in memory: %s", self._incident, error)

    async def write(self) -> None:
        """Writes all that came since, and what waits in memory; raises StoreFailed, and then it waits."""
        captures, self._waiting = self._waiting, []
        pieces, self._pieces = self._pieces, []
        if pieces:
            captures.append(RawCapture(PIECES, self._batches, pb.Pieces(pieces=pieces).SerializeToString()))
            self._batches += 1
        store = self._store
        captures, self._unwritten = [*self._unwritten, *captures], []
        waited = sum(map(_size, captures)) if captures else 0
        if not captures:
            return
        store.waiting_bytes -= self._waiting_bytes
        self._waiting_bytes = 0
        try:
            await store.keep(self._incident, captures)
        except StoreFailed:
            if store.waiting_bytes + waited > MOST_WAITING:
                log.error("incident %s: %d captures are dropped: too many wait", self._incident, len(captures))
            else:
                self._unwritten, self._waiting_bytes = captures, waited
                store.waiting_bytes += waited
            raise


def _size(one: RawCapture) -> int:
    return len(one.packed) + len(one.before or b"")
