"""Applies the rules to a signature: what is done there, what it waits for, in which group, and called from where."""

import re
import sys
from dataclasses import dataclass
from functools import lru_cache

from hangdog_models.diagnosis.observe.canonicalise import Signature, canonicalise
from hangdog_models.rules.ruleset import Rule, RuleSet, last_component
from hangdog_models.stack import Frame

#: Files of torch.distributed's own operations: their caller says more than they do.
_FRONT_DOORS = ("distributed_c10d.py", "_functional_collectives.py", "torch/_ops.py")
#: Code of torch and of loaders, and what Python waits by. Called inside a library's own wait, it is not the program's
#: code. The exception is a loader without workers: it reads and collates batches in the rank itself.
_LIBRARY = re.compile(
    r"(?:.*/)?(?:torch/(?!utils/data/(?!dataloader\.py))|ray/|grain/_src/|asyncio/|multiprocess(?:ing)?/"
    r"|(?:threading|queue|selectors|concurrent/futures/_base|fairseq/data/iterators|accelerate/data_loader)\.py)"
)
#: Files of Python code. Some tools write libraries and binaries in their place.
_PYTHON = re.compile(r".*\.pyc?$|<")
#: Where an interpreter keeps its library, and below it what was installed.
_INSTALLED = re.compile(r"/python3\.\d{1,2}/")
#: Names that many unrelated functions have.
_TELLS_NOTHING = {"wrapper", "wrapped", "inner", "fn", "call", "unwrap"}


@dataclass(frozen=True, slots=True)
class CallSite:
    """A signature, understood.

    - `rule`: None where no rule matches. Then `label`, the innermost frame, is all that is set.
    - `caller`: the index of the frame that `label` names; -1 where there is none.
    """

    signature: Signature
    rule: Rule | None
    operation: str | None
    dim: str | None
    label: str
    caller: int = -1


@lru_cache(maxsize=1 << 16)  # thousands of ranks are at tens of call sites
def place_of(frames: tuple[Frame, ...], rules: RuleSet) -> CallSite:
    """The call site of one thread; `frames` run from the outermost call to the innermost."""
    signature = canonicalise(frames, rules)
    rule, at = _doing(signature, rules)
    if rule is None:
        return CallSite(signature, None, None, None, *_label(signature, _past_python(signature)))
    door = _door(signature, at, rule)
    operation = rule.operation or last_component(signature.frames[door].name)
    return CallSite(
        signature, rule, operation, rule.dim or _group(signature, at, operation, rules), *_label(signature, door)
    )


def _doing(signature: Signature, rules: RuleSet) -> tuple[Rule | None, int]:
    """The deciding rule and the index of its frame: the innermost strong rule, else the innermost weak one."""
    weak: tuple[Rule | None, int] = (None, -1)
    innermost, called = True, False
    for at in range(len(signature.frames) - 1, -1, -1):
        written = signature.frames[at]
        if not written.kept and written.rule != "native below Python":
            continue
        for rule in rules.doing:
            if (rule.innermost and not innermost) or (rule.leaf and called):
                continue
            if not rule.matches(written.frame, written.name):
                continue
            if not rule.weak:
                return rule, at
            if weak[0] is None:
                weak = (rule, at)
        if written.kept:
            innermost = False
            called = called or _is_of_the_program(written.frame)
    return weak


def _is_of_the_program(frame: Frame) -> bool:
    return bool(_PYTHON.match(frame.file)) and not _LIBRARY.match(frame.file)


def _door(signature: Signature, at: int, rule: Rule) -> int:
    """The frame at which the operation was entered.

    It is the outermost of the adjoining frames that match the rule of frame `at`. So `all_gather_object` names the
    operation, not its inner `all_gather`, and its caller is the user's.
    """
    door = at
    for outer in range(at - 1, -1, -1):
        written = signature.frames[outer]
        if written.kept:
            if not rule.matches(written.frame, written.name):
                break
            door = outer
    return door


def _group(signature: Signature, at: int, operation: str, rules: RuleSet) -> str | None:
    """The parallel dimension of the innermost caller that a group rule matches. A weak rule yields to one further out."""
    weak = None
    groups = [rule for rule in rules.group if not rule.operations or operation in rule.operations]
    for written in reversed(signature.frames[: at + 1]):
        if any(rule.boundary and rule.matches(written.frame, written.name) for rule in (*rules.drop, *rules.doing)):
            return weak
        if written.kept:
            rule = next((rule for rule in groups if rule.matches(written.frame, written.name)), None)
            if rule is not None and not rule.weak:
                return rule.dim
            weak = weak or (rule.dim if rule else None)
    return weak


def _past_python(signature: Signature) -> int:
    """The index after the innermost frame that is not of Python's own library: who called `select` tells more than it does."""
    for at in range(len(signature.frames) - 1, -1, -1):
        written = signature.frames[at]
        if written.kept and not of_standard_library(written.frame):
            return at + 1
    return len(signature.frames)


def of_standard_library(frame: Frame) -> bool:
    """Whether a frame is of Python's own library, by its path: whole, or without the folder of its interpreter."""
    if (installed := _INSTALLED.search(frame.file)) is not None:
        return not frame.file.startswith(("site-packages/", "dist-packages/"), installed.end())
    return frame.file.partition("/")[0].removesuffix(".py") in sys.stdlib_module_names


def _label(signature: Signature, at: int) -> tuple[str, int]:
    """The innermost kept frame with a telling name that calls the operation, outside of torch.distributed."""
    plain = ("", -1)
    for caller in range(at - 1, -1, -1):
        written = signature.frames[caller]
        if written.kept and not written.frame.file.endswith(_FRONT_DOORS):
            name = last_component(written.name)
            if not name.startswith(("__", "<")) and name not in _TELLS_NOTHING:
                return name, caller
            plain = plain if plain[0] else (name, caller)
    return plain
