"""Sends known data between members, pair by pair, and checks and times what arrives; then gathers it from all at once."""

from __future__ import annotations

import os
import threading
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from hangdog_agent.diagnose.programs.device import wait
from hangdog_agent.diagnose.programs.said import Said

#: A store that does not answer for so long is stopped, or cut off.
_STORE_S = 5.0
#: Wrong bytes that are told by their place.
_TOLD = 4


class Meeting:
    """Where the members meet, and where each writes the step it is at: who never gets on is known by that."""

    def __init__(self, said: Said) -> None:
        asked = said.asked
        self.said = said
        self.rank: int = asked["rank"]
        self.world: int = asked["world"]
        self.step = 0
        self.result: dict[str, Any] = {}
        kind, _, where = asked["meet"].partition("://")
        patience = timedelta(seconds=asked["patience_s"])
        clock = threading.Timer(asked["patience_s"], self._give_up)
        clock.daemon = True
        clock.start()
        said.at("the meeting point")
        if kind == "file":
            self.store = dist.FileStore(where, self.world)
        else:
            host, _, port = where.rpartition(":")
            self.store = dist.TCPStore(host, int(port), None, self.rank == 0, patience, wait_for_workers=False)
        self.at("the meeting of all members")
        device = asked["device"]
        backend = "gloo"
        if device.startswith("cuda"):
            torch.cuda.set_device(device)
            backend = "nccl"
        store = dist.PrefixStore("group", self.store)
        dist.init_process_group(backend, store=store, rank=self.rank, world_size=self.world, timeout=patience)

    def at(self, step: str) -> None:
        """All members take the same steps; the next one begins."""
        self.step += 1
        self.said.at(step)
        self.store.set(f"at {self.rank}", str(self.step))

    def _give_up(self) -> None:
        """Tells who is behind, and ends: neither gloo nor NCCL comes back from somebody who is silent."""
        steps: dict[int, int] = {}
        silent: list[int] = []
        guard = threading.Timer(2 * _STORE_S, lambda: self._leave([], "the meeting point does not answer"))
        guard.daemon = True
        guard.start()
        try:
            self.store.set_timeout(timedelta(seconds=_STORE_S))
            for rank in range(self.world):
                key = f"at {rank}"
                steps[rank] = int(self.store.get(key)) if self.store.check([key]) else 0
            least = min(steps.values())
            silent = [rank for rank, step in steps.items() if step == least]
            why = "" if len(silent) < self.world else "all members are at the same step"
        except (AttributeError, RuntimeError):
            why = "the meeting point does not answer"
        self._leave([] if len(silent) == self.world else silent, why)

    def _leave(self, silent: list[int], why: str) -> None:
        self.said.found({**self.result, "silent": silent, "why": why or "somebody is behind all others"})
        os._exit(0)


def known(sender: int, receiver: int, size: int) -> Any:
    """What `sender` sends to `receiver`: both can make it."""
    maker = torch.Generator().manual_seed(1 + sender * 65_536 + receiver)
    return torch.randint(0, 256, (size,), dtype=torch.uint8, generator=maker)


def differing(was: Any, wanted: Any) -> tuple[int, list[int]]:
    """How many bytes differ, and where the first of them are; compared on the host."""
    places = (was.to("cpu") != wanted).nonzero().view(-1)
    return int(places.numel()), places[:_TOLD].tolist()


def exchange(meeting: Meeting, other: int, size: int, repetitions: int, device: str) -> dict[str, Any]:
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


def gather(meeting: Meeting, size: int, repetitions: int, device: str) -> dict[str, Any]:
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
    told = [{"from": rank, "wrong": count} for rank, count in wrong.items()]
    return {"bytes": size, "seconds": seconds, "wrong": told}


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
    return [[tuple(sorted((at, (at + 1) % world)))] for at in range(world if world > 2 else world - 1)]  # type: ignore[list-item]


def main() -> None:
    said = Said()
    asked = said.asked
    device = asked["device"]
    torch.set_num_threads(asked["threads"])
    meeting = Meeting(said)
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
    said.found({**meeting.result, "all": everybody})
    dist.barrier()  # nobody leaves while another still asks
    os._exit(0)  # what libraries do at their end is not what is tested


if __name__ == "__main__":
    main()
