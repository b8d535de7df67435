"""What native stacks of the few ranks that are asked for add to a verdict: `python bench/native.py`, some ten minutes.

Each simulated incident is judged by its Python stacks; where the planner asks for native stacks, those ranks alone are given
them, and it is judged again.
"""

import argparse
from collections import Counter

from accuracy.measure import Score, of_verdict, score
from accuracy.simulator.incident import Evidence
from accuracy.simulator.make import default_set, incident
from hangdog_models.diagnosis.judge import diagnose
from hangdog_models.planning.native import deciding
from hangdog_models.planning.native_depth import deepen
from hangdog_models.rules.ruleset import packaged

#: As the server's settings have them.
MOST, EACH = 32, 2


def main() -> None:
    """Prints a line for each family of faults, and each incident whose verdict changed."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--ranks", type=int, default=128, help="the largest job")
    options.add_argument("--every", type=int, default=2, help="one incident in so many of the default set")
    chosen = options.parse_args()
    rules = packaged()
    tables: dict[str, Counter[str]] = {}
    for number, (seed, ranks, fault) in enumerate(default_set()):
        if number % chosen.every or ranks > chosen.ranks:
            continue
        one = incident(seed, ranks, fault)
        plain = one.snapshots[Evidence.STACKS]
        if len(plain.rounds) < 2 or Evidence.NATIVE not in one.snapshots:
            continue
        before = after = diagnose(plain, one.topology)
        wanted = {choice.rank for choice in deciding(plain, one.topology, before, MOST, EACH)}
        if wanted:
            last = one.snapshots[Evidence.NATIVE].rounds[-1].traces
            deeper = deepen(plain, wanted, [trace for trace in last if trace.rank in wanted], rules)
            after = diagnose(deeper.snapshot, one.topology)
        table = tables.setdefault(one.truth.family, Counter())
        table.update(incidents=1, asked=int(bool(wanted)), ranks=len(wanted))
        scores = [score(of_verdict(verdict), one.truth) for verdict in (before, after)]
        for when, weighed in zip(("before", "after"), scores, strict=True):
            table[f"right {when}"] += bool(weighed.right)
            table[f"false {when}"] += wrong(weighed)
            table[f"evicted wrongly {when}"] += weighed.wrong
        if (before.kind, wrong(scores[0])) != (after.kind, wrong(scores[1])):
            told = (f"{verdict.kind} {verdict.confidence:.2f}" for verdict in (before, after))
            print(f"{fault} ({ranks} ranks, seed {seed}): {' -> '.join(told)}; truth: {' or '.join(one.truth.kinds)}")
    total: Counter[str] = Counter()
    for family, table in sorted(tables.items()):
        total.update(table)
        print(f"{family:12}", *(f"{name} {count}" for name, count in table.items()), sep="  ")
    print(f"{'all':12}", *(f"{name} {count}" for name, count in total.items()), sep="  ")


def wrong(weighed: Score) -> bool:
    """Names a cause, and not the true one."""
    return not weighed.right and not weighed.abstained


if __name__ == "__main__":
    main()
