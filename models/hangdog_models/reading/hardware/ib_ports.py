"""Reads `ibstat`, `ibstatus` and `ibv_devinfo`: ports that are down, or run slower, beside ports of their kind that are not.

The forms are those of infiniband-diags 2 to 5 (ibstat.c, the script ibstatus) and rdma-core 28 to 50 (devinfo.c). A machine has
ports that nobody uses, so a port says something only where several others of its link layer are up.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.findings import Finding, Impact
from hangdog_models.reading.limits import DEFAULTS, Limits
from hangdog_models.reading.printable import printable
from hangdog_models.reading.stacks.dumped_process import lines_of

SOURCE = "InfiniBand ports"
#: `CA 'mlx5_0'`, `Infiniband device 'mlx5_0' port 1 status:`, `hca_id: mlx5_0`; the port follows in a line of its own.
_DEVICE = re.compile(
    r"\s{0,40}(?:CA '([\w.-]{1,64})'|Infiniband device '([\w.-]{1,64})' port (\d{1,5}) status:|hca_id:\s{1,8}([\w.-]{1,64}))\s*"
)
_PORT = re.compile(r"\s{1,40}[Pp]ort:?\s{0,20}(\d{1,5}):?\s*")
_VALUE = re.compile(r"\s{0,40}([A-Za-z][\w ]{1,24}):\s{1,40}(\S.{0,80}?)\s*")
#: A number before a state's name, as ibstatus prints it, or behind it, as ibv_devinfo does.
_STATE = re.compile(r"(?:\d{1,3}: )?(?:PORT_)?(\w{1,24})(?: \(\d{1,3}\))?")
#: Gigabits a second, and the number of lanes where it is told: `200`, `400 Gb/sec (4X NDR)`.
_RATE = re.compile(r"(\d{1,5}(?:\.\d)?)(?: Gb/sec(?: \((\d{1,2})X)?)?")
#: What somebody switched off is no fault.
_OFF = ("disabled", "sleep")
#: Ports of one machine that are read, and those of a kind that must be up before another one says something.
_MOST, _ENOUGH = 256, 2


@dataclass(slots=True)
class _Port:
    """One port, as far as the tool tells: `kind` is the model of its card."""

    name: str
    kind: str = ""
    state: str = ""
    physical: str = ""
    layer: str = ""
    rate: float = 0.0
    lanes: int = 0

    @property
    def up(self) -> bool:
        return self.state == "active"


def recognises(head: str) -> bool:
    """Whether a text names a port of a card, and its state."""
    return any(port.state for port in _ports(head))


def read(text: str, limits: Limits = DEFAULTS) -> tuple[Finding, ...]:
    """The findings of one run; raises UnreadableEvidence where no port is in the text."""
    ports = [port for port in _ports(text[: limits.file_bytes]) if port.state]
    if not ports:
        raise UnreadableEvidence(
            "not an output of ibstat, ibstatus or ibv_devinfo: no port in it", code="damaged-report"
        )
    return tuple(
        finding
        for layer in dict.fromkeys(p.layer for p in ports)
        for finding in _of([p for p in ports if p.layer == layer])
    )


def _ports(text: str) -> list[_Port]:
    found: list[_Port] = []
    device = kind = ""
    for line in lines_of(text):
        if named := _DEVICE.fullmatch(line):
            device, kind = named[1] or named[2] or named[4], ""
            if named[3]:
                found.append(_Port(f"{device}/{named[3]}"))
        elif device and (port := _PORT.fullmatch(line)):
            found.append(_Port(f"{device}/{port[1]}", kind))
        elif value := _VALUE.fullmatch(line):
            name = value[1].lower().replace("_", " ")
            if name in ("ca type", "vendor part id"):
                kind = value[2]
            elif found and found[-1].name.startswith(f"{device}/"):
                _take(found[-1], name, value[2])
        if len(found) >= _MOST:
            break
    return found


def _take(port: _Port, name: str, value: str) -> None:
    state = _STATE.fullmatch(value)
    if name == "state":
        port.state = state[1].lower() if state else ""
    elif name in ("physical state", "phys state"):
        port.physical = state[1].lower().replace("_", "") if state else ""
    elif name == "link layer":
        port.layer = value.lower()
    elif name == "rate" and (rate := _RATE.match(value)):
        port.rate, port.lanes = float(rate[1]), int(rate[2] or 0)


def _of(ports: Sequence[_Port]) -> Iterator[Finding]:
    """What the ports of one link layer say."""
    up = [port for port in ports if port.up]
    down = [port for port in ports if not port.up and port.physical not in _OFF]
    odd = len(up) >= _ENOUGH and len(down) < len(up)
    for port in down:
        states = port.state + (f", {port.physical}" if port.physical else "")
        what = f"the port {printable(port.name, 80)} is not active ({states})"
        beside = (
            f" while {len(up)} others of this machine are: its cable, its plug, or the switch's port" if odd else ""
        )
        impact = Impact.SUSPECTS if odd else Impact.TELLS_NOTHING
        yield Finding(SOURCE, "link down", impact, what + beside, device=printable(port.name, 80))
    for port in up:
        alike = [
            other
            for other in up
            if other is not port and (other.kind, bool(other.lanes)) == (port.kind, bool(port.lanes))
        ]
        usual, times = Counter(other.lanes or other.rate for other in alike).most_common(1)[0] if alike else (0, 0)
        given = port.lanes or (
            port.rate if port.kind else 0
        )  # without the card's model a rate may be that of another card
        if given and times >= _ENOUGH and given < usual and 2 * times > len(alike):
            unit = "lanes" if port.lanes else "Gb/s"
            what = f"the port {printable(port.name, 80)} runs at {given:g} {unit}, others of its kind at {usual:g}"
            yield Finding(SOURCE, "link rate", Impact.SLOWS, what, device=printable(port.name, 80))
