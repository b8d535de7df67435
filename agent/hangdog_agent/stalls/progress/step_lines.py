"""Finds the step lines in a job's log: by the job's own pattern, else by lines that recur and count.

A line's skeleton is its words, with every number masked; lines of one skeleton in which one number grows are a counter.
Only where the word before that number names it a step is it surely the job's progress: uptimes and waiting times grow, too.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

#: Characters looked at of a line: a step's number stands early, and a line may be the dump of a tensor.
LINE = 400
#: Skeletons remembered; a log has tens that recur, and any number that do not.
_SKELETONS = 64
#: So many times a number must have grown, without falling, to be a counter.
_GROWN = 4
#: A number that grows so many times as often as the one that steps are counted by takes its place: batches, not epochs.
_FURTHER = 2
#: Ranks that share a log are at one step or at the next one: a whole number may fall by so much.
_SLACK = 1.0
#: Words and numbers kept of a line.
_TOKENS = 48
#: Lines read of what was appended, 0.1 ms each; none after a step line.
_LINES = 32
#: Larger ones are times since 1970, addresses, or sizes.
_LARGEST = 1e9
#: Times of day and dates are one token; then numbers, then words. What stands between them (bars, brackets) is passed over.
_TOKEN = re.compile(r"\d+(?::\d+)+(?:[.,]\d+)?|\d{4}[-/]\d\d[-/]\d\d|\d+(?:\.\d+)?|[A-Za-z_]+", re.ASCII)
_NUMBER = re.compile(r"\d+(?:\.\d+)?", re.ASCII)
#: Colour codes of a terminal; their letter would run into the next word.
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_END = re.compile(r"[\r\n]")
_NAMES = frozenset({"step", "steps", "iter", "iters", "iteration", "iterations", "epoch", "batch"})


@dataclass(frozen=True, slots=True)
class StepLine:
    """Whether new lines hold an advance of anything that counts, and whether it surely is one of the job's steps."""

    counted: bool = False
    stepped: bool = False


@dataclass(slots=True)
class _Counter:
    """One number of a skeleton: its largest value, its last, how often it grew, and by how much in `total`.

    `named`: a word calls it a step.
    """

    named: bool
    most: float | None
    last: float | None
    grown: int = 0
    total: float = 0.0

    def take(self, value: float | None) -> bool:
        """Whether this value is an advance."""
        moved, self.last = value != self.last, value
        if value is None or self.most is None:
            self.most = value
            return False
        counts = self.grown >= _GROWN
        if value > self.most:
            self.total += value - self.most
            self.most = value
            self.grown += 1
        elif value < self.most - (_SLACK if value.is_integer() else 0.0):
            self.total += value
            self.most = value  # it starts again, as the batches of an epoch do; or it never was a counter
            self.grown = self.grown if counts else 0
        return moved and self.grown >= _GROWN


@dataclass(slots=True)
class StepLines:
    """The step lines of one log. `pattern` is the job's own; until it has matched once, lines are learned.

    `steps` is how far the job has come since it was first seen: by the number that is named a step and grew most often. Where
    another one takes its place it begins at 0 again. Of a pattern the lines are counted.
    """

    pattern: re.Pattern[str] | None = None
    steps: float = 0.0
    _matched: bool = False
    _rest: str = ""
    _skeletons: dict[tuple[str, ...], list[_Counter]] = field(default_factory=dict)
    _main: _Counter | None = None

    def take(self, text: str, joins: bool = True) -> StepLine:
        """Takes what was appended. Not `joins`: what lies before it was left out, so its first line may lack its front."""
        lost = self._matched and not joins
        reported = self._read(text, joins)
        if lost:  # how many lines were left out is not known: the count starts again
            self.steps = 0.0
        return reported

    def _read(self, text: str, joins: bool) -> StepLine:
        lines = _END.split((self._rest if joins else "") + text)
        self._rest = lines.pop()[:LINE]
        counted = False
        for number, line in enumerate(lines if joins else lines[1:]):
            reported = self._line(_COLOUR.sub("", line[:LINE]))
            counted |= reported.counted
            if reported.stepped and self._matched:
                self.steps += self._matching((lines if joins else lines[1:])[number + 1 :])
            if reported.stepped or number >= _LINES:
                return StepLine(counted, reported.stepped)
        return StepLine(counted)

    def _matching(self, lines: list[str]) -> int:
        """How many lines the job's own pattern matches."""
        if self.pattern is None:
            return 0
        return sum(self.pattern.search(_COLOUR.sub("", line[:LINE])) is not None for line in lines)

    def _line(self, line: str) -> StepLine:
        if self.pattern is not None and self.pattern.search(line):
            self.steps = self.steps + 1 if self._matched else 0.0
            self._matched = True
            return StepLine(counted=True, stepped=True)
        if self._matched:
            return StepLine()
        advanced = self._learned(line)
        named = [counter for counter in advanced if counter.named]
        for counter in named:
            self._count(counter)
        return StepLine(bool(advanced), bool(named))

    def _count(self, counter: _Counter) -> None:
        if counter is self._main:
            self.steps = counter.total
        elif self._main is None or counter.grown > _FURTHER * self._main.grown:
            self._main, counter.total, self.steps = counter, 0.0, 0.0

    def _learned(self, line: str) -> list[_Counter]:
        tokens = [token for token, _ in zip(_TOKEN.findall(line), range(_TOKENS), strict=False)]
        values = {place: _value(token) for place, token in enumerate(tokens) if _NUMBER.fullmatch(token)}
        if not values:
            return []
        skeleton = tuple("0" if place in values else _masked(token) for place, token in enumerate(tokens))
        counters = self._skeletons.pop(skeleton, None)
        if counters is not None:
            self._skeletons[skeleton] = counters  # the latest last
            return [each for value, each in zip(values.values(), counters, strict=True) if each.take(value)]
        if len(self._skeletons) >= _SKELETONS:
            del self._skeletons[next(self._idle(), next(iter(self._skeletons)))]
        self._skeletons[skeleton] = [
            _Counter(place > 0 and skeleton[place - 1].rpartition("_")[2] in _NAMES, value, value)
            for place, value in values.items()
        ]
        return []

    def _idle(self) -> Iterator[tuple[str, ...]]:
        """The skeletons that count nothing, the one seen longest ago first."""
        return (key for key, each in self._skeletons.items() if all(counter.grown < _GROWN for counter in each))


def _masked(token: str) -> str:
    return "@" if token[0].isdigit() else token.lower()


def _value(number: str) -> float | None:
    """None for what counts no steps."""
    value = float(number[:20])
    return value if value < _LARGEST else None
