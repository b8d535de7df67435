"""A holder and what may be wrong with who asks it: no key, other bytes, too much, gone in the middle, too slow."""

import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from hangdog.backup.holder import Holder
from hangdog.backup.holder_client import Membership, far, fetch, inventory, put
from hangdog.backup.shard_memory import Shard
from hangdog.backup.wire import BackupFailed, Seal, admit, greet, job_key, receive, send
from hangdog_models.errors import WrongUse
from support.refused import refused

MEMBER = Membership(b"k" * 32, "job")
BODY = bytes(range(256)) * 40
SHARD = Shard(3, "copy-1", 10, 8, len(BODY))
ROOM = 3 * len(BODY)


@pytest.fixture
def holder() -> Iterator[tuple[Holder, str]]:
    one = Holder(MEMBER.key, MEMBER.job, ROOM)
    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=one.serve, args=([listener], 3600.0), daemon=True).start()
    yield one, f"127.0.0.1:{listener.getsockname()[1]}"


def stored(address: str, shard: Shard = SHARD, keep: str = "") -> None:
    with far(MEMBER, address) as line:
        put([line], MEMBER, shard, memoryview(BODY), keep, 30)


def listed(address: str) -> list[tuple[int, str]]:
    with far(MEMBER, address) as line:
        return [(shard.rank, shard.copy) for shard in inventory(line).shards]


def begun(line: socket.socket, **other: object) -> dict[str, object]:
    """A put as far as its answer."""
    frame = {"do": "put", "rank": 3, "copy": "c", "step": 1, "world": 8, "size": 1000, "keep": "", "limit_s": 5}
    send(line, frame | other)
    return receive(line)


def drained(holder: Holder) -> None:
    """Waits until nothing is reserved any more."""
    deadline = time.monotonic() + 30
    while holder.memory._reserved and time.monotonic() < deadline:
        time.sleep(0.01)
    assert holder.memory._reserved == 0


def test_a_shard_comes_back_as_it_went(holder: tuple[Holder, str]) -> None:
    stored(holder[1])
    with far(MEMBER, holder[1]) as line:
        (shard,) = inventory(line).shards
        assert replace(shard, digest="") == SHARD and fetch(line, MEMBER, shard, 30) == BODY


def test_two_copies_are_held_and_older_ones_dropped(holder: tuple[Holder, str]) -> None:
    for number in range(1, 5):
        stored(holder[1], replace(SHARD, copy=f"copy-{number}"), keep=f"copy-{number - 1}")
    assert listed(holder[1]) == [(3, "copy-3"), (3, "copy-4")]


@pytest.mark.parametrize("member", [replace(MEMBER, key=b"x" * 32), replace(MEMBER, job="another")])
def test_who_lacks_the_key_or_is_of_another_job_is_not_let_in(holder: tuple[Holder, str], member: Membership) -> None:
    with pytest.raises((BackupFailed, OSError)):
        far(member, holder[1])


def test_a_stranger_that_does_not_care_for_our_proof_gets_no_answer(holder: tuple[Holder, str]) -> None:
    host, port = holder[1].split(":")
    with socket.create_connection((host, int(port))) as line:
        receive(line)
        send(line, {"nonce": "1", "proof": "0" * 64})
        with refused("connection-lost", BackupFailed):
            receive(line)


def test_a_holder_without_the_key_is_told_by_the_trainer() -> None:
    ours, theirs = socket.socketpair()

    def imitates() -> None:
        with theirs:
            send(theirs, {"nonce": "1"})
            receive(theirs)
            send(theirs, {"proof": "0" * 64})

    thread = threading.Thread(target=imitates)
    thread.start()
    with ours, refused("wrong-job-key", BackupFailed):
        greet(ours, MEMBER.key, MEMBER.job)
    thread.join()


@pytest.mark.parametrize(
    "said", [b"GET / HTTP/1.1\r\n\r\n", b"\xff\xff\xff\xff", b"\x00\x00\x00\x02[]", b"\x00\x00\x00\x05nope!", b""]
)
def test_what_speaks_otherwise_is_cut_off(said: bytes) -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        theirs.sendall(said)
        theirs.shutdown(socket.SHUT_WR)
        with ours, pytest.raises(BackupFailed):
            admit(ours, MEMBER.key, MEMBER.job)


def test_more_than_the_memory_is_refused_before_a_byte_of_it_is_read(holder: tuple[Holder, str]) -> None:
    with far(MEMBER, holder[1]) as line:
        assert f"{ROOM} allowed" in str(begun(line, size=ROOM + 1)["error"])
    with far(MEMBER, holder[1]) as line:
        assert "whole number" in str(begun(line, size=1 << 70)["error"])
    drained(holder[0])


def test_a_trainer_killed_in_the_middle_leaves_nothing_behind(holder: tuple[Holder, str]) -> None:
    stored(holder[1])
    with far(MEMBER, holder[1]) as line:
        assert begun(line, copy="half", keep=SHARD.copy) == {"go": True}
        line.sendall(b"x" * 600)
    drained(holder[0])
    assert listed(holder[1]) == [(3, "copy-1")]


def test_other_bytes_than_the_digest_says_are_not_kept(holder: tuple[Holder, str]) -> None:
    with far(MEMBER, holder[1]) as line:
        begun(line)
        line.sendall(b"x" * 1000)
        send(line, {"digest": "0" * 64})
        assert "the digest" in receive(line)["error"]
    drained(holder[0])
    assert listed(holder[1]) == []


def test_a_peer_that_trickles_is_given_up_in_time(holder: tuple[Holder, str]) -> None:
    with far(MEMBER, holder[1]) as line:
        begun(line, limit_s=1)
        line.sendall(b"x")
        assert re.search("timed out|too long", receive(line)["error"])
    drained(holder[0])


@pytest.mark.parametrize(
    ("answer", "body", "code", "value"),
    [
        ({"size": 4}, b"abcd", "damaged-backup", "digest"),
        ({"size": 5}, b"abcde", "damaged-backup", "listed 4"),
        ({"size": 1 << 40}, b"", "damaged-backup", "listed 4"),
        ({"size": "4"}, b"", "damaged-message", "size"),
        ({"error": "no shard of rank 3"}, b"", "backup-failed", "no shard of rank 3"),
        ({"size": 4}, b"ab", "connection-lost", ""),
    ],
)
def test_a_liar_is_found_out(answer: dict[str, object], body: bytes, code: str, value: str) -> None:
    seal = Seal(MEMBER.key, MEMBER.job, rank := 3, "c", 4)
    seal.add(memoryview(b"true"))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        send(theirs, answer)
        theirs.sendall(body)
        theirs.shutdown(socket.SHUT_WR)
        with refused(code, BackupFailed, value):
            fetch(ours, MEMBER, Shard(rank, "c", 1, 8, 4, seal.digest()), 5)


def test_the_shard_of_another_rank_does_not_pass_for_ones_own(holder: tuple[Holder, str]) -> None:
    stored(holder[1], replace(SHARD, rank=4))
    with far(MEMBER, holder[1]) as line:
        (shard,) = inventory(line).shards
        held = holder[0].memory._held
        held[3, shard.copy] = replace(shard, rank=3), held[4, shard.copy][1]
        with refused("damaged-backup", BackupFailed):
            fetch(line, MEMBER, replace(shard, rank=3), 30)


def test_a_holder_that_nobody_is_connected_to_ends() -> None:
    one = Holder(MEMBER.key, MEMBER.job, ROOM)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        began = time.monotonic()
        one.serve([listener], 0.5)
        assert time.monotonic() - began < 30


@pytest.mark.parametrize("key", ["", "short"])
def test_without_a_key_nothing_listens(key: str) -> None:
    with refused("weak-job-key", WrongUse, "HANGDOG_BACKUP_KEY"):
        job_key({"HANGDOG_BACKUP_KEY": key})


def test_no_frame_is_a_pickle() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        send(theirs, {"do": "list"})
        assert json.loads(ours.recv(100)[4:]) == {"do": "list"}
