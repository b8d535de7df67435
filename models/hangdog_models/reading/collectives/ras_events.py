"""Reads what `ncclras -m` prints while it watches a job (NCCL 2.29 and newer): one event for each process that changed.

As text, `[2025-12-19 13:07:07] PEER_DEAD: Process 1524345 on node 172.16.64.245 managing GPU 1`, or as one JSON object each.
Read off rasClientsNotifyEvent of NCCL 2.29 (src/ras/client_support.cc) and the example of its user guide.
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
    r"^\[[-\d: ]{19}\] (PEER_[A-Z_]{1,40}): Process (\d{1,18}) on node (\S+) managing GPUs? ([\d,]{1,256})(?: \(NVML ([\d,]{1,256})\))?",
    re.MULTILINE,
)
_OBJECT = re.compile(r"\{")
#: What an event makes of a process.
_STATUS = {
    "PEER_DEAD": RasStatus.DEAD, "PEER_TIMEOUT_DEAD": RasStatus.DEAD, "PEER_UNRESPONSIVE": RasStatus.UNRESPONSIVE,
    "PEER_KEEPALIVE_TIMEOUT": RasStatus.UNRESPONSIVE, "PEER_INIT_TIMEOUT": RasStatus.UNRESPONSIVE,
    "PEER_SEND_STUCK": RasStatus.UNRESPONSIVE,
}  # fmt: skip
#: Events after which a process is well. All others (a retry, a connection that closes or is tried) change nothing.
_WELL = frozenset({"PEER_NEW", "PEER_CONNECTED", "PEER_RECOVERED"})
#: Events that are believed; a job of 100,000 processes that dies at once has as many.
_MOST = 1 << 18


def recognises(head: str) -> bool:
    """Whether a text is what the monitor printed, of either kind."""
    return _HEAD.search(head) is not None


def read(text: str, limits: Limits = DEFAULTS) -> RasReport:
    """The processes that are lost by the last event of each; raises UnreadableEvidence where it holds too many."""
    if len(text) > limits.file_bytes:
        raise UnreadableEvidence(
            f"{len(text)} characters; {limits.file_bytes} are read (limit file_bytes)", code="too-large"
        )
    lost: dict[tuple[str, int], RasMember] = {}
    for number, (event, host, pid, device) in enumerate(_events(text, limits)):
        if number >= _MOST:
            raise UnreadableEvidence(f"more than {_MOST} events of the monitor", code="too-many")
        if event in _WELL:
            lost.pop((host, pid), None)
        elif (status := _STATUS.get(event)) is not None:
            known = lost.get((host, pid))
            if known is None or known.status is not RasStatus.DEAD:
                lost[host, pid] = RasMember(-1, status, host, pid, device)
    return RasReport((), tuple(lost.values()))


def _events(text: str, limits: Limits) -> Iterator[tuple[str, str, int, int | None]]:
    for line in _LINE.finditer(text):
        yield line[1], text_of(line[3], limits), int(line[2]), int_of(line[5] or line[4])
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
