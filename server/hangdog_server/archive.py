"""What is kept of one incident's captures: each as it came, and beside them, once, the pieces that they name."""

from hangdog_proto.dictionary import Dictionary
from hangdog_proto.generated import hangdog_pb2 as pb
from hangdog_proto.pieces import PIECES
from hangdog_server.store import RawCapture, Store


class Archive:
    """The captures of one incident on their way into the store."""

    def __init__(self, store: Store, dictionary: Dictionary, incident: str, first: int = 0) -> None:
        """What is kept of the incident from before has numbers below `first`."""
        self._store = store
        self._dictionary = dictionary
        self._incident = incident
        self._waiting: list[RawCapture] = []
        self._pieces: list[pb.Piece] = []
        self._told: set[bytes] = set()
        self._batches = first

    def add(self, machine: str, number: int, capture: pb.Capture, before: bytes | None = None) -> None:
        """Takes a capture in, and beside it what `together.kept` says of looks before it; it is in the store after the next
        `keep`.
        """
        self._waiting.append(RawCapture(machine, number, capture.SerializeToString(), before))
        self._pieces += self._dictionary.pieces(capture, self._told)

    async def keep(self) -> None:
        """Keeps all that came since, all or none; raises StoreFailed."""
        captures, self._waiting = self._waiting, []
        pieces, self._pieces = self._pieces, []
        if pieces:
            captures.append(RawCapture(PIECES, self._batches, pb.Pieces(pieces=pieces).SerializeToString()))
            self._batches += 1
        if captures:
            await self._store.keep(self._incident, captures)
