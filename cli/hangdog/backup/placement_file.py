"""Reads which rank holds whose backup, as `hangdog plan backups --format json` prints it."""

import json
from pathlib import Path

from hangdog_models.errors import WrongUse

SCHEMA = "hangdog.backups/1"
#: A million ranks of eight characters.
_LONGEST = 16 << 20
_HINT = "write it with: hangdog plan backups --format json"


def read_placement(path: str | Path) -> tuple[int, ...]:
    """The holder of each rank's backup, by rank; raises WrongUse where the file is no placement."""
    with Path(path).open("rb") as file:
        data = file.read(_LONGEST + 1)
    try:
        document = json.loads(data) if len(data) <= _LONGEST else None
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise WrongUse(f"{path} is not a {SCHEMA} document", _HINT, code="wrong-schema")
    holder = document.get("holder")
    if not isinstance(holder, list) or not holder:
        raise WrongUse(
            f"{path} has no place for backups: {document.get('reasons')}",
            "backups need two machines or more",
            code="no-place-for-backups",
        )
    if not all(type(rank) is int and 0 <= rank < len(holder) for rank in holder):
        raise WrongUse(f"{path} names a holder that is not a rank of the job", _HINT, code="wrong-placement")
    return tuple(holder)
