"""Reads what `hangdog run` wrote, of a job that may be running: it is not touched."""

from collections.abc import Iterable
from pathlib import Path

from hangdog.supervising.history_file import MOST
from hangdog_models.errors import UnreadableEvidence, WrongUse
from hangdog_models.recovery.journal import read
from hangdog_models.recovery.recovery_history import Entry


def read_histories(paths: Iterable[Path]) -> list[tuple[Entry, ...]]:
    """The histories in these files, or in the folders that `--state` named, each once; raises HangdogError."""
    files = ((path / "history.jsonl" if path.is_dir() else path).resolve() for path in paths)
    return [_history(file) for file in dict.fromkeys(files)]


def _history(path: Path) -> tuple[Entry, ...]:
    """All entries.

    A last line without its end is one that is being written, or that was never finished: it is left out.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MOST + 1)
    except OSError as error:
        what = f"cannot read {path}: {error.strerror}"
        raise WrongUse(what, "give the history.jsonl of hangdog run --state", code="unreadable-file") from error
    if len(data) > MOST:
        raise UnreadableEvidence(
            f"{path} is larger than {MOST >> 20} MiB", "it is no history of hangdog run", code="too-large"
        )
    entries = []
    for number, line in enumerate(data.split(b"\n")[:-1], 1):
        try:
            entries.append(read(line.decode()))
        except (UnreadableEvidence, UnicodeDecodeError) as error:
            raise UnreadableEvidence(
                f"{path}, line {number}: {error}", "mend that line, or leave the file out", code="damaged-history"
            ) from error
    if not entries:
        raise UnreadableEvidence(
            f"{path} holds no entry", "give the history.jsonl of hangdog run --state", code="no-evidence"
        )
    return tuple(entries)
