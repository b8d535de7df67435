"""One spelling for PCI addresses: the driver, its tools and the kernel write them differently."""

import re

_ADDRESS = re.compile(r"([0-9a-fA-F]{1,8}):([0-9a-fA-F]{1,2}):([0-9a-fA-F]{1,2})(?:\.[0-9a-fA-F])?")


def canonical(address: str) -> str:
    """`0000:9b:00` for `00000000:9B:00.0`: four digits of domain, lower case, no function; other texts as they are."""
    parts = _ADDRESS.fullmatch(address)
    if parts is None:
        return address
    domain, bus, device = (int(part, 16) for part in parts.groups())
    return f"{domain:04x}:{bus:02x}:{device:02x}"
