"""Reads `nvidia-smi -q`, text or XML, and the table of `nvidia-smi`: lost GPUs, memory errors, brakes, narrow links, a fabric that is not there.

An output cut off is no fault: what is missing from it was not printed. The checks of a single GPU stand in a file of their own.
"""

import re
from collections.abc import Iterator
from dataclasses import replace

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.findings import Finding, Impact
from hangdog_models.reading.hardware import nvidia_smi_table
from hangdog_models.reading.hardware.nvidia_smi_checks import CHECKS
from hangdog_models.reading.hardware.nvidia_smi_query import Query, from_text, from_xml
from hangdog_models.reading.hardware.pci import canonical
from hangdog_models.reading.limits import DEFAULTS, Limits
from hangdog_models.reading.printable import printable
from hangdog_models.reading.stacks.dumped_process import lines_of

SOURCE = "nvidia-smi"

#: What the tool prints instead of an answer, in any case; the first that is found in a line decides.
_COMPLAINTS = tuple(
    (re.compile(pattern, re.IGNORECASE), code, impact, says)
    for pattern, code, impact, says in (
        (r"GPU requires reset", "reset required", Impact.RESET, "the GPU wants a reset"),
        (r"unable to determine the device handle|GPU is lost", "GPU lost", Impact.CONVICTS, "the driver has lost the GPU"),
        (r"^No devices were found", "no GPU", Impact.CONVICTS, "the driver finds no GPU"),
        (r"couldn't communicate with the NVIDIA driver", "no driver", Impact.CONVICTS, "the GPU driver is not loaded"),
        # An update without a reload: software of that machine (NVML error 18).
        (r"driver/library version mismatch", "driver mismatch", Impact.SUSPECTS, "the driver does not fit its libraries"),
        # In a container this is a device that was taken away from it as often as a sick driver.
        (r"^Failed to initialize NVML", "no driver", Impact.SUSPECTS, "the GPU driver cannot be asked"),
    )
)  # fmt: skip
_IN_LINE = re.compile(r"GPU ?([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}(?:\.[0-9A-Fa-f])?)")
_HEAD = re.compile(r"NVSMI LOG|^Attached GPUs\s|^GPU [0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:|<nvidia_smi_log>", re.MULTILINE)
_GPU_LINE = re.compile(r"GPU [0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:")
_LINE = re.compile(r".*\n?")
_XML_END = "</nvidia_smi_log>"
#: A complaint stands where a run begins: further down a job's log tells of its own.
_HEAD_CHARACTERS = 4096
#: GPUs on boards whose GPUs are soldered together by NVLink, and how the products of such boards are called.
_BOARDS, _BOARD = (1, 2, 4, 8, 16), re.compile(r"SXM|HGX|HBM3|GB\d00|\bB[23]00")


def recognises(head: str) -> bool:
    """Whether a text begins like an output of `nvidia-smi`, or is what the tool prints instead of one."""
    return (
        bool(_HEAD.search(head))
        or nvidia_smi_table.recognises(head)
        or any(pattern.search(line) for line in lines_of(head[:_HEAD_CHARACTERS]) for pattern, *_ in _COMPLAINTS)
    )


def before_log(text: str) -> str:
    """What of a job's log is the tool's that was run before it: to the end of the XML, or of what stands indented below the
    last GPU; without a GPU the lines up to the last of its complaints among the first 4,096 characters.
    """
    if (end := text.find(_XML_END)) >= 0:
        return text[: end + len(_XML_END)]
    end, listed = 0, False
    for line in _LINE.finditer(text):
        if not listed and line.start() > _HEAD_CHARACTERS:
            break
        if _GPU_LINE.match(line[0]):
            listed, end = True, line.end()
        elif listed:
            if line[0][:1].strip():
                break
            end = line.end()
        elif any(pattern.search(line[0]) for pattern, *_ in _COMPLAINTS):
            end = line.end()
    return text[:end]


def read(text: str, limits: Limits = DEFAULTS) -> tuple[Finding, ...]:
    """The findings of one run of `nvidia-smi`; raises UnreadableEvidence on what is none."""
    if len(text) > limits.file_bytes:
        raise UnreadableEvidence(
            f"{len(text)} characters; {limits.file_bytes} are read (limit file_bytes)", code="too-large"
        )
    xml = text.lstrip()[:1] == "<"
    if not xml and not recognises(text):
        raise UnreadableEvidence("not an output of nvidia-smi", code="damaged-gpu-report")
    query = from_xml(text, limits) if xml else _of_text(text, limits)
    found = [] if xml else list(_complaints(text))
    known = {finding.device for finding in found if finding.code == "GPU lost"}
    for gpu in query.gpus:
        if gpu.device not in known:
            stated = [one for check in CHECKS for one in check(gpu)]
            found += [
                Finding(SOURCE, code, impact, f"GPU {gpu.device}: {what}", device=gpu.device)
                for code, impact, what in stated
            ]
    found = [*_of_the_host(query, found)]
    return tuple(replace(finding, at_s=query.at_s) for finding in found)


def _of_text(text: str, limits: Limits) -> Query:
    """Of an output that holds both, the query says more than the table."""
    query = from_text(text, limits)
    return query if query.gpus or not nvidia_smi_table.recognises(text) else nvidia_smi_table.read(text, limits)


def _complaints(text: str) -> Iterator[Finding]:
    seen: set[tuple[str, str]] = set()
    for line in lines_of(text):
        if " : " in line:  # a field of a GPU: judged there
            continue
        for pattern, code, impact, says in _COMPLAINTS:
            if pattern.search(line):
                named = _IN_LINE.search(line)
                device = canonical(named[1]) if named else ""
                if (code, device) not in seen and len(seen) < 256:
                    seen.add((code, device))
                    yield Finding(SOURCE, code, impact, f"GPU {device}: {says}" if device else says, device=device)
                break


def _of_the_host(query: Query, found: list[Finding]) -> Iterator[Finding]:
    """The findings, with those that all GPUs of a machine share read as what they are: the machine's build or setting."""
    everywhere = len(query.gpus) if len(query.gpus) > 1 else 0
    lanes, fabric = (len({f.device for f in found if f.code == code}) for code in ("PCIe lanes", "fabric"))
    for finding in found:
        if finding.code == "PCIe lanes" and lanes == everywhere:
            continue  # all alike: a virtual machine, or a board that is wired so
        if finding.code == "PCIe lanes" and len(query.gpus) == 1 and query.attached in (None, 1):
            # Of sound single GPUs many stand in a slot of 8 lanes, and no other GPU tells whether this one always did.
            what = f"{finding.what}; it is alone in its machine, and may be wired so"
            finding = replace(finding, impact=Impact.TELLS_NOTHING, what=what)
        if finding.code == "fabric" and fabric == everywhere:
            continue
        yield finding
    if everywhere and fabric == everywhere:
        what = f"the NVLink fabric is up on none of {fabric} GPUs: start the fabric manager, a setting of the host; do not replace GPUs"
        yield Finding(SOURCE, "fabric manager", Impact.SUSPECTS, what)
    products = {value for gpu in query.gpus for path, value in gpu.values.items() if path == ("product_name",)}
    if query.attached and query.attached not in _BOARDS and any(_BOARD.search(product) for product in products):
        what = (
            f"{query.attached} GPUs are attached; boards of {printable(min(products), 60)} carry 4 or 8: one is missing"
        )
        yield Finding(SOURCE, "GPU missing", Impact.SUSPECTS, what)
