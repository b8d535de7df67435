"""Which machine or device computed other bits than its peers: digests of equal work, compared by majority or a golden
answer.

Rules of the field, by ByteRobust's bit-wise alignment (cuBLAS promises equal bits for one version, architecture and
number of SMs):

- Only answers under the same key are compared.
- Three make a majority. Two that differ need a third or a golden answer.
- Without a majority, key or software differ, and none is convicted.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

#: Members from which a majority counts: if two differ, either may be right.
FEWEST = 3

#: Digest of each item of the work, by the item's name.
Digests = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class GoldenAnswer:
    """The computed digests. `key` names all that the bits may depend on: device model, libraries, sizes."""

    name: str
    key: str
    digests: Digests


@dataclass(frozen=True, slots=True)
class Odd:
    """A member that computed otherwise, and in which items, in computing order."""

    name: str
    items: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Cohort:
    """The answers under one key. `agreed`: members with the right answer. `open`: why no answer counts as right."""

    key: str
    agreed: tuple[str, ...] = ()
    odd: tuple[Odd, ...] = ()
    open: str = ""
    usual: Digests = field(default_factory=dict)


def compare(
    answers: Sequence[GoldenAnswer], golden: Mapping[str, Digests] | None = None, fewest: int = FEWEST
) -> tuple[Cohort, ...]:
    """One cohort for each key, in order of appearance. `golden` holds stored answers by exactly equal keys.

    A golden answer that none of several members reproduces is more likely wrong itself: it convicts none.
    """
    keys = dict.fromkeys(answer.key for answer in answers)
    return tuple(
        _cohort(key, [answer for answer in answers if answer.key == key], (golden or {}).get(key), fewest)
        for key in keys
    )


def _cohort(key: str, answers: Sequence[GoldenAnswer], golden: Digests | None, fewest: int) -> Cohort:
    if not all(answer.digests for answer in answers):
        return Cohort(key, open="somebody gave no digests")
    classes = Counter(_whole(answer.digests) for answer in answers)
    (usual, most), *_ = classes.most_common(1)
    if golden is not None:
        stored = _whole(golden)
        if stored in classes or len(answers) == 1:
            return _split(key, answers, stored)
        return Cohort(key, open=f"none of {len(answers)} computed the stored answer: that may be what is wrong")
    if len(answers) == 1:
        return Cohort(key, open="there is nobody to compare it with")
    if most == len(answers) or (len(answers) >= fewest and 2 * most > len(answers)):
        return _split(key, answers, usual)
    if len(answers) < fewest:
        return Cohort(key, open=f"{len(answers)} that differ: another must tell who is right")
    return Cohort(key, open=f"{len(answers)} gave {len(classes)} answers, none of them more than half")


def _whole(digests: Digests) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(digests.items()))


def _split(key: str, answers: Sequence[GoldenAnswer], usual: tuple[tuple[str, str], ...]) -> Cohort:
    right = dict(usual)
    agreed = tuple(answer.name for answer in answers if _whole(answer.digests) == usual)
    odd = tuple(
        Odd(answer.name, tuple(item for item in dict.fromkeys([*answer.digests, *right])
                               if answer.digests.get(item) != right.get(item)))
        for answer in answers if _whole(answer.digests) != usual
    )  # fmt: skip
    return Cohort(key, agreed, odd, usual=right)
