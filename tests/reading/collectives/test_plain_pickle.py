"""The pickle machine: plain data comes out as it went in, and nothing else comes out at all."""

import os
import pickle  # noqa: TID251  # forges the pickles that the machine has to read, or to refuse
import pickletools
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.reading.collectives.plain_pickle import read_pickle, recognises
from hangdog_models.reading.limits import Limits
from support.refused import refused

NUMBERS = st.integers(-(1 << 63), (1 << 63) - 1)
PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | NUMBERS
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inside: (
        st.lists(inside)
        | st.lists(inside, max_size=5).map(tuple)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])) | NUMBERS, inside)
    ),
)


@given(PLAIN, st.sampled_from([2, 3, 4, 5]))
def test_plain_data_of_every_protocol_comes_back(value: object, protocol: int) -> None:
    assert read_pickle(pickle.dumps(value, protocol)) == value


@given(PLAIN)
def test_shared_parts_come_back(value: object) -> None:
    part = [value, value]
    assert read_pickle(pickle.dumps((part, {"a": part}), 4)) == (part, {"a": part})


@given(st.binary())
def test_arbitrary_bytes_are_refused_and_never_crash(data: bytes) -> None:
    with suppress(UnreadableEvidence):
        read_pickle(b"\x80\x02" + data)


@given(PLAIN, st.data())
def test_damaged_pickles_are_refused_and_never_crash(value: object, data: st.DataObject) -> None:
    dumped = bytearray(pickle.dumps(value, data.draw(st.sampled_from([2, 4]))))
    at = data.draw(st.integers(2, len(dumped) - 1))
    dumped[at] = data.draw(st.integers(0, 255))
    for damaged in (bytes(dumped), bytes(dumped[:at])):
        with suppress(UnreadableEvidence):
            read_pickle(damaged)


class Runs:
    """What an attacker pickles: to load it is to run a command."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (self.command,)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_command_is_never_run(tmp_path: Path, protocol: int) -> None:
    mark = tmp_path / "ran"
    hostile = pickle.dumps([1, Runs(f"touch {mark}")], protocol)
    with refused("unsafe-content", UnreadableEvidence, "GLOBAL at byte"):
        read_pickle(hostile)
    assert not mark.exists()


def test_every_instruction_that_builds_more_than_plain_data_is_refused() -> None:
    plain = (  # noqa: SIM905  # a list would take a line for each name
        "PROTO STOP MARK NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 LONG4 BINFLOAT BINUNICODE SHORT_BINUNICODE "
        "BINUNICODE8 EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 EMPTY_LIST LIST APPEND APPENDS EMPTY_DICT DICT SETITEM SETITEMS "
        "BINPUT LONG_BINPUT BINGET LONG_BINGET MEMOIZE FRAME"
    ).split()
    others = [opcode for opcode in pickletools.opcodes if opcode.name not in plain]
    assert len(others) + len(plain) == len(pickletools.opcodes)
    for opcode in others:
        with refused("unsafe-content", UnreadableEvidence, f" {opcode.name} at byte 3"):
            read_pickle(b"\x80\x04]" + opcode.code.encode("latin-1") + b"\x00" * 16 + b".")


def bomb(levels: int) -> list[Any]:
    value: list[Any] = [0] * 10
    for _ in range(levels):
        value = [value] * 10
    return value


@pytest.mark.parametrize(
    ("data", "code", "value"),
    [
        (pickle.dumps(bomb(9), 2), "too-many", "limit values"),
        (b"\x80\x02]q\x00h\x00a.", "too-deep", ""),
        (b"\x80\x02" + b"]" * 100 + b"a" * 99 + b".", "too-deep", "limit depth"),
        (b"\x80\x02" + b"]" * 300_000 + b"a" * 299_999 + b".", "too-deep", "limit depth"),
        (b"\x80\x02\x8a\x20" + b"\x01" * 32 + b".", "too-large", "32 bytes"),
        (b"\x80\x02X\xff\xff\xff\x7fabc.", "damaged-pickle", ""),
        (b"\x80\x02}]]s.", "unsafe-content", ""),
        (b"\x80\x02K\x01K\x02.", "damaged-pickle", ""),
        (b"\x80\x02(.", "damaged-pickle", ""),
        (b"\x80\x02K\x01K\x02a.", "damaged-pickle", ""),
        (b"\x80\x02K\x01", "damaged-pickle", ""),
        (b"not a pickle at all", "damaged-pickle", "protocol"),
    ],
)
def test_bombs_and_damage_are_named(data: bytes, code: str, value: str) -> None:
    with refused(code, UnreadableEvidence, value):
        read_pickle(data)


#: The code of the error and what is named in it, by what a stranger may send.
HOSTILE = {
    "os.system": (b"\x80\x02cos\nsystem\nX\x02\x00\x00\x00id\x85R.", "unsafe-content", "GLOBAL"),
    "os.system of protocol 4": (b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x02id\x85R.", "unsafe-content", "STACK_GLOBAL"),
    "a persistent id": (b"\x80\x02Pfile:///etc/passwd\n.", "unsafe-content", "PERSID"),
    "a persistent id from the stack": (b"\x80\x02X\x01\x00\x00\x00xQ.", "unsafe-content", "BINPERSID"),
    "an extension code": (b"\x80\x02\x82\x01.", "unsafe-content", "EXT1"),
    "a wide extension code": (b"\x80\x02\x84\x01\x00\x00\x00.", "unsafe-content", "EXT4"),
    "a buffer from outside": (b"\x80\x05\x97.", "unsafe-content", "NEXT_BUFFER"),
    "a set state": (b"\x80\x02]}b.", "unsafe-content", "BUILD"),
    "a built object": (b"\x80\x02])\x81.", "unsafe-content", "NEWOBJ"),
    "an old instance": (b"\x80\x02(ios\nsystem\n.", "unsafe-content", "INST"),
    "a number of a billion bytes": (b"\x80\x02\x8b\x00\xca\x9a\x3b" + b"\x01" * 64, "too-large", "1000000000 bytes"),
    "a text of a billion letters": (b"\x80\x04\x8d" + (10**9).to_bytes(8, "little") + b"abc.", "damaged-pickle", ""),
    "a text of 2^64 letters": (b"\x80\x04\x8d" + b"\xff" * 8 + b"abc.", "damaged-pickle", ""),
    "bytes of 2^63": (b"\x80\x04\x8e" + b"\xff" * 7 + b"\x7fabc.", "unsafe-content", "BINBYTES8"),
    "a reference to what is not there": (b"\x80\x02j\xff\xff\xff\xff.", "damaged-pickle", ""),
    "a list in itself, deep": (b"\x80\x02" + b"]q\x00" + b"(h\x00h\x00e.", "too-deep", ""),
    "tuples without end": (b"\x80\x02)" + b"\x85" * 40_000 + b".", "too-deep", "limit depth"),
}  # fmt: skip


@pytest.mark.parametrize("kind", HOSTILE)
def test_what_is_hostile_is_refused_by_name_in_little_memory(kind: str) -> None:
    data, code, value = HOSTILE[kind]
    tracemalloc.start()
    try:
        with refused(code, UnreadableEvidence, value):
            read_pickle(data)
        assert tracemalloc.get_traced_memory()[1] < 100 << 20
    finally:
        tracemalloc.stop()


def test_many_containers_in_a_small_pickle_are_refused_by_the_limit() -> None:
    with refused("too-many", UnreadableEvidence, "limit containers"):
        read_pickle(b"\x80\x02](" + b"]" * 50 + b"e.", Limits(containers=20))


def test_a_large_pickle_is_refused_by_its_size() -> None:
    with refused("too-large", UnreadableEvidence, "limit file_bytes"):
        read_pickle(pickle.dumps("x" * 100, 2), Limits(file_bytes=50))


def test_only_binary_pickles_are_recognised() -> None:
    assert recognises(pickle.dumps({}, 2)) and not recognises(b"\x80") and not recognises(b"\xff\xd8\xff\xe0")
