"""The figures as Markdown: each analyser in one row, then each recording."""

from collections.abc import Mapping, Sequence
from statistics import median

from hangdog_models.ranks import format_ranks
from peers.analysers import Answer
from peers.recordings import Recording

#: A recording with what each analyser said of it.
Row = tuple[Recording, Mapping[str, Answer]]


def all_named(recording: Recording, answer: Answer) -> bool:
    """Whether every guilty rank is named; where one of several will do, one."""
    guilty = set(recording.guilty)
    return bool(guilty & answer.named) if recording.any_of else guilty <= answer.named


def first_is_guilty(recording: Recording, answer: Answer) -> bool:
    """Whether what is printed first names guilty ranks only."""
    return bool(answer.reports) and answer.reports[0] <= set(recording.guilty)


def innocents(recording: Recording, answer: Answer) -> frozenset[int]:
    return answer.named - set(recording.guilty)


def print_summary(rows: Sequence[Row], names: Sequence[str]) -> None:
    print(
        "| dumps of | analyser | all guilty named | a guilty one first | nobody named where nobody is guilty | innocents named, in recordings | no answer | s, median | MiB, most |"
    )
    print("|---|---|---:|---:|---:|---:|---:|---:|---:|")
    for backend in dict.fromkeys(recording.backend for recording, _ in rows):
        mine = [(recording, answers) for recording, answers in rows if recording.backend == backend]
        for name in names:
            guilty = [(recording, answers[name]) for recording, answers in mine if recording.guilty]
            sound = [answers[name] for recording, answers in mine if not recording.guilty]
            every = [(recording, answers[name]) for recording, answers in mine]
            wrong = [len(innocents(*one)) for one in every]
            cells = (
                backend, name,
                f"{sum(all_named(*one) for one in guilty)} of {len(guilty)}",
                f"{sum(first_is_guilty(*one) for one in guilty)} of {len(guilty)}",
                f"{sum(not one.named and not one.failed for one in sound)} of {len(sound)}",
                f"{sum(wrong)}, in {sum(map(bool, wrong))}",
                str(sum(bool(answer.failed) for _, answer in every)),
                f"{median(answer.seconds for _, answer in every):.1f}",
                str(max(answer.mib for _, answer in every)),
            )  # fmt: skip
            print(f"| {' | '.join(cells)} |")


def print_head(names: Sequence[str]) -> None:
    print(f"| recording | guilty | {' | '.join(f'{name} names | s | MiB' for name in names)} |")
    print(f"|---|---|{'---|---:|---:|' * len(names)}")


def print_row(row: Row, names: Sequence[str]) -> None:
    recording, answers = row
    cells = [recording.name, recording.truth]
    for name in names:
        answer = answers[name]
        cells += [_named(recording, answer), f"{answer.seconds:.1f}", str(answer.mib)]
    print(f"| {' | '.join(cells)} |", flush=True)


def _named(recording: Recording, answer: Answer) -> str:
    if answer.failed:
        return f"*fails: {answer.failed}*"
    if not answer.named:
        return "nobody"
    wrong = innocents(recording, answer)
    more = f", {len(wrong)} innocent" if wrong else ""
    return f"{format_ranks(sorted(answer.named))}{more}"
