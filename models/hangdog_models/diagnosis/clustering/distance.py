"""The distance between two stacks as call sites: 0 is the same one, 1 surely another one.

What counts is where two stacks diverge for good. Frames that differ before the stacks meet again (a helper, another
layer, one more level of recursion) count little. A difference that few ranks of the same stage have counts much, be it
a missing frame or an extra one.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log2

from hangdog_models.diagnosis.observe.activity import RankState
from hangdog_models.rules.ruleset import last_component

#: One frame as compared: function and file, without the line.
Step = tuple[str, str]
#: A stack as compared: the steps to what the rank does, outermost first. Each step is kept once, at its last position:
#: the depth of a recursion and the turns of a loop over layers are removed.
Path = tuple[Step, ...]

#: Distance below which two stacks are one call site. The weights below are set so that one doubtful frame stays below
#: it.
CUT = 0.5
#: Weight of a frame that half of the ranks have, and of one that a single rank has or lacks.
COMMON, RARE = 0.4, 1.0
#: The factor on a frame's weight when the stacks meet again further in: inserted on one side only, or in place of
#: another. Three rare helpers stay below the cut of 0.5; two rare branches, `train` and `evaluate`, do not.
INSERTED, INSTEAD = 0.12, 0.65
#: The factor when the other stack has the same frame in another order.
SHIFTED = 0.02
#: The factor when the two go through different layers of a module tree: before the stacks meet again, and for good. In
#: the second case a single rank in a layer without others stays alone.
LAYER, LAYER_LAST = 0.15, 0.3
#: The factor on additional innermost frames: if a rule says that both are in one operation, and if none does. In the
#: latter case a frame of four of 64 ranks stays below the cut, and one at which a single rank ends does not.
DEEPER, DEEPER_UNKNOWN = 0.3, 0.6
#: The factor if rules name operation and process group of both: they do the same thing with the same ranks.
AGREED = 0.5
#: From this rarity on, a single shared frame between different ones is no meeting point: both just call the same
#: helper.
PASSING = 0.3
#: So many different frames of a stack are compared, the innermost ones: real stacks have 10 to 40.
DEEPEST = 100

#: Innermost frames that only sleep: their callers are the call site.
SLEEPS = {"wait", "_wait", "wait_for", "acquire", "sleep", "select", "poll", "_poll", "epoll_wait", "do_poll", "ppoll"}
SLEEPS |= {"futex", "futex_wait", "nanosleep", "clock_nanosleep", "sched_yield", "clock_gettime", "pthread_cond_wait"}


def path(state: RankState) -> Path:
    """The path of a state that has a signature: it ends at its label, the frame that calls the operation.

    How a library waits inside an operation is not part of the call site.
    """
    kept = state.signature.kept if state.signature else ()
    steps = [(last_component(frame.name), frame.place) for frame in kept]
    end = len(steps)
    if state.operation is not None:
        end = next((at + 1 for at in range(len(steps) - 1, -1, -1) if steps[at][0] == state.label), end)
    while end > 1 and steps[end - 1][0] in SLEEPS:
        end -= 1
    once = tuple(dict.fromkeys(reversed(steps[:end])))[:DEEPEST]
    return once[::-1]


@dataclass(frozen=True, slots=True)
class Rarity:
    """How rare it is among the ranks of one stage to have a frame, and to lack it: 0 for all ranks, 1 for a single one."""

    ranks: int
    having: Mapping[Step, int]
    ending: Mapping[Step, int]

    def of_having(self, step: Step) -> float:
        return self._surprise(self.having.get(step, 0))

    def of_ending(self, step: Step) -> float:
        """The rarity of having it as the innermost frame.

        A rank alone one call above the crowd has no frame of its own.
        """
        return self._surprise(self.ending.get(step, 0))

    def of_lacking(self, step: Step) -> float:
        return self._surprise(self.ranks - self.having.get(step, 0))

    def _surprise(self, ranks: int) -> float:
        """Bits that say a rank is one of these, as a share of the bits that name a single rank."""
        return log2(self.ranks / ranks) / log2(self.ranks) if self.ranks > 1 and ranks > 0 else 0.0


@dataclass(frozen=True, slots=True)
class StackFeatures:
    """A path as seen in one stage: the rarity of its frames there, and which of its own steps are rare."""

    path: Path
    rarity: Rarity
    where: Mapping[Step, int]
    having: tuple[float, ...]
    ending: float

    @classmethod
    def among(cls, steps: Path, rarity: Rarity) -> "StackFeatures":
        having = tuple(rarity.of_having(step) for step in steps)
        return cls(steps, rarity, {step: at for at, step in enumerate(steps)}, having, rarity.of_ending(steps[-1]))


def distance(one: StackFeatures, other: StackFeatures, *, operation: bool, group: bool) -> float:
    """The distance of two paths, 0 to 1; symmetric.

    `operation`, `group`: rules name it for both, and it is the same. Takes n log n time in the length of the paths.
    """
    if one.path == other.path:
        return 0.0
    if other.path < one.path:  # among equally long alignments, take the same one in both directions
        one, other = other, one
    cost = _cost(one, other, DEEPER if operation else DEEPER_UNKNOWN)
    return min(1.0, cost * (AGREED if group else 1.0))


def _cost(one: StackFeatures, other: StackFeatures, deeper: float) -> float:
    """What lies between the steps that the paths share, gap by gap; at the last, innermost gap they diverge for good."""
    ends = (len(one.path), len(other.path))
    cost = 0.0
    at = to = 0
    for end, stop in (*_meetings(one, other), ends):
        if (end, stop) != (at, to):
            last = (end, stop) == ends
            lone = [i for i in range(at, end) if one.path[i] not in other.where]
            instead = [i for i in range(to, stop) if other.path[i] not in one.where]
            weight = sum(_weight(one, i, other) for i in lone) + sum(_weight(other, i, one) for i in instead)
            if not lone or not instead:
                alone = COMMON + (RARE - COMMON) * max(one.ending, other.ending)
                weight = deeper * max(weight, alone) if last else INSERTED * weight
            elif _layers([one.path[i] for i in lone], [other.path[i] for i in instead]):
                weight *= LAYER_LAST if last else LAYER
            elif not last:
                weight *= INSTEAD
            cost += weight + SHIFTED * (end - at - len(lone) + stop - to - len(instead))
        at, to = end + 1, stop + 1
    return cost


def _weight(one: StackFeatures, at: int, other: StackFeatures) -> float:
    """The weight of a step that the other path lacks."""
    return COMMON + (RARE - COMMON) * max(one.having[at], other.rarity.of_lacking(one.path[at]))


def _layers(one: Sequence[Step], other: Sequence[Step]) -> bool:
    """Whether these are two layers of a module tree.

    Step by step they have the same function of other files (`forward`), or another function of the same file.
    """
    if len(one) != len(other):
        return False
    pairs = list(zip(one, other, strict=True))
    return any(a[0] == b[0] for a, b in pairs) and all(a[0] == b[0] or a[1] == b[1] for a, b in pairs)


def _meetings(one: StackFeatures, other: StackFeatures) -> list[tuple[int, int]]:
    """Where the paths meet: their shared steps, without single rare ones between steps that they do not share."""
    shared = _shared(one.path, other.where)
    ends = {(-1, -1), *shared, (len(one.path), len(other.path))}
    return [
        (at, to)
        for at, to in shared
        if min(one.having[at], other.having[to]) < PASSING or (at - 1, to - 1) in ends or (at + 1, to + 1) in ends
    ]


def _shared(one: Path, where: Mapping[Step, int]) -> list[tuple[int, int]]:
    """A longest common subsequence as ascending pairs of indices: as steps are unique, a longest increasing one."""
    ends: list[int] = []  # of the best sequence of each length, its last index in the other path
    chain: list[tuple[int, int, int]] = []  # index in `one`, in the other, and the link before it
    tips: list[int] = []
    for at, step in enumerate(one):
        to = where.get(step)
        if to is not None:
            length = bisect_left(ends, to)
            ends[length : length + 1] = [to]
            tips[length : length + 1] = [len(chain)]
            chain.append((at, to, tips[length - 1] if length else -1))
    pairs: list[tuple[int, int]] = []
    link = tips[-1] if tips else -1
    while link >= 0:
        at, to, link = chain[link]
        pairs.append((at, to))
    return pairs[::-1]
