"""Reads a signature by the rules: what is being done there, for whom it waits, in which group, called from where."""

import re
from dataclasses import dataclass
from functools import lru_cache

from hangdog_models.diagnosis.observe.canonicalise import Signature, canonicalise
from hangdog_models.rules.ruleset import Rule, RuleSet, last_component
from hangdog_models.stack import Frame

#: Where torch.distributed's own operations live: their caller tells more than they do.
_FRONT_DOORS = ("distributed_c10d.py", "_functional_collectives.py", "torch/_ops.py")
#: Code of torch and of loaders, and what Python waits by: called from inside of a library's own waits, it is no code of the
#: program. What a loader does without workers of its own is: it reads and puts batches together in the rank itself.
_LIBRARY = re.compile(
    r"(?:.*/)?(?:torch/(?!utils/data/(?!dataloader\.py))|ray/|grain/_src/|asyncio/|multiprocess(?:ing)?/"
    r"|(?:threading|queue|selectors|concurrent/futures/_base|fairseq/data/iterators|accelerate/data_loader)\.py)"
)
#: Files of Python code. Some tools write libraries and programs of the machine in their place.
_PYTHON = re.compile(r".*\.pyc?$|<")
#: Names that a thousand different functions bear.
_TELLS_NOTHING = {"wrapper", "wrapped", "inner", "fn", "call", "unwrap"}


@dataclass(frozen=True, slots=True)
class CallSite:
    """One stack, understood. `rule` is None where no rule knows it; then only `label`, the innermost frame, is set.

    `caller` is the index of the frame that bears the label, -1 where none does.
    """

    signature: Signature
    rule: Rule | None
    operation: str | None
    dim: str | None
    label: str
    caller: int = -1


@lru_cache(maxsize=1 << 16)  # thousands of ranks stand in tens of places
def place_of(frames: tuple[Frame, ...], rules: RuleSet) -> CallSite:
    """The place of one thread; `frames` run from the outermost call to the innermost."""
    signature = canonicalise(frames, rules)
    rule, at = _doing(signature, rules)
    if rule is None:
        return CallSite(signature, None, None, None, *_label(signature, len(signature.frames)))
    door = _door(signature, at, rule)
    operation = rule.operation or last_component(signature.frames[door].name)
    return CallSite(
        signature, rule, operation, rule.dim or _group(signature, at, operation, rules), *_label(signature, door)
    )


def _doing(signature: Signature, rules: RuleSet) -> tuple[Rule | None, int]:
    """The rule that tells the activity and the index of its frame: innermost strong rule, else innermost weak one."""
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
    """Where the operation was entered: the outermost of the adjoining frames under the same rule as frame `at`.

    So `all_gather_object` names the operation, not its inner `all_gather`, and its caller is the user's.
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
    """The parallel dimension of the innermost caller that a group rule knows; a weak rule yields to one further out."""
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


def _label(signature: Signature, at: int) -> tuple[str, int]:
    """The innermost kept frame with a telling name that calls into the operation, outside of its own front door."""
    plain = ("", -1)
    for caller in range(at - 1, -1, -1):
        written = signature.frames[caller]
        if written.kept and not written.frame.file.endswith(_FRONT_DOORS):
            name = last_component(written.name)
            if not name.startswith(("__", "<")) and name not in _TELLS_NOTHING:
                return name, caller
            plain = plain if plain[0] else (name, caller)
    return plain
