"""Damages seeds, the same for the same seed of chance."""

import json
import random
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

from fuzzing.seeds import SEEDS

#: Bytes of an input at most.
LARGEST = 1 << 14
_PIECES = (
    b"\x00", b"\n", b"\r", b"\x1b[31m", b"-1", b"18446744073709551616", b"99999999999999999999999999", b"1e999", b"[", b"]",
    b"{", b"}", b'"', b"'", b",", b":", b"(", b")", b"<", b" " * 300, b"#" * 50, b"[rank", b"null", b"true", b"\xff\xfe",
    b"\xed\xa0\x80", "é\u2028\U0010ffff".encode(), b"NaN", b"\\u0000", b"0x", b"%s", b"../", b"=", b"[PG ", b"Rank 1",
)  # fmt: skip
_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1 << 63, 1 << 70, 1.5, float("inf"), "", "x", "-1", "7", "[0, 1]", "a" * 5000, "\x00\x1b[2J", [],
    {}, [[]], [None], [3, 4], {"a": 1}, ["0", "d"], [[1 << 40] * 30],
)  # fmt: skip


def inputs(name: str, seed: int) -> Iterator[bytes]:
    """Endless inputs for a target, the same for the same seed."""
    chance = random.Random(f"{name} {seed}")
    seeds = SEEDS[name]
    others = [written(given) for given in seeds]
    while True:
        at = chance.randrange(len(seeds))
        given = seeds[at]
        if isinstance(given, dict | list) and chance.random() < 0.8:
            yield json.dumps(_changed(given, chance, chance.randrange(1, 6)))[:LARGEST].encode()
        else:
            yield _mutated(others[at], others, chance)[:LARGEST]


def written(seed: object) -> bytes:
    return seed if isinstance(seed, bytes) else seed.encode() if isinstance(seed, str) else json.dumps(seed).encode()


def _mutated(data: bytes, others: list[bytes], chance: random.Random) -> bytes:
    """Some changes of bytes: a piece put in, cut out, doubled, overwritten, or the rest of another seed."""
    for _ in range(chance.randrange(1, 8)):
        at, end = sorted((chance.randrange(len(data) + 1), chance.randrange(len(data) + 1)))
        end = min(end, at + chance.choice((1, 4, 40, 400)))
        match chance.randrange(6):
            case 0:
                data = data[:at] + chance.choice(_PIECES) + data[at:]
            case 1:
                data = data[:at] + data[end:]
            case 2:
                data = data[:end] + data[at:end] * chance.randrange(1, 4) + data[end:]
            case 3:
                data = data[:at] + chance.choice(_PIECES) + data[end:]
            case 4:
                data = data[:at] + bytes([chance.randrange(256)]) + data[at + 1 :]
            case _:
                other = chance.choice(others)
                data = data[:at] + other[chance.randrange(len(other) + 1) :]
    return data


def _changed(value: Any, chance: random.Random, times: int) -> Any:
    """A copy of a document with values replaced, removed, doubled or renamed."""
    value = deepcopy(value)
    for _ in range(times):
        holders = [holder for holder in _holders(value) if len(holder)]
        if not holders:
            break
        holder = chance.choice(holders)
        key = chance.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
        match chance.randrange(4):
            case 0:
                del holder[key]
            case 1 if isinstance(holder, list):
                holder.append(deepcopy(holder[key]))
            case 1:
                holder[chance.choice(("x", "", "0", "rank", "entries"))] = deepcopy(holder[key])
            case _:
                holder[key] = deepcopy(chance.choice(_VALUES))
    return value


def _holders(value: Any) -> Iterator[Any]:
    if isinstance(value, dict | list):
        yield value
        for child in value.values() if isinstance(value, dict) else value:
            yield from _holders(child)
