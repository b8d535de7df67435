"""Prints what the diagnosis makes of each recording."""

from collections.abc import Sequence

from frameworks.cases import Case
from frameworks.environment import Framework
from frameworks.expectation import MISSES, RECORDINGS, expected, judge, known_misses, missed, ways
from hangdog_models.ranks import format_ranks

_HEAD = """\
# Recordings that today's diagnosis gets wrong, by the number of looks it is given, and what is wrong with its verdict.
# A change of the diagnosis makes this shorter: tests/recordings fails where one of these is right, and where another is wrong.
# `python bench/frameworks misses` writes it anew after new recordings.
"""


def write_misses() -> int:
    """Lists all that is wrong now; answers how much that is."""
    lines = [_HEAD]
    for recording in sorted(path.parent for path in RECORDINGS.glob("*/expected.toml")):
        for looks in ways(recording):
            if wrong := missed(judge(recording, looks), expected(recording, looks)):
                reason = "; ".join(wrong).replace('"', "'")
                lines.append(f'[[miss]]\nrecording = "{recording.name}"\nlooks = "{looks}"\nreason = "{reason}"\n')
    MISSES.write_text("\n".join(lines))
    return len(lines) - 1


def print_table(frameworks: Sequence[Framework], cases: Sequence[Case]) -> int:
    """One line for each recording and number of looks, and each case that cannot be played; answers how many are wrong and not known to be."""
    known, surprises = known_misses(), 0
    wanted = tuple(f"{framework.name}-{case.name}" for framework in frameworks for case in cases)
    recordings = sorted(path.parent for path in RECORDINGS.glob("*/expected.toml"))
    for recording in (one for one in recordings if one.name.startswith(wanted)):
        for looks in ways(recording):
            verdict = judge(recording, looks)
            wrong = missed(verdict, expected(recording, looks))
            unknown = bool(wrong) != ((recording.name, looks) in known)
            surprises += unknown
            suspects = " ".join(f"{format_ranks(one.ranks)}:{one.probability:.2f}" for one in verdict.suspects[:3])
            print(
                f"{recording.name:36} {looks:14} {verdict.kind:13} {verdict.confidence:.2f}"
                f"  suspects {suspects or '-':24} evicted {' '.join(verdict.evict.machines) or '-':8}"
                f" {'right' if not wrong else 'WRONG: ' + '; '.join(wrong)}{' (NEW)' if unknown else ''}"
            )
    for framework in frameworks:
        for case in (case for case in cases if case.name in framework.without):
            print(f"{framework.name}-{case.name}: not played: {framework.without[case.name]}")
    return surprises
