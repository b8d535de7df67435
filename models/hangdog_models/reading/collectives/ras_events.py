"""Reads what `ncclras -m` prints while it watches a job (NCCL 2.29 and newer): one event for each process that changed.

As text, `[2025-12-19 13:07:07] PEER_DEAD: Process 1524345 on node 172.16.64.245 managing GPU 1`, or as one JSON object each.
"""

import json
import re
from collections.abc import Iterator

from hangdog_models.collectives import RasMember, RasReport, RasStatus
from hangdog_models.errors import UnreadableEvidence
from hangdog_models.reading.json_document import int_of, text_of
from hangdog_models.reading.limits import DEFAULTS, Limits

_HEAD = re.compile(r'^RAS Monitor Mode\b|^\[[-\d: ]{19}\] PEER_[A-Z_]+: |"event"\s*:\s*"PEER_', re.MULTILINE)
_LINE = re.compile(
    r"^\[[-\d: ]{19}\] (PEER_[A-Z_]{1,40}): Process (\d{1,18}) on node (\S+) managing GPUs? (\d{1,4})([^\n]*)",
    re.MULTILINE,
)
_OBJECT = re.compile(r"\{")
#: What an event makes of a process; one of which nothing stands here is well again, or never was otherwise.
_STATUS = {"DEAD": RasStatus.DEAD, "UNRESPONSIVE": RasStatus.UNRESPONSIVE, "TIMEOUT": RasStatus.UNRESPONSIVE}
#: Events that are believed; a job of 100,000 processes that dies at once has as many.
_MOST = 1 << 18


def recognises(head: str) -> bool:
    """Whether a text is what the monitor printed, of either kind."""
    return _HEAD.search(head) is not None


def read(text: str, limits: Limits = DEFAULTS) -> RasReport:
    """The processes that are lost by the last event of each; raises UnreadableEvidence where it holds too many."""
    if len(text) > limits.file_bytes:
        raise UnreadableEvidence(f"{len(text)} characters; {limits.file_bytes} are read (limit file_bytes)")
    lost: dict[tuple[str, int], RasMember] = {}
    for number, (event, host, pid, device) in enumerate(_events(text, limits)):
        if number >= _MOST:
            raise UnreadableEvidence(f"more than {_MOST} events of the monitor")
        status = next((status for word, status in _STATUS.items() if event.endswith(word)), None)
        lost.pop((host, pid), None)
        if status is not None:
            lost[host, pid] = RasMember(-1, status, host, pid, device)
    return RasReport((), tuple(lost.values()))


def _events(text: str, limits: Limits) -> Iterator[tuple[str, str, int, int | None]]:
    for line in _LINE.finditer(text):
        alone = "," not in line[5]
        yield line[1], text_of(line[3], limits), int(line[2]), int(line[4]) if alone else None
    decoder = json.JSONDecoder()
    at = 0
    while found := _OBJECT.search(text, at):
        try:
            document, at = decoder.raw_decode(text, found.start())
        except (ValueError, RecursionError):  # cut off in the middle: the monitor was interrupted
            return
        if not isinstance(document, dict) or not isinstance(peer := document.get("peer"), dict):
            continue
        pid, devices = int_of(peer.get("pid")), peer.get("nvml_devs") or peer.get("cuda_devs")
        device = int_of(devices[0]) if isinstance(devices, list) and len(devices) == 1 else None
        if pid is not None:
            yield text_of(document.get("event"), limits), text_of(peer.get("host"), limits), pid, device
