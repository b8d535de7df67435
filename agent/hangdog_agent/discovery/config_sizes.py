"""Reads a job's parallel sizes from the configuration file that its command line names; nothing else of it is kept.

JSON as DeepSpeed's, TOML as torchtitan's, YAML as Megatron's, accelerate's and Lightning's. Of YAML only lines are read that give a
name a number: no library for it is among the agent's packages. Sections about other models than the one that trains are passed over.
"""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from hangdog_agent.discovery.command_line import CONFIGS, OTHER_MODELS, SIZES
from hangdog_models.ranks import MAX_RANK
from hangdog_models.reading.printable import printable

#: The largest file that is read: one with a comment on each of a thousand options has as much.
BYTES = 64 << 10
#: Values looked at, and how deep they may lie.
_MOST, _DEEP = 10_000, 20
_LINE = re.compile(r"""( *)(?:- )?["']?([A-Za-z_][\w.-]{0,99})["']? *:(?: +["']?(\d{1,9})["']?)? *(?:#.*)?""", re.ASCII)
#: Sizes under names that mean something in their section only: DeepSpeed's stages, and nanotron's.
_IN_SECTIONS = {"pipeline.stages": "pp"} | {f"parallelism.{dim}": dim for dim in ("tp", "cp", "ep", "pp")}
#: Where a file says that what it is composed of goes before it, as Hydra's do whose list has more behind `_self_`.
_COMPOSED = re.compile(r"^( *)- +_self_ *(?:#.*)?\n(?: *(?:#.*)?\n)*\1- ", re.MULTILINE)
#: Megatron's other order of ranks, which sizes alone do not tell.
_OTHER_ORDER = re.compile(r"""use[_-]tp[_-]pp[_-]dp[_-]mapping["']? *[:=] *true""", re.IGNORECASE)
#: Characters of a file's name that are told.
NAME = 60


@dataclass(frozen=True, slots=True)
class ConfigSizes:
    """What a file says: `sizes` by dimension, and `given` names that gave them; `contradicted` are given twice, differently.

    `problem` is why nothing could be read of it, in words.
    """

    name: str
    sizes: Mapping[str, int] = field(default_factory=dict)
    given: tuple[str, ...] = ()
    contradicted: tuple[str, ...] = ()
    problem: str = ""


def read(path: str, data: bytes) -> ConfigSizes:
    """Reads a whole file, by the ending of its name."""
    name = printable(PurePath(path).name, NAME)
    if len(data) > BYTES:
        return ConfigSizes(name, problem=f"it is larger than {BYTES >> 10} KiB")
    text = data.decode("utf-8", "replace")
    if _COMPOSED.search(text):
        return ConfigSizes(name, problem="other files go before it")
    if _OTHER_ORDER.search(text):
        return ConfigSizes(name, problem="it has ranks in another order than tensor, data, pipeline")
    try:
        values = list(_values(PurePath(path).suffix.lower(), text))
    except (ValueError, RecursionError):
        return ConfigSizes(name, problem="it is not what the ending of its name says")
    sizes: dict[str, int] = {}
    given: list[str] = []
    contradicted: set[str] = set()
    for where, value in values:
        key = where[-1].rpartition(".")[2].replace("-", "_")
        dim = _IN_SECTIONS.get(".".join(where[-2:])) or SIZES.get(key)
        if dim is None or not 0 < value <= MAX_RANK or any(OTHER_MODELS.search(part.lower()) for part in where):
            continue
        if sizes.setdefault(dim, value) != value:
            contradicted.add(dim)
        given.append(key)
    return ConfigSizes(name, sizes, tuple(dict.fromkeys(given)), tuple(sorted(contradicted)))


def _values(suffix: str, text: str) -> Iterator[tuple[tuple[str, ...], int]]:
    """The whole numbers of a file, each with the names that lead to it; raises ValueError when it is none of its kind."""
    assert suffix in CONFIGS
    if suffix in (".yaml", ".yml"):
        return _of_lines(text)
    return _of_tree(json.loads(text) if suffix == ".json" else tomllib.loads(text))


def _of_tree(tree: Any) -> Iterator[tuple[tuple[str, ...], int]]:
    left: list[tuple[tuple[str, ...], Any]] = [((), tree)]
    for _ in range(_MOST):
        if not left:
            return
        where, value = left.pop()
        if type(value) is int and where:
            yield where, value
        elif isinstance(value, dict) and len(where) < _DEEP:
            left += [((*where, str(key)), below) for key, below in reversed(value.items())]


def _of_lines(text: str) -> Iterator[tuple[tuple[str, ...], int]]:
    above: list[tuple[int, str]] = []
    for line in text.splitlines()[:_MOST]:
        found = _LINE.fullmatch(line)
        if found is None:
            continue
        while above and above[-1][0] >= len(found[1]):
            above.pop()
        if found[3] is not None:
            yield (*(name for _, name in above), found[2]), int(found[3])
        elif len(above) < _DEEP:
            above.append((len(found[1]), found[2]))
