"""Reads what `rdma link` prints: ports of network cards that are down beside others that are up."""

import re

from hangdog_models.findings import Finding, Impact
from hangdog_models.reading.limits import DEFAULTS, Limits
from hangdog_models.reading.printable import printable

SOURCE = "rdma link"
#: `link mlx5_7/1 … state DOWN physical_state POLLING`; older versions begin with `8/1: mlx5_7/1: `.
_LINK = re.compile(
    r"^\s{0,4}(?:link |\d{1,5}/\d{1,5}: )([\w.-]{1,64}/\d{1,5}):? .{0,300}?\bstate (\w{1,16}) physical_state (\w{1,24})",
    re.MULTILINE,
)
#: Ports of one machine that are read.
_MOST = 256
#: What somebody switched off is no fault.
_OFF = ("DISABLED", "SLEEP")


def recognises(head: str) -> bool:
    """Whether a text is what the command prints."""
    return _LINK.search(head) is not None


def read(text: str, limits: Limits = DEFAULTS) -> tuple[Finding, ...]:
    """The ports that are down; where no port is up they may all be unused, which tells nothing."""
    links = [link.groups() for link, _ in zip(_LINK.finditer(text[: limits.file_bytes]), range(_MOST), strict=False)]
    up = any(state == "ACTIVE" for _, state, _ in links)
    found = []
    for device, state, physical in links:
        if state == "ACTIVE" or physical in _OFF:
            continue
        what = f"the port {printable(device, 80)} is not active ({state}, {physical})"
        beside = " while others of this machine are: its cable, its plug, or the switch's port" if up else ""
        impact = Impact.SUSPECTS if up else Impact.TELLS_NOTHING
        found.append(Finding(SOURCE, "link down", impact, what + beside, device=printable(device, 80)))
    return tuple(found)
