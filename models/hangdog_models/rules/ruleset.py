"""Rule sets: dated knowledge of frameworks, one file each in `frames/`, merged and matched against frames."""

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import translate
from functools import cache
from importlib import resources
from typing import Any

from hangdog_models.errors import OurFault
from hangdog_models.stack import Frame
from hangdog_models.verdict import Activity


class Wait(StrEnum):
    """What an activity waits for."""

    NONE = "none"  # no rank: the culprit's kind
    GROUP = "group"  # the members of one process group that have not joined
    PEER = "peer"  # the other end of a point-to-point operation
    STORE = "store"  # the ranks that have not reached start-up
    SOME = "some"  # some other rank, in an operation that the frames do not name


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of a rule file. Fields that do not belong to its table keep their defaults.

    - `weak`: yields to any strong rule further out.
    - `innermost`: matches only the innermost Python frame.
    - `boundary`: callers beyond it do not name the process group: a module's collective is not its pipeline schedule's.
    - `leaf`: does not match if the program's own code is called from inside of it, such as a hook during backward.
    - `polls`: such a wait wakes by a timer of its own, so that it is woken does not show that anything arrives.
    - `operations`: the rule names the process group of these operations only; of all if none is given.
    """

    name: str
    applies: str
    matches: Callable[[Frame, str], bool]
    activity: Activity = Activity.UNKNOWN
    operation: str | None = None
    wait: Wait = Wait.NONE
    dim: str | None = None
    weak: bool = False
    innermost: bool = False
    boundary: bool = False
    leaf: bool = False
    polls: bool = False
    operations: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)  # compared by identity: it is a key of caches
class RuleSet:
    """The rules of one file, or of several merged. `layer`: 0 runtimes, 1 training frameworks, 2 what is built on those.

    `name` is the file's, `torch@2026-11`; of a merged set all names, in the order in which they are asked.
    """

    name: str
    layer: int
    drop: tuple[Rule, ...]
    doing: tuple[Rule, ...]
    group: tuple[Rule, ...]


def parse(text: str) -> RuleSet:
    """Reads the text of a rule file; raises OurFault if a rule is not valid."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise OurFault(f"rule file: {error}", code="damaged-rules") from error
    try:
        return RuleSet(
            document["name"],
            int(document["layer"]),
            *(
                tuple(_rule(row, document.get("namespace", "")) for row in document.get(table, ()))
                for table in ("drop", "doing", "group")
            ),
        )
    except (KeyError, ValueError, TypeError) as error:
        raise OurFault(f"rule file {document.get('name')!r}: {error}", code="damaged-rules") from error


def merge(sets: Iterable[RuleSet]) -> RuleSet:
    """One set of several: the upper layers are asked first, for they know best what a call of theirs means; then by name."""
    ordered = sorted(sets, key=lambda one: (-one.layer, one.name))
    tables = (tuple(rule for one in ordered for rule in getattr(one, table)) for table in ("drop", "doing", "group"))
    return RuleSet(" ".join(one.name for one in ordered), max((one.layer for one in ordered), default=0), *tables)


@cache
def packaged() -> RuleSet:
    """All rule sets that ship with hangdog, merged: of each framework the newest one."""
    folder = resources.files(__package__).joinpath("frames")
    files = newest(file.name for file in folder.iterdir() if file.name.endswith(".toml"))
    return merge(parse(folder.joinpath(name).read_text(encoding="utf-8")) for name in files)


def newest(files: Iterable[str]) -> list[str]:
    """Of each framework's files, `torch@2026-11.toml`, the one of the latest date."""
    return list({name.partition("@")[0]: name for name in sorted(files)}.values())


def last_component(function: str) -> str:
    """`Condition.wait`, `a.<locals>.wrapper`, `ns::f` without what qualifies them: naming habits differ between tools."""
    return re.split(r"\.|::", function)[-1]


def _rule(row: Mapping[str, Any], namespace: str) -> Rule:
    known = {
        "rule",
        "applies",
        "activity",
        "operation",
        "wait",
        "dim",
        "weak",
        "innermost",
        "boundary",
        "leaf",
        "polls",
        "operations",
        "native",
        "files",
        "functions",
    }
    if unknown := set(row) - known:
        raise ValueError(f"rule {row.get('rule')!r} has unknown keys {sorted(unknown)}")
    return Rule(
        name=row["rule"],
        applies=row["applies"],
        matches=_matcher(
            row.get("files", ()), row.get("functions", ()), native=row.get("native", False), namespace=namespace
        ),
        activity=Activity(row.get("activity", "unknown")),
        operation=row.get("operation"),
        wait=Wait(row.get("wait", "none")),
        dim=row.get("dim"),
        weak=row.get("weak", False),
        innermost=row.get("innermost", False),
        boundary=row.get("boundary", False),
        leaf=row.get("leaf", False),
        polls=row.get("polls", False),
        operations=tuple(row.get("operations", ())),
    )


def _matcher(
    files: Sequence[str], functions: Sequence[str], *, native: bool, namespace: str
) -> Callable[[Frame, str], bool]:
    if not files and not functions:
        raise ValueError("a rule names files or functions")
    ends = [rf"(?:.*/)?{translate(glob)}" for glob in files]
    shortened = [glob.removeprefix(f"{namespace}/") for glob in files if namespace and glob.startswith(f"{namespace}/")]
    # a bare file name says too little
    whole = [translate(glob) for glob in shortened if "/" in glob]
    in_file = re.compile("|".join(ends + whole) or ".*", re.DOTALL).match
    names = "|".join(translate(glob) for glob in functions) or ".*"
    # compiled for the first frame of one of the files: few rules meet any
    of_function: Callable[[str], object] | None = None

    def matches(frame: Frame, name: str) -> bool:
        """`name` is the frame's function as canonicalise writes it: without template and call arguments."""
        nonlocal of_function
        if frame.native is not native or not in_file(frame.file):
            return False
        if of_function is None:
            of_function = re.compile(names, re.DOTALL).match
        short = name if native else last_component(name)
        return bool(of_function(short) or (native and of_function(last_component(name))))

    return matches
