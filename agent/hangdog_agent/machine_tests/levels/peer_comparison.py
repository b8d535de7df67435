"""What levels 1 and 4 share: whether devices that did the same work have the same bits as each other and as stored answers."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hangdog_agent.machine_tests.level import Conviction, Outcome, Result, Sort
from hangdog_models.planning.alignment import Answer, Digests, compare


def doubted(answers: Sequence[Answer], golden: Mapping[str, Digests]) -> set[str]:
    """Those that a second run must confirm."""
    return {odd.name for cohort in compare(answers, golden) for odd in cohort.odd}


def beside(
    level: int, answers: Sequence[Answer], again: Sequence[Answer], golden: Mapping[str, Digests], repetitions: int
) -> list[Result]:
    """Whether devices agree with each other and with what is stored; who does not in a second run either is convicted."""
    results = []
    seconds = {answer.name: answer for answer in again}
    for cohort in compare(answers, golden):
        passed = Result(
            level, "alignment", Outcome.PASS, "", digests=cohort.usual, key=cohort.key, repetitions=repetitions
        )
        if cohort.open:
            mine = answers[0].digests if len(answers) == 1 else {}
            # alone and without a stored answer there was nothing to fail: the digests are for others to compare
            outcome = Outcome.PASS if len(answers) == 1 and cohort.key not in golden else Outcome.INCONCLUSIVE
            words = f"bits of {', '.join(a.name for a in answers if a.key == cohort.key)}: {cohort.open}"
            results.append(replace(passed, outcome=outcome, words=words, digests=mine))
        for odd in cohort.odd:
            items, first = f"{len(odd.items)} tensors, the first {odd.items[0]}", ", ".join(odd.items[:4])
            words = f"{odd.name} computes other bits than {_called(cohort.agreed)}: {items}"
            second = seconds.get(odd.name)
            if second is not None and any(second.digests.get(item) != cohort.usual.get(item) for item in odd.items):
                convicted = (Conviction(Sort.DEVICE, (odd.name,)),)
                words += "; in a second run, too"
                results.append(
                    replace(passed, outcome=Outcome.FAIL, words=words, convicts=convicted, evidence=(first,))
                )
            else:
                words += "; once, and not confirmed"
                results.append(replace(passed, outcome=Outcome.INCONCLUSIVE, words=words, evidence=(first,)))
        if cohort.agreed and not cohort.odd:
            words = f"{_called(cohort.agreed)} computed the same bits"
            results.append(replace(passed, words=words))
    return results


def _called(agreed: Sequence[str]) -> str:
    return ", ".join(agreed[:8]) + (f" and {len(agreed) - 8} more" if len(agreed) > 8 else "") or "the stored answer"
