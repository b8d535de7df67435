"""What a trainer calls: `keep` copies each rank's state to two machines' memory, `restore` brings the newest whole copy back.

Both are collectives: every rank calls them, at the same step. A checkpoint in storage stays the truth.
"""

import json
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import Any

from hangdog.backup.agreement import RankReport, WholeCopy, kept_everywhere, misplaced, next_copy, whole_copies
from hangdog.backup.holder_client import (
    Inventory,
    Membership,
    end,
    far,
    fetch,
    inventory,
    near,
    opened,
    put,
    shard_of,
    start,
)
from hangdog.backup.rank_group import RankGroup
from hangdog.backup.shard_memory import Shard
from hangdog.backup.state_bytes import fitting, pack
from hangdog.backup.wire import BackupFailed, job_key
from hangdog_models.errors import WrongUse

_log = logging.getLogger("hangdog.backup")


@dataclass(frozen=True, slots=True)
class BackupSettings:
    """`memory` bounds what this machine's holder holds, in bytes: four shards for each rank of the machine are needed."""

    job: str
    memory: int
    machine: str = ""  # its host name
    host: str = ""  # the address that leads to MASTER_ADDR
    share: float = 0.01  # of the time that training may be held up
    idle_s: float = 1800.0  # without a trainer, after which a holder ends: a job is started anew within minutes
    limit_s: float = 600.0  # for one transfer


@dataclass(frozen=True, slots=True)
class Restored:
    """The step that came back, and this rank's bytes where no state was given to put them into."""

    step: int
    body: memoryview


class Backups:
    """The copies of one rank. `problem` says in one line why the last call or copy did not do what it is for."""

    def __init__(
        self,
        group: RankGroup,
        placement: Sequence[int],
        settings: BackupSettings,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        if len(placement) != group.size:
            raise WrongUse(
                f"the placement has {len(placement)} ranks, and the job has {group.size}",
                "plan it again for this job: hangdog plan backups",
                code="wrong-placement",
            )
        self._member = Membership(job_key(environ), settings.job)
        self._group, self._placement, self._settings = group, placement, settings
        self._machine = settings.machine or socket.gethostname()
        self._host = settings.host or _own_address(environ.get("MASTER_ADDR", ""))
        self.problem = ""
        self._copies: tuple[str, ...] = ()
        self._thread: threading.Thread | None = None
        self._copying, self._newest = -1, ""
        self._room = bytearray()
        self._began = self._held_up = 0.0
        self._address = ""
        self._find_holder()
        self._machines = self._placed()

    def keep(self, step: int, state: Mapping[str, Any] | bytes) -> bool:
        """Copies the state and returns; the copies travel meanwhile. False where none is made now: `problem` says why."""
        report = RankReport(self._machine, self._address, secrets.token_hex(8), self._copies, self._waits())
        reports = self._reports(report)
        upcoming = next_copy(reports)
        if upcoming.waits:
            self._note(f"step {step} is not kept: {upcoming.waits}")
            return False
        self._began = time.monotonic()
        try:
            body = memoryview(state) if isinstance(state, bytes) else pack(state, self._make_room)
        except MemoryError:
            self._note(f"step {step} is not kept: no memory is left for the bytes of rank {self._group.rank}")
            return False
        self._held_up = time.monotonic() - self._began
        shard = Shard(self._group.rank, upcoming.name, step, self._group.size, len(body))
        peer = reports[self._placement[self._group.rank]].address
        self._copies = (upcoming.keep,) if upcoming.keep else ()
        self._copying, self._newest = step, upcoming.name
        self._thread = threading.Thread(target=self._copy, args=(shard, body, upcoming.keep, peer), daemon=True)
        self._thread.start()
        return True

    def finish(self) -> bool:
        """Waits for the copies under way; whether every rank has both of the newest."""
        if self._thread is not None:
            self._thread.join()
        newest = tuple(copy for copy in self._copies if copy == self._newest)
        reports = self._reports(RankReport(self._machine, self._address, "", newest))
        return bool(kept_everywhere(reports))

    def restore(self, state: Mapping[str, Any] | None = None) -> Restored | None:
        """Brings the newest whole copy back, into `state` where one is given; None on all ranks where no copy is whole.

        A state is changed only once every rank has its bytes and they fit.
        """
        found, lack = whole_copies(self._inventories(), self._group.size)
        for candidate in found:
            failed, body, apply = "", memoryview(b""), None
            try:
                body = self._fetched(candidate)
                apply = fitting(body, state) if state is not None else None
            except (BackupFailed, OSError, MemoryError) as error:
                failed = str(error) or type(error).__name__
            failures = [data.decode() for data in self._group.gather(failed.encode())]
            if not any(failures):
                if apply is not None:
                    apply()
                self._copies, self.problem = (candidate.copy,), ""
                return Restored(candidate.step, body)
            rank, reason = next((rank, reason) for rank, reason in enumerate(failures) if reason)
            lack = f"step {candidate.step}: rank {rank}: {reason}"
        self._note(f"nothing to restore, load from storage: {lack}")
        return None

    def close(self, forget: bool = False) -> None:
        """Ends the copy under way. With `forget` the holders end, too: the job is over."""
        self.finish()
        if forget and self._is_first():
            try:
                with near(self._member, self._machine) as line:
                    end(line)
            except (BackupFailed, OSError) as error:
                self._note(f"the holder of {self._machine} was not ended: {error}")

    def _placed(self) -> list[str]:
        """The machine of each rank; raises WrongUse on all ranks where the placement is none for them."""
        reports = self._reports(RankReport(self._machine, self._address, ""))
        if wrong := misplaced(reports, self._placement):
            raise WrongUse(
                f"the backup of rank {wrong[0]} would be on its own machine {reports[wrong[0]].machine}",
                "say how many ranks a machine has: hangdog plan backups --gpus-per-machine N",
                code="wrong-placement",
            )
        near_only = {report.machine: report.address.startswith("127.") for report in reports if report.address}
        if any(near_only.values()) and not all(near_only.values()):
            raise WrongUse(
                f"other machines cannot reach {next(name for name, is_near in near_only.items() if is_near)}",
                "give an address that they can reach: BackupSettings(host=...)",
                code="unreachable-machine",
            )
        return [report.machine for report in reports]

    def _reports(self, mine: RankReport) -> list[RankReport]:
        gathered = [json.loads(data) for data in self._group.gather(json.dumps(asdict(mine)).encode())]
        return [RankReport(**one | {"copies": tuple(one["copies"])}) for one in gathered]

    def _waits(self) -> str:
        if self._thread is not None and self._thread.is_alive():
            return f"still copies step {self._copying}"
        if self._held_up > self._settings.share * (time.monotonic() - self._began):
            return f"would be held up for more than {self._settings.share:.1%} of its time"
        return ""

    def _copy(self, shard: Shard, body: memoryview, keep: str, peer: str) -> None:
        """In a thread of its own: the same bytes to this machine's holder and to the peer's."""
        try:
            if not peer:
                raise BackupFailed(f"rank {self._placement[shard.rank]} has no holder", code="no-backup-holder")
            with ExitStack() as stack:
                lines = opened(stack, self._member, self._machine, peer)
                put(lines, self._member, shard, body, keep, self._settings.limit_s)
            self._copies = (*self._copies, shard.copy)
            self.problem = ""
        except (BackupFailed, OSError) as error:
            self._note(f"step {shard.step} is not kept: {error}")
            self._find_holder()

    def _find_holder(self) -> None:
        """Starts this machine's holder where none answers; `problem` says so where there is none then."""
        try:
            try:
                self._address = self._own_inventory().address
            except (BackupFailed, OSError):  # there is none, or it ends just now
                start(self._member, self._machine, self._host, self._settings.memory, self._settings.idle_s)
                self._address = self._own_inventory().address
        except (BackupFailed, OSError) as error:
            self._address = ""
            self._note(f"no holder on {self._machine}: {error}")

    def _own_inventory(self) -> Inventory:
        with near(self._member, self._machine) as line:
            return inventory(line)

    def _inventories(self) -> dict[str, tuple[Shard, ...]]:
        """What the holder of each machine has, as its first rank says."""
        mine = Inventory("", ())
        if self._is_first():
            try:
                mine = self._own_inventory()
            except (BackupFailed, OSError) as error:
                self._note(f"no holder on {self._machine}: {error}")
        listed = self._group.gather(json.dumps([mine.address, [asdict(shard) for shard in mine.shards]]).encode())
        held = (json.loads(data) for data in listed)
        return {address: tuple(shard_of(one) for one in shards) for address, shards in held if address}

    def _fetched(self, candidate: WholeCopy) -> memoryview:
        """This rank's bytes, from its own machine where that has them; raises BackupFailed where no source gives them."""
        shard, addresses = candidate.sources[self._group.rank]
        if shard.size > self._settings.memory:
            raise BackupFailed(
                f"{shard.size} bytes are listed, and {self._settings.memory} allowed", code="not-enough-memory"
            )
        failed: list[str] = []
        for address in sorted(addresses, key=lambda one: one != self._address):
            try:
                own = address == self._address
                with near(self._member, self._machine) if own else far(self._member, address) as line:
                    return memoryview(fetch(line, self._member, shard, self._settings.limit_s))
            except (BackupFailed, OSError) as error:
                failed.append(f"{address}: {error}")
        raise BackupFailed("; ".join(failed), code="no-backup")

    def _is_first(self) -> bool:
        return self._machines.index(self._machine) == self._group.rank

    def _make_room(self, size: int) -> bytearray:
        if len(self._room) != size:
            self._room = bytearray()  # given back before the next is taken
            self._room = bytearray(size)
        return self._room

    def _note(self, problem: str) -> None:
        self.problem = problem
        _log.warning("%s", problem)


def _own_address(master: str) -> str:
    """The address from which the way to the job's master leads; no packet is sent."""
    if not master:
        return "127.0.0.1"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        try:
            line.connect((master, 9))
        except OSError as error:
            raise WrongUse(
                f"cannot reach MASTER_ADDR {master}: {error}",
                "give BackupSettings(host=...)",
                code="unreachable-machine",
            ) from None
        return str(line.getsockname()[0])
