"""Tests one device: its memory by patterns, its multiplications by checksums, its speed by repetition."""

from __future__ import annotations

import time
from collections import Counter
from functools import lru_cache
from typing import Any

import torch

from hangdog_agent.machine_tests.programs.device import digest, key, steady, uniform, wait
from hangdog_agent.machine_tests.programs.report_line import ReportLines

#: Bit patterns of 64 bits: all cells low, all high, and neighbours that differ, both ways round.
_PATTERNS = (0, -1, 0x5555555555555555, -0x5555555555555556)
#: 64-bit words tested in one piece.
_PIECE = 1 << 22
#: Faults whose place is told: a broken row shows as many more.
_REPORTED = 4
#: Non-zero factors of a row of exact operands: their sums stay below 2**8, which bfloat16 holds exactly.
_FACTORS = 16
#: Scales of the operands by regime; the others have 1. Half precision ends at 65,504: two large ones would be infinite there.
_SCALES = {"small": (1e-3, 1e-3), "large": (1e3, 1e3)}
_LARGE_HALF = (1e3, 1e-2)
#: Rows of a product that the host checks at a time: the check in double precision shall not need the memory of the product.
_ROWS = 1024
#: Repetitions whose time does not count: the first load kernels, and clocks rise.
_WARM = 3


def memory(stated: ReportLines, device: str, size: int, passes: int) -> dict[str, Any]:
    """Writes patterns to `size` bytes and reads them back: another value in a cell is a fault of the memory or its path."""
    words = max(1, size // 8)
    pieces = [torch.empty(min(_PIECE, words - at), dtype=torch.int64, device=device) for at in range(0, words, _PIECE)]
    wrong: list[dict[str, Any]] = []
    count = 0
    for turn in range(passes):
        for name in (*_PATTERNS, "address"):
            stated.at(f"memory of {device}, pass {turn}, pattern {name}")
            for number, piece in enumerate(pieces):
                _write(piece, name, number * _PIECE)
            wait(device)
            for number, piece in enumerate(pieces):
                bad, places = _read(piece, name, number * _PIECE)
                count += bad
                wrong += places[: _REPORTED - len(wrong)]
    return {"bytes": words * 8, "passes": passes, "count": count, "wrong": wrong}


def _write(piece: Any, pattern: int | str, start: int) -> None:
    if isinstance(pattern, int):
        piece.fill_(pattern)
    else:
        torch.arange(start, start + piece.numel(), dtype=torch.int64, device=piece.device, out=piece)


def _read(piece: Any, pattern: int | str, start: int) -> tuple[int, list[dict[str, Any]]]:
    if isinstance(pattern, int):
        places = (piece != pattern).nonzero().view(-1)
    else:
        places = (piece != torch.arange(start, start + piece.numel(), device=piece.device)).nonzero().view(-1)
    reported = [
        {"word": start + at, "wanted": pattern if isinstance(pattern, int) else start + at, "was": int(piece[at])}
        for at in places[:_REPORTED].tolist()
    ]
    return int(places.numel()), reported


def operands(regime: str, kind: Any, size: int) -> tuple[Any, Any]:
    """Two matrices made on the host, equal everywhere. Products of `exact` ones are exact in any order and any type."""
    pair = _drawn(regime if regime in ("exact", "ones") else "uniform", size)
    scales = _LARGE_HALF if (regime, kind) == ("large", torch.float16) else _SCALES.get(regime, (1.0, 1.0))
    left, right = (each if scale == 1.0 else each * scale for each, scale in zip(pair, scales, strict=True))
    return left.to(kind), right.to(kind)


@lru_cache(maxsize=1)  # the host takes longer to draw them than a device to multiply them
def _drawn(how: str, size: int) -> tuple[Any, Any]:
    """What operands of several regimes and all types are made from."""
    maker = torch.Generator().manual_seed(20261101)
    if how == "exact":
        left = torch.zeros(size, size)
        columns = torch.randint(0, size, (size, min(_FACTORS, size)), generator=maker)
        left.scatter_(1, columns, torch.randint(0, 2, columns.shape, generator=maker).float() * 2 - 1)
        return left, torch.randint(-8, 9, (size, size), generator=maker).float()
    if how == "ones":
        ones = torch.ones(size, size)
        return ones, ones
    return uniform(maker, size, size), uniform(maker, size, size)


def wrong_rows(product: Any, left: Any, right: Any, exact: bool) -> list[int]:
    """Freivalds' check on the host in double precision: rows r where (C x)[r] is not (A (B x))[r], x random and never zero.

    Exact products allow no difference at all; others one of rounding at most, by the bound of each row.
    """
    size = product.shape[0]
    maker = torch.Generator().manual_seed(7)
    x = (torch.randint(1, 1000, (size, 2), generator=maker) * 2 - 1).double()
    over_b, over_b_size = torch.empty_like(x), torch.empty_like(x)
    for at in range(0, size, _ROWS):
        b = right[at : at + _ROWS].double()
        over_b[at : at + _ROWS] = b @ x
        over_b_size[at : at + _ROWS] = b.abs_() @ x.abs()
    sums, kind = size * torch.finfo(torch.float32).eps, torch.finfo(product.dtype)
    least = x.abs().sum(dim=0) * kind.tiny * kind.eps  # of numbers so small that all have the same distance
    found: list[int] = []
    for at in range(0, size, _ROWS):
        c, a = product[at : at + _ROWS].double(), left[at : at + _ROWS].double()
        error = (c @ x - a @ over_b).abs()
        limit = 0.0 if exact else (a.abs_() @ over_b_size) * sums + (c.abs_() @ x.abs()) * kind.eps + least
        within = (error <= limit).all(dim=1)  # not a number is never within
        found += [at + row for row in (~within).nonzero().view(-1).tolist()]
    return found


def multiply(stated: ReportLines, device: str, name: str, regime: str, size: int, repetitions: int) -> dict[str, Any]:
    """The same product again and again: its bits must not change, and the host must find it right by another way."""
    stated.at(f"{name} products of {device}, {regime} operands")
    left, right = operands(regime, getattr(torch, name), size)
    there_left, there_right = left.to(device), right.to(device)
    digests: Counter[str] = Counter()
    wrong: list[dict[str, Any]] = []
    wavers = False
    first, usual = None, ""
    for turn in range(repetitions):
        product = torch.mm(there_left, there_right)
        wait(device)
        # most are compared where they are, for hashing takes the host far longer than a product takes an accelerator
        if first is not None and turn < repetitions - 1 and torch.equal(product, first):
            digests[usual] += 1
            continue
        here = product.to("cpu")
        mark = digest(here)
        digests[mark] += 1
        if first is None:
            first, usual = product, mark
        if digests[mark] == 1 and len(digests) <= _REPORTED:
            rows = wrong_rows(here, left, right, regime == "exact")
            if rows:
                wavers |= rows != wrong_rows(here, left, right, regime == "exact")
                wrong.append({"digest": mark, "rows": rows[:_REPORTED], "count": len(rows)})
    reported = [{"digest": mark, "times": times} for mark, times in digests.most_common(_REPORTED)]
    kinds = {"type": name, "regime": regime, "size": size, "repetitions": repetitions}
    return {**kinds, "digests": reported, "kinds": len(digests), "wrong": wrong, "host wavers": wavers}


def speed(stated: ReportLines, device: str, name: str, size: int, repetitions: int) -> dict[str, Any]:
    """How long one product takes, again and again; in seconds."""
    stated.at(f"speed of {device}")
    left, right = (each.to(device) for each in operands("ordinary", getattr(torch, name), size))
    seconds = []
    for turn in range(_WARM + repetitions):
        began = time.perf_counter()
        torch.mm(left, right)
        wait(device)
        if turn >= _WARM:
            seconds.append(time.perf_counter() - began)
    return {"type": name, "size": size, "operations": 2 * size**3, "seconds": seconds}


def _cohort(device: str, asked: dict[str, Any]) -> str:
    return ", ".join([key(device, __file__), f"products of {asked['size']}", *asked["types"], *asked["regimes"]])


def _bytes(device: str, asked: dict[str, Any]) -> int:
    if not device.startswith("cuda"):
        return int(asked["memory_bytes"])
    free, _ = torch.cuda.mem_get_info(device)
    return int(free * asked["memory_share"])


def main() -> None:
    stated = ReportLines()
    asked = stated.asked
    device = asked["device"]
    stated.at(f"start of {device}")
    steady(asked["threads"])
    repetitions = asked["repetitions"]
    report: dict[str, Any] = {"device": device, "key": _cohort(device, asked)}
    if "memory" in asked["tests"]:
        report["memory"] = memory(stated, device, _bytes(device, asked), asked["memory_passes"])
    if "gemm" in asked["tests"]:
        report["gemm"] = [
            multiply(stated, device, name, regime, asked["size"], repetitions)
            for regime in asked["regimes"]
            for name in asked["types"]
        ]
    if "speed" in asked["tests"]:
        report["speed"] = speed(stated, device, asked["types"][0], asked["size"], asked["speed_repetitions"])
    stated.found(report)


if __name__ == "__main__":
    main()
