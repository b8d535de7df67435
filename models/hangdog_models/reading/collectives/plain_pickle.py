"""Reads pickles that hold plain data, without ever running what a pickle asks for.

A pickle is a program for a small stack machine. This one knows the instructions that put numbers, texts, tuples, lists
and dictionaries together, and stops by name at any other: nothing is imported, called or built. References to a value
read before are followed (PyTorch writes each stack frame once), so the result may share parts but has no cycles.
"""

import struct
from collections.abc import Callable
from typing import Any

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.reading.limits import DEFAULTS, Limits

#: Protocols with opcodes this machine may meet; protocol 0 and 1 are texts of their own that nobody writes any more.
_PROTOCOLS = range(2, 6)
#: The names of the refused instructions, for the message: those that run something, and those that no recorder writes.
_REFUSED = {
    ord("c"): "GLOBAL", ord("R"): "REDUCE", ord("b"): "BUILD", ord("i"): "INST", ord("o"): "OBJ", ord("P"): "PERSID",
    ord("Q"): "BINPERSID", 0x81: "NEWOBJ", 0x82: "EXT1", 0x83: "EXT2", 0x84: "EXT4", 0x92: "NEWOBJ_EX",
    0x93: "STACK_GLOBAL", 0x97: "NEXT_BUFFER", 0x98: "READONLY_BUFFER", ord("B"): "BINBYTES", ord("C"): "SHORT_BINBYTES",
    0x8E: "BINBYTES8", 0x96: "BYTEARRAY8", 0x8F: "EMPTY_SET", 0x90: "ADDITEMS", 0x91: "FROZENSET", ord("I"): "INT",
    ord("L"): "LONG", ord("S"): "STRING", ord("T"): "BINSTRING", ord("U"): "SHORT_BINSTRING", ord("V"): "UNICODE",
    ord("F"): "FLOAT", ord("p"): "PUT", ord("g"): "GET", ord("0"): "POP", ord("1"): "POP_MARK", ord("2"): "DUP",
    0x80: "PROTO",
}  # fmt: skip
#: Bytes of the widest whole number read: 64 bits and a sign. Wider ones are no counters and could be made to collide.
_WIDEST = 9
_CONSTANTS = {ord("N"): None, 0x88: True, 0x89: False}
_BYTE, _SHORT, _INT, _UINT, _ULONG = map(struct.Struct, ("<B", "<H", "<i", "<I", "<Q"))
_UNPACKED = {ord("K"): _BYTE, ord("M"): _SHORT, ord("J"): _INT, ord("G"): struct.Struct(">d")}
_EMPTY: dict[int, Callable[[], Any]] = {ord("]"): list, ord("}"): dict, ord(")"): tuple}
_TEXT_SIZES = {0x8C: _BYTE, ord("X"): _UINT, 0x8D: _ULONG}
_LONG_SIZES = {0x8A: _BYTE, 0x8B: _INT}
_TUPLES = {0x85: 1, 0x86: 2, 0x87: 3}
_PUTS = {ord("q"): _BYTE, ord("r"): _UINT}
_GETS = {ord("h"): _BYTE, ord("j"): _UINT}


def recognises(head: bytes) -> bool:
    """Whether bytes begin like a pickle of protocol 2 to 5."""
    return len(head) > 2 and head[0] == 0x80 and head[1] in _PROTOCOLS


def read_pickle(data: bytes, limits: Limits = DEFAULTS) -> Any:
    """The value of a pickle of plain data; raises UnreadableEvidence on anything else, and beyond the limits."""
    if not recognises(data):
        raise UnreadableEvidence("not a pickle of protocol 2 to 5", code="damaged-pickle")
    if len(data) > limits.file_bytes:
        raise UnreadableEvidence(
            f"{len(data)} bytes; {limits.file_bytes} are read (limit file_bytes)", code="too-large"
        )
    try:
        value = _Machine(data, limits.containers).run()
    except (IndexError, KeyError, struct.error, UnicodeDecodeError) as error:
        raise UnreadableEvidence(
            "not a pickle: it ends early or refers to what it never held", code="damaged-pickle"
        ) from error
    _check(value, limits)
    return value


class _Mark:
    """Where a run of items begins on the stack."""


class _Machine:
    """The stack machine; its memory is bounded by the pickle's size, because each instruction adds one value at most."""

    def __init__(self, data: bytes, most: int) -> None:
        self._data, self._left = data, most
        self._at = 2  # behind the protocol
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def run(self) -> Any:
        """Runs to the STOP instruction and returns the one value left."""
        while (code := self._byte()) != ord("."):
            self._step(code)
        if len(self._stack) != 1 or self._stack[0] is _Mark:
            raise UnreadableEvidence("not a pickle: it stops with more or less than one value", code="damaged-pickle")
        return self._stack[0]

    def _step(self, code: int) -> None:
        stack = self._stack
        if code in _GETS:
            stack.append(self._memo[self._take(_GETS[code])])
        elif code in _PUTS:
            self._memo[self._take(_PUTS[code])] = stack[-1]
        elif code in _UNPACKED:
            stack.append(self._take(_UNPACKED[code]))
        elif code in _CONSTANTS:
            stack.append(_CONSTANTS[code])
        elif code in _TEXT_SIZES:
            stack.append(self._bytes(self._take(_TEXT_SIZES[code])).decode("utf-8"))
        elif code in _LONG_SIZES:
            stack.append(self._long(self._take(_LONG_SIZES[code])))
        elif code in _EMPTY:
            self._hold(_EMPTY[code]())
        elif code in _TUPLES:
            items = tuple(self._pop() for _ in range(_TUPLES[code]))
            self._hold(items[::-1])
        elif code == ord("("):
            stack.append(_Mark)
        else:
            self._gather(code)

    def _gather(self, code: int) -> None:
        """The instructions that fill a container, and those that only concern the writing."""
        match code:
            case 0x94:  # MEMOIZE
                self._memo[len(self._memo)] = self._stack[-1]
            case 0x95:  # FRAME, a hint for buffering
                self._take(_ULONG)
            case 0x61:  # APPEND
                self._extend([self._pop()])
            case 0x65:  # APPENDS
                self._extend(self._run_of_items())
            case 0x73:  # SETITEM
                value, key = self._pop(), self._pop()
                self._update([key, value])
            case 0x75:  # SETITEMS
                self._update(self._run_of_items())
            case 0x74:  # TUPLE
                self._hold(tuple(self._run_of_items()))
            case 0x6C:  # LIST
                self._hold(self._run_of_items())
            case 0x64:  # DICT
                items = self._run_of_items()
                self._hold({})
                self._update(items)
            case _:
                name = _REFUSED.get(code, f"0x{code:02x}")
                raise UnreadableEvidence(
                    f"a pickle with the instruction {name} at byte {self._at - 1}: no plain data", code="unsafe-content"
                )

    def _hold(self, container: Any) -> None:
        self._left -= 1
        if self._left < 0:
            raise UnreadableEvidence("holds too many lists and dictionaries (limit containers)", code="too-many")
        self._stack.append(container)

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _take(self, form: struct.Struct) -> Any:
        (value,) = form.unpack_from(self._data, self._at)
        self._at += form.size
        return value

    def _bytes(self, size: int) -> bytes:
        if not 0 <= size <= len(self._data) - self._at:
            raise IndexError
        piece = self._data[self._at : self._at + size]
        self._at += size
        return piece

    def _long(self, size: int) -> int:
        if not 0 <= size <= _WIDEST:
            raise UnreadableEvidence(f"a pickle with a number of {size} bytes; {_WIDEST} are read", code="too-large")
        return int.from_bytes(self._bytes(size), "little", signed=True)

    def _pop(self) -> Any:
        value = self._stack.pop()
        if value is _Mark:
            raise IndexError
        return value

    def _run_of_items(self) -> list[Any]:
        """The values above the last mark, which they leave the stack with."""
        at = len(self._stack) - 1
        while self._stack[at] is not _Mark:
            at -= 1
            if at < 0:
                raise IndexError
        items = self._stack[at + 1 :]
        del self._stack[at:]
        return items

    def _extend(self, items: list[Any]) -> None:
        if not isinstance(self._stack[-1], list):
            raise UnreadableEvidence("not a pickle: it appends to what is no list", code="damaged-pickle")
        self._stack[-1].extend(items)

    def _update(self, items: list[Any]) -> None:
        target = self._stack[-1]
        if not isinstance(target, dict) or len(items) % 2:
            raise UnreadableEvidence("not a pickle: it sets items of what is no dictionary", code="damaged-pickle")
        for key, value in zip(items[::2], items[1::2], strict=True):
            if not isinstance(key, str | int):
                raise UnreadableEvidence("a pickle with a key that is neither text nor number", code="unsafe-content")
            target[key] = value


_CONTAINERS = (list, tuple, dict)


def _check(value: object, limits: Limits) -> None:
    """Raises UnreadableEvidence where the value is deeper than the limit, holds itself, or is too large written out in full.

    Shared parts count each time they are used: what walks the value later does not know that they are shared.
    """
    if isinstance(value, _CONTAINERS):
        _measure(value, limits.depth, limits.values, {})


def _measure(value: Any, room: int, most: int, known: dict[int, tuple[int, int]]) -> tuple[int, int]:
    """Size and height of a container that may be `room` levels high; each part is measured once."""
    size, height = known.get(id(value), (0, 1))
    if height > room:  # what holds itself comes to this too
        raise UnreadableEvidence("nested deeper than its limit, or holds itself (limit depth)", code="too-deep")
    if size:
        return size, height
    size = 1 + len(value)
    for child in value.values() if type(value) is dict else value:
        if type(child) in _CONTAINERS:
            inner, levels = _measure(child, room - 1, most, known)
            size += inner
            height = max(height, levels + 1)
    if size > most:
        raise UnreadableEvidence(f"holds more than {most} values (limit values)", code="too-many")
    known[id(value)] = size, height
    return size, height
