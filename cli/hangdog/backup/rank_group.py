"""How ranks hear each other: a protocol, and the same over torch.distributed, as bytes that nobody unpickles."""

from typing import Any, Protocol

from hangdog.backup.wire import BackupFailed

#: What one rank may say at once: what a holder of a machine has, twice over.
LONGEST = 2 << 20


class RankGroup(Protocol):
    """All ranks of a job; `gather` is a collective."""

    @property
    def rank(self) -> int:
        """This one's."""

    @property
    def size(self) -> int:
        """How many there are."""

    def gather(self, data: bytes) -> list[bytes]:
        """What each rank gave, by rank."""


class TorchGroup:
    """All ranks of torch.distributed, by a gloo group of its own: neither a GPU nor a collective of the training waits."""

    def __init__(self) -> None:
        import torch
        import torch.distributed

        self._torch = torch
        self._dist = torch.distributed
        self._group: Any = self._dist.new_group(backend="gloo")
        self.rank: int = self._dist.get_rank()
        self.size: int = self._dist.get_world_size()

    def gather(self, data: bytes) -> list[bytes]:
        """Raises BackupFailed on all ranks where one says more than LONGEST."""
        torch = self._torch
        lengths = [torch.zeros(1, dtype=torch.int64) for _ in range(self.size)]
        self._dist.all_gather(lengths, torch.tensor([len(data)]), group=self._group)
        counts = [int(length) for length in lengths]
        if max(counts) > LONGEST:
            raise BackupFailed(f"a rank says {max(counts)} bytes, where {LONGEST} are the most", code="too-large")
        if not any(counts):
            return [b""] * self.size
        room = torch.frombuffer(bytearray(data.ljust(max(counts), b"\0")), dtype=torch.uint8)
        parts = [torch.zeros_like(room) for _ in range(self.size)]
        self._dist.all_gather(parts, room, group=self._group)
        return [bytes(part[:count].numpy().tobytes()) for part, count in zip(parts, counts, strict=True)]
