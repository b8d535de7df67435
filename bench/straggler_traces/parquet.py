"""Reads the columns of a Parquet file as the published traces are written: one row group, no nulls, dictionaries, Snappy.

Enough of the format (github.com/apache/parquet-format) for files of pyarrow with plain columns. Anything else is refused
by name, so nothing is read wrongly. It spares the benchmark, and the tests that judge the traces, a package of 50 MB.
"""

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MAGIC: Final = b"PAR1"
#: Codes of the format: encodings of values, kinds of pages, compressions.
PLAIN, PLAIN_DICTIONARY, RLE_DICTIONARY = 0, 2, 8
DATA_PAGE, DICTIONARY_PAGE = 0, 2
UNCOMPRESSED, SNAPPY = 0, 1
#: How fixed-width values are packed, by their physical type; type 6 is a byte array.
PACKED: Final = {1: "i", 2: "q", 4: "f", 5: "d"}
BYTE_ARRAY = 6
#: An optional column writes before its values which of them are there.
OPTIONAL = 1

#: A Thrift struct: its values by their field numbers.
Struct = dict[int, object]
Value = int | float | str


class StrangeFile(Exception):
    """A file that is no Parquet, or uses what is not read here."""


def columns(path: Path) -> dict[str, list[Value]]:
    """The columns of the file by name, each with one value for each row."""
    data = path.read_bytes()
    if len(data) < 12 or data[:4] != MAGIC or data[-4:] != MAGIC:
        raise StrangeFile(f"{path.name} is no Parquet file")
    size = int.from_bytes(data[-8:-4], "little")
    footer = _Thrift(data, len(data) - 8 - size).struct()
    leaves = [_struct(one) for one in _list(footer[2])][1:]
    groups = [_struct(one) for one in _list(footer[4])]
    if len(groups) != 1:
        raise StrangeFile(f"{path.name} has {len(groups)} row groups; one is read")
    chunks = [_struct(_struct(one)[3]) for one in _list(groups[0][1])]
    found = {
        _text(leaf[4]): _column(data, chunk, leaf.get(3) == OPTIONAL)
        for leaf, chunk in zip(leaves, chunks, strict=True)
    }
    if {len(values) for values in found.values()} != {_int(footer[3])}:
        raise StrangeFile(f"{path.name} has columns of other lengths than its {footer[3]} rows, or missing values")
    return found


def _column(data: bytes, chunk: Struct, optional: bool) -> list[Value]:
    kind, codec, expected = _int(chunk[1]), _int(chunk[4]), _int(chunk[5])
    at = min(_int(chunk[number]) for number in (9, 11) if number in chunk)
    dictionary: list[Value] = []
    values: list[Value] = []
    while len(values) < expected:
        reader = _Thrift(data, at)
        header = reader.struct()
        at = reader.at + _int(header[3])
        page = _unpacked(data[reader.at : at], codec)
        if header[1] == DICTIONARY_PAGE:
            dictionary = _plain(page, kind, _int(_struct(header[7])[1]))
        elif header[1] == DATA_PAGE:
            about = _struct(header[5])
            count, encoding = _int(about[1]), _int(about[2])
            if optional:
                size = int.from_bytes(page[:4], "little")
                if not all(_runs(page[4 : 4 + size], 1, count)):
                    raise StrangeFile("a column with missing values")
                page = page[4 + size :]
            if encoding in (PLAIN_DICTIONARY, RLE_DICTIONARY):
                values.extend(dictionary[number] for number in _runs(page[1:], page[0], count))
            elif encoding == PLAIN:
                values.extend(_plain(page, kind, count))
            else:
                raise StrangeFile(f"values in encoding {encoding}")
        else:
            raise StrangeFile(f"a page of kind {header[1]}")
    return values


def _plain(page: bytes, kind: int, count: int) -> list[Value]:
    if kind in PACKED:
        return list(struct.unpack_from(f"<{count}{PACKED[kind]}", page))
    if kind != BYTE_ARRAY:
        raise StrangeFile(f"values of physical type {kind}")
    values: list[Value] = []
    at = 0
    for _ in range(count):
        size = int.from_bytes(page[at : at + 4], "little")
        values.append(page[at + 4 : at + 4 + size].decode())
        at += 4 + size
    return values


def _runs(data: bytes, width: int, count: int) -> list[int]:
    """Numbers of `width` bits: runs of equal ones between groups of eight packed ones."""
    values: list[int] = []
    reader = _Thrift(data, 0)
    mask, wide = (1 << width) - 1, (width + 7) // 8
    while len(values) < count:
        header = reader.varint()
        if header & 1:
            groups = header >> 1
            packed = int.from_bytes(reader.take(groups * width), "little")
            values.extend((packed >> (width * place)) & mask for place in range(8 * groups))
        else:
            values.extend([int.from_bytes(reader.take(wide), "little")] * (header >> 1))
    return values[:count]


def _unpacked(page: bytes, codec: int) -> bytes:
    if codec == UNCOMPRESSED:
        return page
    if codec != SNAPPY:
        raise StrangeFile(f"compression {codec}")
    return _snappy(page)


def _snappy(packed: bytes) -> bytes:
    """Snappy's raw format: literals, and copies of what came before."""
    reader = _Thrift(packed, 0)
    expected = reader.varint()
    out = bytearray()
    while reader.at < len(packed):
        tag = reader.take(1)[0]
        kind, size = tag & 3, (tag >> 2) + 1
        if kind == 0:
            if size > 60:
                size = int.from_bytes(reader.take(size - 60), "little") + 1
            out += reader.take(size)
            continue
        if kind == 1:
            size, back = ((tag >> 2) & 7) + 4, (tag >> 5 << 8) | reader.take(1)[0]
        else:
            back = int.from_bytes(reader.take(2 if kind == 2 else 4), "little")
        if not 0 < back <= len(out):
            raise StrangeFile("a copy from before the beginning")
        piece = bytes(out[len(out) - back : len(out) - back + size])
        out += (piece * (size // len(piece) + 1))[:size]
    if len(out) != expected:
        raise StrangeFile(f"a page of {len(out)} bytes that says {expected}")
    return bytes(out)


@dataclass(slots=True)
class _Thrift:
    """Thrift's compact protocol, in which the file describes itself."""

    data: bytes
    at: int

    def take(self, size: int) -> bytes:
        piece = self.data[self.at : self.at + size]
        if len(piece) < size:
            raise StrangeFile("the file ends in the middle of something")
        self.at += size
        return piece

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def struct(self) -> Struct:
        return dict(self._fields())

    def _fields(self) -> Iterator[tuple[int, object]]:
        number = 0
        while header := self.take(1)[0]:
            number = number + (header >> 4) if header >> 4 else self._signed()
            yield number, self._value(header & 15)

    def _signed(self) -> int:
        number = self.varint()
        return (number >> 1) ^ -(number & 1)

    def _value(self, kind: int) -> object:
        if kind in (1, 2):  # a truth value is in its field's header
            return kind == 1
        readers: dict[int, Callable[[], object]] = {
            3: lambda: self.take(1)[0],
            4: self._signed, 5: self._signed, 6: self._signed,
            7: lambda: struct.unpack("<d", self.take(8))[0],
            8: lambda: self.take(self.varint()),
            9: self._items,
            12: self.struct,
        }  # fmt: skip
        if kind not in readers:
            raise StrangeFile(f"a value of Thrift type {kind}")
        return readers[kind]()

    def _items(self) -> list[object]:
        header = self.take(1)[0]
        size = header >> 4 if header >> 4 < 15 else self.varint()
        return [self._value(header & 15) for _ in range(size)]


def _struct(value: object) -> Struct:
    if not isinstance(value, dict):
        raise StrangeFile("a struct is missing")
    return value


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise StrangeFile("a list is missing")
    return value


def _int(value: object) -> int:
    if not isinstance(value, int):
        raise StrangeFile("a number is missing")
    return value


def _text(value: object) -> str:
    if not isinstance(value, bytes):
        raise StrangeFile("a name is missing")
    return value.decode()
