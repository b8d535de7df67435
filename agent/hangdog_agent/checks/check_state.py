"""What a check has to remember over restarts of the agent, but not over restarts of the machine."""

import json
import logging
import os
from pathlib import Path
from typing import Any

from hangdog_agent.checks.check_paths import text
from hangdog_proto.private_files import make_file, make_folder

log = logging.getLogger(__name__)

#: A note holds some numbers for each device.
_MOST_BYTES = 1 << 20


class Notes:
    """Small JSON files in one folder, each valid for one start of the machine; without a folder nothing is kept."""

    def __init__(self, folder: Path | None, boot: str) -> None:
        self._folder = folder
        self._boot = boot
        self._last: dict[str, str] = {}
        self._reported = False

    def recall(self, name: str) -> dict[str, Any]:
        """What was noted under this name since the machine started; empty when nothing was, or it cannot be read."""
        read = text(self._folder / f"{name}.json", _MOST_BYTES) if self._folder else ""
        if not isinstance(read, str):
            return {}
        try:
            document = json.loads(read or "{}")
        except (ValueError, RecursionError):
            return {}
        if not isinstance(document, dict) or document.get("boot") != self._boot:
            return {}
        noted = document.get("noted")
        return noted if isinstance(noted, dict) else {}

    def note(self, name: str, noted: dict[str, Any]) -> None:
        """Replaces a note as a whole, if it changed. Where it cannot be written, that is logged once and forgotten."""
        if self._folder is None:
            return
        written = json.dumps({"boot": self._boot, "noted": noted})
        if self._last.get(name) == written:
            return
        try:
            make_folder(self._folder)
            new = self._folder / f"{name}.{os.getpid()}.new"
            make_file(new)
            new.write_text(written, encoding="utf-8")
            new.replace(self._folder / f"{name}.json")
        except OSError as error:
            if not self._reported:
                log.warning("checks cannot save in %s what they saw: %s", self._folder, error)
            self._reported = True
            return
        self._last[name] = written
