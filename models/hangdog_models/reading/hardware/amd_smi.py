"""Reads `amd-smi` (metric, static, xgmi) and `rocm-smi`: memory and other errors, heat, links that are down. ROCm 5 to 7.

Sources: amdsmi_cli of ROCm 6.4 and 7.0 and its changelog; ROCm/rocm_smi_lib. What `THROTTLE_STATUS` says is passed over: it is
set on idle cards (ROCm/rocm-systems issue 11781). So is a violation of the power limit, which is normal under load.
"""

import re
from collections.abc import Callable, Iterator

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.findings import Finding, Impact
from hangdog_models.reading.hardware import amd_smi_query
from hangdog_models.reading.hardware.amd_smi_query import numbers
from hangdog_models.reading.hardware.nvidia_smi_checks import Complaint
from hangdog_models.reading.hardware.nvidia_smi_query import Gpu
from hangdog_models.reading.limits import DEFAULTS, Limits
from hangdog_models.reading.stacks.dumped_process import lines_of

SOURCE = "amd-smi"

_HEAD = re.compile(
    r"^ {0,16}GPU: \d{1,4}\s{0,8}\r?\n\s{1,24}[A-Z][A-Z0-9_]{1,40}:|ROCm System Management Interface|XGMI LINK STATUS"
    r"|^GPU\[\d{1,4}\]\s{0,16}:\s{0,16}RAS INFO",
    re.MULTILINE,
)
_CSV = re.compile(r"\s{0,8}gpu,[^\n]{0,8000}(?:uncorrectable_count|violation_status|xgmi_err)")
#: What the tools print instead of an answer. In a container, or without the right group, a sound machine prints it as well.
_COMPLAINTS = (
    ("amdgpu not found in modules", "no driver", "the amdgpu driver is not loaded"),
    ("Unable to detect any GPU devices", "no GPU", "the driver finds no GPU"),
)
#: `AMDSMI_XGMI_STATUS_MULTIPLE_ERRORS`, or what rocm-smi calls a count: 0, 1, or 2 for several.
_XGMI_ERRORS = re.compile(r"AMDSMI_XGMI_STATUS_(?:ERROR|MULTIPLE_ERRORS)|[12]\b")
#: Blocks whose errors a reset repairs, as NVIDIA's SRAM. UMC is the memory: its bad page goes away with its process.
_LOGIC = ("gfx", "sdma", "mmhub", "hdp", "mp0", "mp1", "fuse", "mca", "vcn", "jpeg", "ih", "mpio")


def recognises(head: str) -> bool:
    """Whether a text begins like an output of one of the tools, or is what they print instead of one."""
    return bool(_HEAD.search(head) or _CSV.match(head)) or any(words in head[:4096] for words, *_ in _COMPLAINTS)


def recognises_document(document: object) -> bool:
    """Whether a JSON document is one of theirs."""
    return amd_smi_query.is_json(document)


def read(text: str, limits: Limits = DEFAULTS) -> tuple[Finding, ...]:
    """The findings of one run, as text or CSV; raises UnreadableEvidence on what is too large."""
    if len(text) > limits.file_bytes:
        raise UnreadableEvidence(
            f"{len(text)} characters; {limits.file_bytes} are read (limit file_bytes)", code="too-large"
        )
    gpus = amd_smi_query.from_csv(text, limits) if _CSV.match(text) else amd_smi_query.from_text(text, limits)
    return (*_complaints(text), *_findings(gpus))


def read_document(document: object, limits: Limits = DEFAULTS) -> tuple[Finding, ...]:
    """The findings of one run with `--json`."""
    return _findings(amd_smi_query.from_json(document, limits))


def _complaints(text: str) -> Iterator[Finding]:
    for words, code, says in _COMPLAINTS:
        if any(words in line for line in lines_of(text[:4096])):
            yield Finding(SOURCE, code, Impact.SUSPECTS, says)


def _findings(gpus: tuple[Gpu, ...]) -> tuple[Finding, ...]:
    return tuple(
        Finding(SOURCE, code, impact, f"GPU {gpu.device}: {what}", device=gpu.device)
        for gpu in gpus
        for check in CHECKS
        for code, impact, what in check(gpu)
    )


def _memory(gpu: Gpu) -> Iterator[Complaint]:
    """Counts since the driver was loaded, as all that these tools have."""
    blocks = {
        path[-2]: count
        for path, value in gpu.values.items()
        if path[-1] == "uncorrectable_count" and len(path) > 1 and "ecc_blocks" in path
        for count in numbers([value])
        if count > 0
    }
    logic = {block: count for block, count in blocks.items() if block in _LOGIC}
    total = max(numbers(v for p, v in gpu.values.items() if p[-1] == "total_uncorrectable_count"), default=0)
    if logic:
        names = ", ".join(f"{count} in {block.upper()}" for block, count in sorted(logic.items()))
        yield "logic errors", Impact.RESET, f"uncorrectable errors since the driver was loaded ({names}): reset it"
    elif blocks or total > 0:
        count = max(sum(blocks.values()), total)
        yield "memory errors", Impact.SUSPECTS, f"{count} uncorrectable errors since the driver was loaded"
    if any(v.lower() in ("true", "yes") for p, v in gpu.values.items() if p[-1] == "bad_page_threshold_exceeded"):
        yield "bad pages", Impact.CONVICTS, "it has more bad memory pages than AMD's threshold: due for replacement"


def _heat(gpu: Gpu) -> Iterator[Complaint]:
    active = {path[-1] for path, value in gpu.values.items() if value.strip().upper() == "ACTIVE"}
    if "prochot_violation_status" in active:
        yield (
            "HW slowdown",
            Impact.SLOWS,
            "an external signal holds it back (PROCHOT): look at the machine's power and heat",
        )
    if hot := [part for part in ("socket", "vr", "hbm") if f"{part}_thermal_violation_status" in active]:
        yield (
            "HW thermal slowdown",
            Impact.SLOWS,
            f"it slows down for heat ({', '.join(hot)}): look at the machine's cooling",
        )


def _links(gpu: Gpu) -> Iterator[Complaint]:
    """A GPU all of whose links are down has none: a virtual function reports them so (ROCm/rocm-systems pull request 2053)."""
    for path, value in gpu.values.items():
        states = value.split()
        if path[-1] == "link_status" and set(states) <= {"U", "D", "X"} and "D" in states and "U" in states:
            yield "XGMI link down", Impact.SUSPECTS, f"{states.count('D')} of its XGMI links are down"
        elif path[-1] in ("xgmi_err", "xgmi_error_count") and _XGMI_ERRORS.match(value):
            yield "XGMI errors", Impact.SUSPECTS, "its XGMI links met errors since they were last read"


#: Each check yields what it finds of one GPU.
CHECKS: tuple[Callable[[Gpu], Iterator[Complaint]], ...] = (_memory, _heat, _links)
