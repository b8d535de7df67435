"""Takes the table apart that `nvidia-smi` prints when it is asked for nothing: the few values of each GPU that it shows."""

import re
from collections.abc import Iterator

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.reading.dates import written_out
from hangdog_models.reading.hardware.nvidia_smi_query import MOST_GPUS, Gpu, Path, Query
from hangdog_models.reading.hardware.pci import canonical
from hangdog_models.reading.json_document import text_of
from hangdog_models.reading.limits import DEFAULTS, Limits
from hangdog_models.reading.stacks.dumped_process import lines_of

_HEAD = re.compile(r"^\|\s{1,8}NVIDIA-SMI \d", re.MULTILINE)
#: Its lines have about 90 columns; what is longer is another tool's.
_WIDEST = 200
_ADDRESS = re.compile(r"([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])\s")
#: Fan, temperature, performance state, and of the power what is drawn and what is the limit.
_READINGS = re.compile(r"\s*(\S+)\s+(\S+)\s+(\S+)\s+(\S+)\s*/\s*(\S+)\s*")
_NAMES: tuple[Path, ...] = (
    ("fan_speed",), ("temperature", "gpu_current_temp"), ("performance_state",), ("gpu_power_readings", "power_draw"),
    ("gpu_power_readings", "current_power_limit"),
)  # fmt: skip


def recognises(text: str) -> bool:
    """Whether a text holds the head of the table."""
    return _HEAD.search(text) is not None


def read(text: str, limits: Limits = DEFAULTS) -> Query:
    """The GPUs of the table, whole or cut off; the first line of the two that each has names it, the second one measures."""
    gpus: list[Gpu] = []
    open_: tuple[str, dict[Path, str]] | None = None
    at_s = None
    for line in lines_of(text[: text.rfind("\n") + 1]):
        at_s = at_s or (written_out(line) if len(line) < _WIDEST else None)
        cells = line.split("|") if len(line) < _WIDEST else []
        if len(cells) != 5:
            open_ = None
        elif address := _ADDRESS.search(cells[2]):
            open_ = canonical(address[1]), dict(_named(cells, limits))
        elif open_ is not None and (readings := _READINGS.fullmatch(cells[1])):
            values = dict(zip(_NAMES, (text_of(one, limits) for one in readings.groups()), strict=True))
            values["utilization", "gpu"] = text_of(next(iter(cells[3].split()), ""), limits)
            gpus.append(Gpu(open_[0], {**open_[1], **values}))
            open_ = None
            if len(gpus) > MOST_GPUS:
                raise UnreadableEvidence(f"more than {MOST_GPUS} GPUs of one machine", code="too-many")
    return Query(tuple(gpus), at_s=at_s)


def _named(cells: list[str], limits: Limits) -> Iterator[tuple[Path, str]]:
    """The product's name, and the count of memory errors since the driver was loaded, in whatever memory they were."""
    words = cells[1].split()
    yield ("product_name",), text_of(" ".join(words[1:-1] or words[1:]), limits)
    yield ("ecc_errors", "volatile", "dram_uncorrectable"), text_of(cells[3].strip(), limits)
