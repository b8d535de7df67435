"""The shards that one holder keeps: so many bytes and no more, whole ones only, and those of two copies at the most."""

import threading
from dataclasses import dataclass

from hangdog.backup.wire import BackupFailed

#: Shards one holder lists: a machine of 16 ranks holds 64 of them.
MOST_SHARDS = 4096


@dataclass(frozen=True, slots=True)
class Shard:
    """One rank's part of a copy. A `copy` is what all ranks kept at once: two of the same step are not mixed."""

    rank: int
    copy: str
    step: int
    world: int
    size: int
    digest: str = ""


class ShardMemory:
    """What is held, under one lock. A shard counts from `commit` on; until then its bytes are reserved."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._lock = threading.Lock()
        self._held: dict[tuple[int, str], tuple[Shard, bytearray]] = {}
        self._reserved = 0

    def reserve(self, shard: Shard, keep: str) -> bytearray:
        """Room for a shard; raises BackupFailed where there is none. All copies but `keep` and its own are dropped."""
        with self._lock:
            self._held = {key: held for key, held in self._held.items() if key[1] in (keep, shard.copy)}
            used = self._reserved + sum(held.size for held, _ in self._held.values())
            if used + shard.size > self.limit:
                raise BackupFailed(
                    f"{used + shard.size} bytes are needed, and {self.limit} allowed", code="not-enough-memory"
                )
            if len(self._held) >= MOST_SHARDS:
                raise BackupFailed(f"{MOST_SHARDS} shards are held", code="too-many")
            self._reserved += shard.size
        try:
            return bytearray(shard.size)
        except MemoryError:
            self.release(shard)
            raise BackupFailed(f"the machine has no {shard.size} bytes left", code="not-enough-memory") from None

    def release(self, shard: Shard) -> None:
        """Gives up what was reserved."""
        with self._lock:
            self._reserved -= shard.size

    def commit(self, shard: Shard, body: bytearray) -> None:
        with self._lock:
            self._reserved -= shard.size
            self._held[shard.rank, shard.copy] = shard, body

    def get(self, rank: int, copy: str) -> tuple[Shard, bytearray]:
        with self._lock:
            found = self._held.get((rank, copy))
        if found is None:
            raise BackupFailed(f"no shard of rank {rank} in copy {copy}", code="no-backup")
        return found

    def shards(self) -> list[Shard]:
        with self._lock:
            return [shard for shard, _ in self._held.values()]
