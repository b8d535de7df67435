"""Writes a page for a browser into a file: whole, or not at all."""

import contextlib
import os
import tempfile
from pathlib import Path

from hangdog_models.diagnosis.verdict.case import Case
from hangdog_models.errors import WrongUse
from hangdog_models.verdict import Verdict
from hangdog_models.views import incident_view
from hangdog_server.web.incident_page import incident_page

#: As any file that a person's command makes is, less what their umask takes.
_MODE = 0o666


def write_page(path: Path, case: Case, verdict: Verdict) -> None:
    """Writes the page of a judged bundle; raises WrongUse."""
    write_text(path, incident_page(verdict, incident_view.of(case, verdict)))


def write_text(path: Path, text: str) -> None:
    """Writes a page beside its place and then moves it there, so that half of one is never seen; raises WrongUse."""
    fresh = None
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name[:50]}-", dir=path.parent)
        fresh = Path(name)
        with open(handle, "w", encoding="utf-8") as file:  # noqa: PTH123 - opened by descriptor
            file.write(text)
        mask = os.umask(0)
        os.umask(mask)
        fresh.chmod(_MODE & ~mask)
        fresh.rename(path)
    except OSError as error:
        if fresh is not None:
            with contextlib.suppress(OSError):
                fresh.unlink()
        raise WrongUse(
            f"cannot write {path}: {error.strerror}",
            "give --html a file in a folder that you can write to",
            code="unwritable-file",
        ) from error
