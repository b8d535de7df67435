"""Reads `dcgmi nvlink -s` and `-e`, `nvidia-smi nvlink -s` and `-e`: NVLinks that are down beside others, and that had to recover.

The forms are those of DCGM 3 and 4 (dcgmi/Nvlink.cpp) and of drivers 470 to 595. That all links of a machine are down tells how
it is built. Replays and CRC errors are repaired by the link itself; NVIDIA's DCGM calls a link critical that had to recover.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.findings import Finding, Impact
from hangdog_models.reading.hardware.nvidia_smi_query import MOST_GPUS
from hangdog_models.reading.limits import DEFAULTS, Limits
from hangdog_models.reading.stacks.dumped_process import lines_of

SOURCE = "NVLink"
_TITLE = re.compile(r"\|\s{1,8}(?:NvLink Link Status|NVLINK Error Counts)\s{1,80}\|")
#: `gpuId 3:`, `| GPU 3   |`, `GPU 3: NVIDIA H100 80GB HBM3 (UUID: GPU-…)`.
_GPU = re.compile(r"\s{0,8}gpuId (\d{1,3}):|\|\s{1,4}GPU (\d{1,3})\s{1,200}\|.{0,200}|GPU (\d{1,3}): .{1,120}")
#: What follows the links of GPUs in DCGM's list.
_SWITCHES = "NvSwitches:"
#: Up, down, disabled and not there, in the order of the links.
_STATES = re.compile(r"\s{4,16}([UDX_](?: [UDX_]){0,40})")
_SMI = re.compile(r"\s{1,20}Link (\d{1,2}): (.{1,120})")
_SPEED = re.compile(r"(?P<up>\d{1,4}(?:\.\d{1,6})? GB/s)|<?inactive>?", re.IGNORECASE)
_COUNT = re.compile(r"([A-Za-z][\w ]{1,60}?): (\d{1,18})")
_NONE = re.compile(r"NVML: Unable to retrieve NVLink information as all links are inActive", re.IGNORECASE)
_DCGM_LINK = re.compile(r"\|\s{1,4}Link (\d{1,2})\s{1,80}\|.{0,200}")
_DCGM_COUNT = re.compile(
    r"\|\s{1,4}(?:-> |\W{0,4})?((?:CRC \w{1,8}|Replay|Recovery) Error)\s{1,80}\|\s{1,4}(\d{1,18})\s{0,200}\|"
)
#: Names of counters, in any case, that count what a link had to be trained anew for.
_RECOVERIES = re.compile(r"recovery errors?|link recovery failed events", re.IGNORECASE)


@dataclass(slots=True)
class _Links:
    """The links of one GPU by number: whether each is up, and how often it recovered. `none_up`: the tool says so of all."""

    up: dict[int, bool] = field(default_factory=dict)
    recoveries: Counter[int] = field(default_factory=Counter)
    none_up: bool = False
    link: int = 0

    @property
    def down(self) -> int:
        return sum(not up for up in self.up.values())


def recognises(head: str) -> bool:
    """Whether a text lists states, or errors, of links by GPU."""
    return any(links.up or links.recoveries or links.none_up for links in _gpus(head).values()) or bool(
        _TITLE.search(head)
    )


def read(text: str, limits: Limits = DEFAULTS) -> tuple[Finding, ...]:
    """The findings of a text, by GPU; raises UnreadableEvidence where it lists no links."""
    if not recognises(text[: limits.file_bytes]):
        raise UnreadableEvidence("neither states nor errors of NVLinks", code="damaged-gpu-report")
    gpus = _gpus(text[: limits.file_bytes])
    return (*_down(gpus), *_recovered(gpus))


def _gpus(text: str) -> dict[int, _Links]:
    gpus: dict[int, _Links] = {}
    links: _Links | None = None
    for line in lines_of(text):
        if gpu := _GPU.fullmatch(line):
            number = int(gpu[1] or gpu[2] or gpu[3])
            links = gpus.setdefault(number, _Links()) if number in gpus or len(gpus) < MOST_GPUS else None
        elif line.startswith(_SWITCHES):
            links = None
        elif links is not None:
            _take(links, line)
    return gpus


def _take(links: _Links, line: str) -> None:
    if states := _STATES.fullmatch(line):
        links.up = {at: state == "U" for at, state in enumerate(states[1].split()) if state in "UD"}
    elif _NONE.search(line):
        links.none_up = True
    elif link := _SMI.fullmatch(line):
        links.link = int(link[1])
        if speed := _SPEED.fullmatch(link[2]):
            links.up[links.link] = speed["up"] is not None
        elif (count := _COUNT.fullmatch(link[2])) and _RECOVERIES.fullmatch(count[1]):
            links.recoveries[links.link] += int(count[2])
        elif _COUNT.fullmatch(link[2]):
            links.recoveries[links.link] += 0
    elif link := _DCGM_LINK.fullmatch(line):
        links.link = int(link[1])
    elif count := _DCGM_COUNT.fullmatch(line):
        links.recoveries[links.link] += int(count[2]) if _RECOVERIES.fullmatch(count[1]) else 0


def _down(gpus: dict[int, _Links]) -> Iterator[Finding]:
    """GPUs with links that are down beside GPUs of which all are up: half of all, or more where none of a GPU's is up.

    GPUs in a bridge have links, and those beside them none.
    """
    whole = sum(bool(links.up) and not links.down for links in gpus.values())
    for number, links in gpus.items():
        if not links.down and not links.none_up:
            continue
        some = any(links.up.values())
        if 2 * whole > len(gpus) or (some and whole and 2 * whole == len(gpus)):
            which = f"{links.down} of {len(links.up)} NVLinks are down" if some else "none of its NVLinks is up"
            beside = f"those of {whole} {'other is' if whole == 1 else 'others are'}"
            what = f"GPU {number}: {which}, {beside} up: test the GPU and the switch it is wired to"
            yield Finding(SOURCE, "NVLink down", Impact.SUSPECTS, what, device=str(number))


def _recovered(gpus: dict[int, _Links]) -> Iterator[Finding]:
    for number, links in gpus.items():
        if times := links.recoveries.total():
            worst, most = links.recoveries.most_common(1)[0]
            what = f"GPU {number}: NVLinks recovered {times} times since the counters were reset, link {worst} {most} times"
            yield Finding(SOURCE, "NVLink recoveries", Impact.SUSPECTS, what, device=str(number))
