"""Sends known data between members, pair by pair, and checks and times what arrives; then gathers it from all at once."""

from __future__ import annotations

import itertools
import os
import threading
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from hangdog_agent.machine_tests.programs.device import wait
from hangdog_agent.machine_tests.programs.report_line import ReportLines

#: Between two signs of life.
_BEAT_S = 1.0
#: A store that does not answer for so long is stopped, or cut off.
_STORE_S = 5.0
#: Bytes that are made at random; more of them are repeated, for making them takes longer than sending them.
_BLOCK = 4 << 20
#: Wrong bytes that are told by their place.
_REPORTED = 4


class PairRendezvous:
    """Where the members meet, and where each says that it lives and at which step it is: who is silent is known by that."""

    def __init__(self, stated: ReportLines) -> None:
        asked = stated.asked
        self.lines = stated
        self.meet: str = asked["meet"]
        self.rank: int = asked["rank"]
        self.world: int = asked["world"]
        self.step = 0
        self.result: dict[str, Any] = {}
        # by the clock of the machine, for loading torch takes its time, too
        patience_s = max(1.0, asked["until"] - time.monotonic())
        clock = threading.Timer(patience_s, self._give_up)
        clock.daemon = True
        clock.start()
        stated.at("the meeting point")
        self.patience_s = patience_s

    def begin(self) -> None:
        """Waits until all are here."""
        self.store = self._store(self.rank == 0, 2 * self.patience_s)
        threading.Thread(target=self._beat, daemon=True).start()
        self.at("the meeting of all members")
        device = self.lines.asked["device"]
        backend = "gloo"
        if device.startswith("cuda"):
            torch.cuda.set_device(device)
            backend = "nccl"
        patience = timedelta(seconds=2 * self.patience_s)  # ours ends first, and tells more
        store = dist.PrefixStore("group", self.store)
        dist.init_process_group(backend, store=store, rank=self.rank, world_size=self.world, timeout=patience)

    def at(self, step: str) -> None:
        """All members take the same steps; the next one begins."""
        self.step += 1
        self.lines.at(step)

    def _store(self, serves: bool, patience_s: float) -> Any:
        kind, _, where = self.meet.partition("://")
        if kind == "file":
            return dist.FileStore(where, self.world)
        host, _, port = where.rpartition(":")
        return dist.TCPStore(host, int(port), None, serves, timedelta(seconds=patience_s), wait_for_workers=False)

    def _beat(self) -> None:
        """Through a connection of its own: the other waits where its user waits."""
        try:
            store = self._store(False, _STORE_S)
            for turn in itertools.count():
                store.set(f"at {self.rank}", f"{self.step} {turn}")
                time.sleep(_BEAT_S)
        except RuntimeError:  # the meeting point is gone: others tell
            pass

    def _give_up(self) -> None:
        self.give_up("")

    def give_up(self, error: str) -> None:
        """Tells who is silent, and ends: neither gloo nor NCCL comes back from somebody who does not answer."""
        guard = threading.Timer(3 * _STORE_S, lambda: self._leave([], "the meeting point does not answer"))
        guard.daemon = True
        guard.start()
        try:
            store = self._store(False, _STORE_S)
            before = self._steps(store)
            time.sleep(3 * _BEAT_S)  # who lives has said so by then
            after = self._steps(store)
        except RuntimeError:
            self._leave([], "the meeting point does not answer")
        silent = [rank for rank in range(self.world) if before[rank] == after[rank]]
        behind = [rank for rank in range(self.world) if after[rank][0] < self.step]
        why = (
            "it does not live"
            if silent
            else "it is behind the others"
            if behind
            else error or "all wait for each other"
        )
        self._leave(silent or behind, why)

    def _steps(self, store: Any) -> list[tuple[int, int]]:
        """Each member's step and beat; of one that never came, 0 and 0."""
        found = []
        for rank in range(self.world):
            key = f"at {rank}"
            words = store.get(key).split() if store.check([key]) else (b"0", b"0")
            found.append((int(words[0]), int(words[1])))
        return found

    def _leave(self, silent: list[int], why: str) -> None:
        self.lines.found({**self.result, "silent": silent, "why": why})
        os._exit(0)


def known(sender: int, receiver: int, size: int) -> Any:
    """What `sender` sends to `receiver`: both can make it."""
    maker = torch.Generator().manual_seed(1 + sender * 65_536 + receiver)
    block = torch.randint(0, 256, (min(size, _BLOCK),), dtype=torch.uint8, generator=maker)
    return block.repeat(-(-size // _BLOCK))[:size]


def differing(was: Any, wanted: Any) -> tuple[int, list[int]]:
    """How many bytes differ, and where the first of them are; compared on the host."""
    places = (was.to("cpu") != wanted).nonzero().view(-1)
    return int(places.numel()), places[:_REPORTED].tolist()


def exchange(meeting: PairRendezvous, other: int, size: int, repetitions: int, device: str) -> dict[str, Any]:
    """Both send and receive at once, again and again; the last exchange is checked like the first."""
    mine = known(meeting.rank, other, size).to(device)
    wanted = known(other, meeting.rank, size)
    seconds = []
    wrong = 0
    places: list[int] = []
    for turn in range(repetitions + 1):
        there = torch.zeros(size, dtype=torch.uint8, device=device)
        wait(device)
        began = time.perf_counter()
        both = [dist.P2POp(dist.isend, mine, other), dist.P2POp(dist.irecv, there, other)]
        for one in dist.batch_isend_irecv(both):
            one.wait()
        wait(device)
        if turn:  # the first makes the connection
            seconds.append(time.perf_counter() - began)
        if turn in (0, repetitions):
            count, where = differing(there, wanted)
            wrong, places = wrong + count, places or where
    return {"from": other, "to": meeting.rank, "bytes": size, "seconds": seconds, "wrong": wrong, "places": places}


def gather(meeting: PairRendezvous, size: int, repetitions: int, device: str) -> dict[str, Any]:
    """Everybody's data at everybody, at once."""
    meeting.at("the gathering of all")
    mine = known(meeting.rank, meeting.rank, size).to(device)
    seconds = []
    wrong: dict[int, int] = {}
    for turn in range(repetitions + 1):
        there = [torch.zeros(size, dtype=torch.uint8, device=device) for _ in range(meeting.world)]
        wait(device)
        began = time.perf_counter()
        dist.all_gather(there, mine)
        wait(device)
        if turn:
            seconds.append(time.perf_counter() - began)
        for rank, each in enumerate(there) if turn in (0, repetitions) else ():
            count, _ = differing(each, known(rank, rank, size))
            if count:
                wrong[rank] = wrong.get(rank, 0) + count
    reported = [{"from": rank, "wrong": count} for rank, count in wrong.items()]
    return {"bytes": size, "seconds": seconds, "wrong": reported}


def tournament(world: int) -> list[list[tuple[int, int]]]:
    """Rounds in which everybody meets one other, until all have met (the circle method); one sits out where they are odd."""
    seats = [*range(world), *([-1] if world % 2 else [])]
    rounds = []
    for _ in range(len(seats) - 1):
        pairs = zip(seats[: len(seats) // 2], reversed(seats[len(seats) // 2 :]), strict=True)
        rounds.append([(min(pair), max(pair)) for pair in pairs if min(pair) >= 0])
        seats = [seats[0], seats[-1], *seats[1:-1]]
    return rounds


def ring(world: int) -> list[list[tuple[int, int]]]:
    """Neighbours, one pair after the other, so that a slow link holds up nobody else's."""
    closing = [[(0, world - 1)]] if world > 2 else []
    return [*([(at, at + 1)] for at in range(world - 1)), *closing]


def main() -> None:
    stated = ReportLines()
    asked = stated.asked
    device = asked["device"]
    torch.set_num_threads(asked["threads"])
    meeting = PairRendezvous(stated)
    try:
        meeting.begin()
        play(meeting, device)
    except RuntimeError as error:  # so do gloo and NCCL say that somebody is gone
        meeting.give_up(str(error)[:300])


def play(meeting: PairRendezvous, device: str) -> None:
    """All that the members do together."""
    asked = meeting.lines.asked
    found: list[dict[str, Any]] = []
    meeting.result["pairs"] = found
    once = tournament(meeting.world) if asked["schedule"] == "all" else ring(meeting.world)
    for number, pairs in enumerate(once * asked["passes"]):
        meeting.at(f"round {number}: {', '.join(f'{low} with {high}' for low, high in pairs)}")
        for low, high in pairs:
            if meeting.rank in (low, high):
                other = high if meeting.rank == low else low
                found.append(exchange(meeting, other, asked["bytes"], asked["repetitions"], device))
        if asked["schedule"] == "ring":
            dist.barrier()
    if meeting.world > 1:
        meeting.result["gather"] = gather(meeting, asked["bytes"], asked["repetitions"], device)
    meeting.at("the end")
    everybody: list[Any] = [None] * meeting.world
    dist.all_gather_object(everybody, found)
    dist.barrier()  # nobody leaves while another still asks
    meeting.lines.found({**meeting.result, "all": everybody})
    os._exit(0)  # what libraries do at their end is not what is tested


if __name__ == "__main__":
    main()
