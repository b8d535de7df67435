"""What levels 1 and 4 share: whether devices that did the same work have the same bits as each other and as stored answers."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hangdog_agent.machine_tests.level import LevelOutcome, LevelResult, MachineConviction, PartKind
from hangdog_models.planning.alignment import Digests, GoldenAnswer, compare


def doubted(answers: Sequence[GoldenAnswer], golden: Mapping[str, Digests]) -> set[str]:
    """Those that a second run must confirm."""
    return {odd.name for cohort in compare(answers, golden) for odd in cohort.odd}


def beside(
    level: int,
    answers: Sequence[GoldenAnswer],
    again: Sequence[GoldenAnswer],
    golden: Mapping[str, Digests],
    repetitions: int,
) -> list[LevelResult]:
    """Whether devices agree with each other and with what is stored; who does not in a second run either is convicted."""
    results = []
    seconds = {answer.name: answer for answer in again}
    for cohort in compare(answers, golden):
        passed = LevelResult(
            level, "alignment", LevelOutcome.PASS, "", digests=cohort.usual, key=cohort.key, repetitions=repetitions
        )
        if cohort.open:
            mine = answers[0].digests if len(answers) == 1 else {}
            # alone and without a stored answer there was nothing to fail: the digests are for others to compare
            outcome = LevelOutcome.PASS if len(answers) == 1 and cohort.key not in golden else LevelOutcome.INCONCLUSIVE
            words = f"bits of {', '.join(a.name for a in answers if a.key == cohort.key)}: {cohort.open}"
            results.append(replace(passed, outcome=outcome, message=words, digests=mine))
        for odd in cohort.odd:
            items, first = f"{len(odd.items)} tensors, the first {odd.items[0]}", ", ".join(odd.items[:4])
            words = f"{odd.name} computes other bits than {_called(cohort.agreed)}: {items}"
            second = seconds.get(odd.name)
            if second is not None and any(second.digests.get(item) != cohort.usual.get(item) for item in odd.items):
                convicted = (MachineConviction(PartKind.DEVICE, (odd.name,)),)
                words += "; in a second run, too"
                results.append(
                    replace(passed, outcome=LevelOutcome.FAIL, message=words, convicts=convicted, evidence=(first,))
                )
            else:
                words += "; once, and not confirmed"
                results.append(replace(passed, outcome=LevelOutcome.INCONCLUSIVE, message=words, evidence=(first,)))
        if cohort.agreed and not cohort.odd:
            words = f"{_called(cohort.agreed)} computed the same bits"
            results.append(replace(passed, message=words))
    return results


def _called(agreed: Sequence[str]) -> str:
    return ", ".join(agreed[:8]) + (f" and {len(agreed) - 8} more" if len(agreed) > 8 else "") or "the stored answer"
