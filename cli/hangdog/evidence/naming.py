"""Works out from its path whose evidence a file is: rank, role, machine and sampling round."""

import re
from dataclasses import dataclass

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.ranks import MAX_RANK, Rank
from hangdog_models.stack import TRAINER

#: `rank3`, `rank-3`, `rank_3` as a word of its own; a local or node rank is none of the job's.
_RANK = re.compile(
    r"(?<![A-Za-z0-9])(?<!local[-_.])(?<!node[-_.])(?<!group[-_.])(?<!role[-_.])rank[-_]?(\d+)(?![A-Za-z0-9])"
)
#: Files that PyTorch's flight recorder and its users name by themselves.
_RECORDER = re.compile(r"(?:_dump_|fr_trace_)(\d+)(?:\.[A-Za-z]\w{0,7})?")
#: The number at the end of a name, before what says what the file holds.
_NUMBER = re.compile(r"(\d{1,7})(?:\.[A-Za-z]\w{0,7}){0,2}$")
_MACHINE = re.compile(r"machine-(.+)")
#: torchrun's folder of a process, `attempt_0/3/`: the number is that on its machine.
_ATTEMPT = re.compile(r"(?:^|/)attempt_\d{1,6}/(\d{1,4})/")
_ROUND = re.compile(r"round-(\d{1,9})")
#: What its process wrote by itself, a flight record or NCCL Inspector's operations, so many seconds before it was asked for.
_KEPT = re.compile(r"\.written-(\d{1,9})s-before\.")
#: Endings that say what a file holds and are no part of a role; else anything short after the last dot.
_SUFFIX = re.compile(r"(\.proc\.json|\.error\.txt|\.[A-Za-z0-9]{1,8})$")


@dataclass(frozen=True, slots=True)
class Name:
    """What a path tells; `rank`, `machine`, `round` and `local`, the rank on its machine, are None where it does not.

    `age_s`: so many seconds before it was asked for, what a library counted was written; 0 where it was written then.
    """

    path: str
    rank: Rank | None = None
    role: str = TRAINER
    machine: str | None = None
    round: int | None = None
    local: int | None = None
    age_s: int = 0


def name_of(path: str) -> Name:
    """Reads a path relative to the bundle's root; raises UnreadableEvidence when it speaks of two ranks or of none possible."""
    *folders, file = path.split("/")
    digits = {number.lstrip("0") or "0" for number in _RANK.findall(path)}
    if not digits and (recorder := _RECORDER.fullmatch(file)):
        digits = {recorder[1].lstrip("0") or "0"}
    if len(digits) > 1:
        ranks = " and ".join(sorted(digits, key=lambda number: (len(number), number))[:3])
        raise UnreadableEvidence(f"its name speaks of ranks {ranks}: whose is it?", code="unknown-rank")
    if any(len(number) > len(str(MAX_RANK)) or int(number) > MAX_RANK for number in digits):
        raise UnreadableEvidence(f"its name speaks of a rank above {MAX_RANK}", code="out-of-range")
    rank = Rank(int(digits.pop())) if digits else None
    local = _ATTEMPT.search(path)
    machine = _last(_MACHINE, folders)
    kept = _KEPT.search(file)
    inside = int(local[1]) if local else None
    return Name(path, rank, _role(file), machine, _round(folders), inside, int(kept[1]) if kept else 0)


def number_of(path: str) -> int | None:
    """The number a file's name ends in; None where it ends in none."""
    match = _NUMBER.search(path.rpartition("/")[2])
    return int(match[1]) if match else None


def without_round(path: str) -> str:
    """The path without its `round-<K>` folder: the same for all looks at one process."""
    return "/".join(part for part in path.split("/") if not _ROUND.fullmatch(part))


def is_meaningful(folder: str) -> bool:
    """Whether a folder's name tells a rank, a machine or a round."""
    return bool(_RANK.search(folder) or _MACHINE.fullmatch(folder) or _ROUND.fullmatch(folder))


def _role(file: str) -> str:
    """What follows the rank in a file's name before the suffix; the trainer when nothing does."""
    match = _RANK.search(file)
    if match is None:
        return TRAINER
    return _SUFFIX.sub("", file[match.end() :]).strip("._-") or TRAINER


def _last(pattern: re.Pattern[str], folders: list[str]) -> str | None:
    return next((match[1] for folder in reversed(folders) if (match := pattern.fullmatch(folder))), None)


def _round(folders: list[str]) -> int | None:
    number = _last(_ROUND, folders)
    return int(number) if number is not None else None
