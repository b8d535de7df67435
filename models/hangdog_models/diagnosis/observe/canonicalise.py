"""Writes a stack down so that ranks at one call site read the same. Each dropped frame keeps the reason it was dropped."""

import re
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b

from hangdog_models.rules.ruleset import RuleSet
from hangdog_models.stack import Frame

#: Longest function name kept, in characters. pybind11 symbols reach 3,469, and only their head says anything.
MAX_NAME = 200

_ADDRESS = re.compile(r"0x[0-9a-fA-F]+$|\?\?$")
_CLONE = re.compile(r"\s*\[clone [^\]]*\]|\.(?:constprop|isra|part|cold|lto_priv)(?:\.\d+)*|@@?[A-Z][A-Za-z_]*[\d.]*$")
_OPERATORS = re.compile(r"operator(?:\(\)|<=>|<<=?|>>=?|<=?|>=?|->\*?)")


@dataclass(frozen=True, slots=True)
class CanonicalFrame:
    """One frame, its canonical name, and whether it belongs to the signature. `rule` names the rule that dropped it."""

    frame: Frame
    name: str
    kept: bool
    rule: str | None = None

    def __str__(self) -> str:
        return f"{self.name} ({self.frame.module if self.frame.native else self.frame.file})"

    @property
    def place(self) -> str:
        """The part of its path that is equal on all hosts; for a native frame, of its library's path."""
        return _place(self.frame)


@dataclass(frozen=True, slots=True)
class Signature:
    """Where a thread is: its kept frames, outermost first, and their identity under one rule set.

    Line numbers are not part of it: one call site showed four of them in one job. `frames` holds them to compare
    rounds.
    """

    frames: tuple[CanonicalFrame, ...]
    digest: str

    @property
    def kept(self) -> tuple[CanonicalFrame, ...]:
        return tuple(frame for frame in self.frames if frame.kept)

    @property
    def innermost(self) -> tuple[str, str]:
        """Function and file of the innermost kept frame; empty texts where none is kept."""
        return self.places[-1] if self.places else ("", "")

    @property
    def places(self) -> tuple[tuple[str, str], ...]:
        """Function and file of each kept frame, outermost first."""
        return tuple((frame.name, _place(frame.frame)) for frame in self.frames if frame.kept)

    def written(self) -> tuple[str, ...]:
        """The kept frames as text for people, outermost first."""
        return tuple(str(frame) for frame in self.frames if frame.kept)


def canonicalise(frames: tuple[Frame, ...], rules: RuleSet) -> Signature:
    """The signature of one thread.

    Equal call sites have equal digests on every machine, under one rule set.
    """
    python = any(not frame.native for frame in frames)
    written = tuple(_canonical(frame, rules, python) for frame in frames)
    digest = blake2b(rules.name.encode(), digest_size=16)
    for frame in written:
        if frame.kept:
            digest.update(f"\x1e{frame.name}\x1f{_place(frame.frame)}".encode("utf-8", "surrogatepass"))
    return Signature(written, digest.hexdigest())


@lru_cache(maxsize=1 << 16)
def _canonical(frame: Frame, rules: RuleSet, python: bool) -> CanonicalFrame:
    name = native_name(frame.function) if frame.native else frame.function[:MAX_NAME]
    if frame.native and _ADDRESS.match(frame.function):
        return CanonicalFrame(frame, name, kept=False, rule="bare address")
    if frame.native and python:
        # Which native frames a capture shows depends on its mode. They decide the activity; Python frames decide the
        # call site.
        return CanonicalFrame(frame, name, kept=False, rule="native below Python")
    for rule in rules.drop:
        if rule.matches(frame, name):
            return CanonicalFrame(frame, name, kept=False, rule=rule.name)
    return CanonicalFrame(frame, name, kept=True)


def native_name(symbol: str) -> str:
    """A demangled C++ symbol without template arguments, call arguments, clone marks and version suffixes.

    Brackets are counted, because templates hold lambdas and `(anonymous namespace)`.
    """
    text = _CLONE.sub("", symbol).replace("(anonymous namespace)::", "").replace("{lambda", "lambda{")
    text = _OPERATORS.sub(lambda match: "operator", text)
    out: list[str] = []
    depth = 0
    for letter in text:
        if letter in "<({":
            depth += 1
        elif letter in ">)}":
            depth = max(0, depth - 1)
        elif depth == 0:
            out.append(letter)
            if len(out) >= MAX_NAME:
                break
    plain = "".join(out).replace(" const", "").strip()
    return plain.split(" ")[-1] if plain else symbol[:MAX_NAME]


def _place(frame: Frame) -> str:
    """The part of a path that is equal on all hosts: from the package's topmost folder on."""
    path = frame.module or frame.file if frame.native else frame.file
    for anchor in ("/site-packages/", "/dist-packages/"):
        if anchor in path:
            return path.rsplit(anchor, 1)[1]
    return path if not path.startswith("/") else path.rsplit("/", 1)[1]
