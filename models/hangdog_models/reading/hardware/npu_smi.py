"""Reads `npu-smi info` of Huawei's Ascend NPUs: the table of all chips, and the answers to `-t health`, `-t ecc` and `-t hccs`.

Sources: tables of npu-smi 24.1 to 26.0 in issues of vllm-project/vllm-ascend; npu-smi's own source (Ascend driver,
print_diagnosis_info) and Huawei's command reference. One of eight chips with `Alarm` whose processes hang is on record;
but a port without a cable raises an alarm on all chips of a machine.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.findings import Finding, Impact
from hangdog_models.reading.hardware.pci import canonical
from hangdog_models.reading.limits import DEFAULTS, Limits
from hangdog_models.reading.printable import printable
from hangdog_models.reading.stacks.dumped_process import lines_of

SOURCE = "npu-smi"

_HEAD = re.compile(
    r"^\|? ?npu-smi [\w.]{1,32} {1,64}Version: |^ {0,16}\| {1,8}NPU {1,16}Name {1,40}\| {1,8}Health\b|^\s{0,16}NPU ID\s{1,64}: \d"
    r"|^\s{0,16}hccs health status\s{1,64}:|^\s{0,16}Health Status\s{1,64}: [A-Za-z]{2,16}\s{1,24}Error Code\s{1,64}:"
    r"|dcmi mod(?:ule|el) initialize\w? failed",
    re.MULTILINE | re.IGNORECASE,
)
_CHIP = re.compile(r" {0,16}\|\s{0,4}(\d{1,4})\s{1,16}[\w-]{1,32}\s{1,32}\|\s{0,4}([A-Za-z]{2,16})\s{1,16}\|")
_PLACE = re.compile(
    r" {0,16}\|\s{0,4}(\d{1,4})\s{1,32}(?:\d{1,4}\s{1,32})?\|\s{0,4}([0-9A-Fa-f]{4}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)\s{1,8}\|"
)
#: What a chip's health means: a general, an important and an urgent alarm, as Huawei's reference tells them apart.
_HEALTH = {
    "warning": (Impact.SUSPECTS, "a general alarm"),
    "alarm": (Impact.RESET, "an important alarm"),
    "critical": (Impact.RESET, "an urgent alarm"),
    "unknown": (Impact.RESET, "the chip does not answer"),
}  # fmt: skip
#: Chips of one text; the largest machine has 16 NPUs of two chips each.
_MOST = 256
#: Characters of a line that are looked at.
_LONGEST = 500


@dataclass(slots=True)
class _Chip:
    """What is known of one chip of one card."""

    name: str
    health: str = ""
    hccs: str = ""
    errors: str = ""
    counts: dict[str, int] = field(default_factory=dict)


def recognises(head: str) -> bool:
    """Whether a text holds an answer of the tool, or what it prints instead of one."""
    return _HEAD.search(head) is not None


def read(text: str, limits: Limits = DEFAULTS) -> tuple[Finding, ...]:
    """The findings of a text, in the order of its chips; raises UnreadableEvidence on what is too large."""
    if len(text) > limits.file_bytes:
        raise UnreadableEvidence(
            f"{len(text)} characters; {limits.file_bytes} are read (limit file_bytes)", code="too-large"
        )
    chips = _chips(text)
    found = [finding for chip in chips for finding in _of_chip(chip)]
    if re.search(r"dcmi mod(?:ule|el) initialize\w? failed", text[:4096], re.IGNORECASE):
        # In a container this is a device that was not given to it as often as a sick driver.
        found.append(Finding(SOURCE, "no driver", Impact.SUSPECTS, "the NPU driver cannot be asked"))
    alike = {code for code in {one.code for one in found} if sum(one.code == code for one in found) == len(chips) > 1}
    return tuple(replace(one, impact=_at_most_suspect(one.impact)) if one.code in alike else one for one in found)


def _at_most_suspect(impact: Impact) -> Impact:
    """What all chips of a machine show alike is its build or a setting."""
    return Impact.SUSPECTS if impact is Impact.RESET else impact


def _chips(text: str) -> list[_Chip]:
    chips: list[_Chip] = []
    card, last = "", None
    for line in lines_of(text):
        if row := _CHIP.match(line):
            last = _Chip(f"NPU {int(row[1])}", row[2])
            chips.append(last)
        elif last is not None and (place := _PLACE.match(line)):
            last.name = canonical(place[2])
            last = None
        elif ":" in line:
            key, _, value = (part.strip() for part in line[:_LONGEST].partition(":"))
            key = key.lower()
            if key == "npu id":
                card = printable(value, 8)
                chips.append(_Chip(f"NPU {card}"))
            elif key == "chip id":
                _name(chips, card, printable(value, 8))
            else:
                _take(chips, key, value)
        if len(chips) > _MOST:
            raise UnreadableEvidence(f"more than {_MOST} chips of one machine", code="too-many")
    return [chip for chip in chips if chip.health or chip.hccs or chip.counts]


def _name(chips: list[_Chip], card: str, chip: str) -> None:
    """A line `Chip ID` follows the values of its chip, or stands before them: it belongs to the one that has no name yet."""
    if chips and "chip" not in chips[-1].name:
        chips[-1].name += f" chip {chip}"
    else:
        chips.append(_Chip(f"NPU {card} chip {chip}"))


def _take(chips: list[_Chip], key: str, value: str) -> None:
    known = key in ("health", "health status", "hccs health status", "error information") or "double bit" in key
    if not known:
        return
    if not chips:
        chips.append(_Chip("an NPU"))
    if key in ("health", "health status"):
        chips[-1].health = value
    elif key == "hccs health status":
        chips[-1].hccs = value
    elif key == "error information":
        chips[-1].errors = printable(value, 120)
    elif value.isdigit() and len(value) < 13:
        chips[-1].counts[key] = int(value)


def _of_chip(chip: _Chip) -> Iterator[Finding]:
    def finding(code: str, impact: Impact, what: str) -> Finding:
        return Finding(SOURCE, code, impact, f"{chip.name}: {what}", device=chip.name)

    if known := _HEALTH.get(chip.health.lower()):
        impact, says = known
        more = f" ({chip.errors})" if chip.errors and chip.errors != "NA" else ""
        yield finding(
            f"health {chip.health.lower()}", impact, f"its health is {printable(chip.health, 16)}, {says}{more}"
        )
    if chip.hccs and chip.hccs.upper() not in ("OK", "NA"):
        # A chip that was isolated on purpose reports it as well.
        yield finding("HCCS unhealthy", Impact.SUSPECTS, f"its HCCS links are {printable(chip.hccs, 40)}")
    if errors := max((n for key, n in chip.counts.items() if key.endswith("double bit error count")), default=0):
        yield finding("memory errors", Impact.SUSPECTS, f"{errors} uncorrectable memory errors since it was started")
    if any(n for key, n in chip.counts.items() if key.endswith("next-isolated pages count")):
        yield finding("page retirement pending", Impact.SUSPECTS, "a memory page is to be isolated at the next reset")
