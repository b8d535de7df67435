"""Reads `lspci`: GPUs and network cards whose configuration space reads as ones, so that they are off the bus.

The form is that of pciutils 3 (lspci.c). A card that sleeps (D3cold) looks alike, as those of laptops do. So a card says little by
itself, and much beside another one of its model that answers.
"""

import re
from collections.abc import Iterator

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.findings import Finding, Impact
from hangdog_models.reading.hardware.pci import canonical
from hangdog_models.reading.limits import DEFAULTS, Limits
from hangdog_models.reading.printable import printable
from hangdog_models.reading.stacks.dumped_process import lines_of

SOURCE, CODE = "PCI devices", "PCI device lost"
#: The classes of what a job computes and communicates with; `-nn` puts their numbers behind.
_LINE = re.compile(
    r"\s{0,8}((?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) (?:VGA compatible controller|3D controller|Display controller|"
    r"Processing accelerators|Infiniband controller|Ethernet controller)(?: \[[0-9a-f]{4}\])?: (.{1,300}?)(?: \(rev ([0-9a-f]{2})\))?"
    r"(?: \(prog-if .{1,80})?\s*"
)
_LOST = "ff"
#: Lines that are looked at to recognise the tool.
_HEAD = 400
#: Devices of one machine that are read.
_MOST = 1024


def recognises(head: str) -> bool:
    """Whether a text lists devices of these classes, one of which does not answer."""
    return any(rev == _LOST for _, _, rev in _devices(head, _HEAD))


def read(text: str, limits: Limits = DEFAULTS) -> tuple[Finding, ...]:
    """A finding for each device that does not answer; raises UnreadableEvidence where no device is in the text."""
    devices = list(_devices(text[: limits.file_bytes], _MOST))
    if not devices:
        raise UnreadableEvidence("not an output of lspci: no device in it", code="damaged-report")
    answers = {model for _, model, rev in devices if rev != _LOST}
    return tuple(_finding(at, model, model in answers) for at, model, rev in devices if rev == _LOST)


def _finding(at: str, model: str, beside: bool) -> Finding:
    what = f"the device at {at} ({printable(model, 80)}) does not answer: its configuration reads as ones (rev ff)"
    if beside:
        what += ", while another one of its model answers"
        return Finding(SOURCE, CODE, Impact.RESET, what, device=at)
    return Finding(SOURCE, CODE, Impact.SUSPECTS, f"{what}; a card that sleeps looks like that as well", device=at)


def _devices(text: str, most: int) -> Iterator[tuple[str, str, str | None]]:
    """Address, model and revision of each device."""
    found = 0
    for line in lines_of(text):
        device = _LINE.fullmatch(line)
        if device is not None:
            at = (
                device[1] if device[1].count(":") > 1 else f"0000:{device[1]}"
            )  # of the only domain, no number is printed
            yield canonical(at), device[2], device[3]
            found += 1
        if found >= most:
            return
