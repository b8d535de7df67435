"""When a verdict upon a written bundle is that of the server."""

import json
import re
from dataclasses import replace
from typing import Any

from hangdog_models.verdict import EvidenceReport, Verdict, to_json

#: In place of what a verdict says of how many files it was read from.
NOTHING = EvidenceReport()
#: A report of a communicator with one dead member, to be filled in.
RAS = (
    '{{"nccl_version": "2.29.1", "communicators": [{{"hash": "0x{0}", "size": 4, "ranks": [], "missing_ranks": '
    '[{{"rank": {1}, "host": "h{1}", "pid": 7, "status": {{"considered_dead": true}}}}]}}]}}'
)
#: A process whose role is no part of a file's name, as it is and as it is written.
_NAMELESS = re.compile(r"\.(process-[0-9a-f]+|\.\./\.\./etc/passwd|rank7|a b)$")


def same(ours: Verdict, theirs: Verdict) -> None:
    """Everything is equal but the account of files and messages, and the names of processes that no path can hold."""
    told, read = plain(ours), plain(theirs)
    assert read == told, {key: (told[key], read[key]) for key in told if told[key] != read[key]}


def plain(verdict: Verdict) -> dict[str, Any]:
    """A verdict as far as it must be the same: words in one line, as evidence is read."""
    document = to_json(replace(verdict, evidence=NOTHING))
    failed = document["coverage"]["failed"].items()
    document["coverage"]["failed"] = sorted((_NAMELESS.sub(".?", name), why) for name, why in failed)
    shown: dict[str, Any] = json.loads(json.dumps(document).replace("\\n", " "))
    return shown
