"""How unequal the shares of experts are by nature: some are asked more often than others, and each time differently."""

from functools import lru_cache
from random import Random

from accuracy.simulator.groups import Group

#: How unequal the members of an expert group are for good, and from one operation to the next: standard deviations of logarithms.
FOR_GOOD, EACH_TIME = 0.35, 0.15
#: How often capacity is fixed instead: tokens are dropped and padded, so that all get the same.
PADDED = 0.25
#: Elements of one token, of which only whole ones travel.
TOKEN = 4096


class Experts:
    """The shares of one job. `salt`: what makes it another than the next one."""

    def __init__(self, salt: int) -> None:
        self._salt = salt
        self._padded = Random(f"{salt} experts").random() < PADDED
        self._shares = lru_cache(maxsize=1 << 10)(self._drawn)

    def elements(self, group: Group, member: int, number: int, mean: int) -> int:
        """What a member gets in operation `number` of its group, in which members get `mean` elements in the mean.

        Nothing is lost: what all get is what all send.
        """
        members = len(group.ranks)
        shares, tokens = self._shares(group.name, members, number), members * mean // TOKEN
        before, after = (round(tokens * sum(shares[:end]) / members) for end in (member, member + 1))
        return (after - before) * TOKEN + mean % TOKEN

    def _drawn(self, name: str, members: int, number: int) -> tuple[float, ...]:
        if self._padded:
            return (1.0,) * members
        lasting, once = Random(f"{self._salt} experts of {name}"), Random(f"{self._salt} experts of {name} in {number}")
        asked = [lasting.lognormvariate(0.0, FOR_GOOD) * once.lognormvariate(0.0, EACH_TIME) for _ in range(members)]
        whole = sum(asked)
        return tuple(often * members / whole for often in asked)
