"""Reads NCCL's own diagnostics, the lines with `NCCL DIAG`: those at start-up and the report of `ncclras -D` (NCCL 2.31 and newer).

`node042:12345 NCCL DIAG [INFO] NVLink: inactive link(s) on rank(s) {3} across 8 ranks in comm 0x1234`. In its first release no
host stood before them. Ranks are those inside the communicator. NCCL marks what is to be looked at with `[INFO]`, whatever it is.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from hangdog_models.findings import NCCL_DIAGNOSTICS, Finding, Impact
from hangdog_models.ranks import MAX_RANK, Rank
from hangdog_models.reading.collectives import nccl_diag_p2p
from hangdog_models.reading.limits import DEFAULTS, Limits
from hangdog_models.reading.printable import printable
from hangdog_models.rules import policy

MARK = "NCCL DIAG "
_LINE = re.compile(r"NCCL DIAG (?:\[(OK|INFO)\] {1,8})?([^\r\n]{0,1024})")
_PRINTER = re.compile(r"([A-Za-z0-9][\w.-]{0,252}):\d{1,10}")
_COMPLETED = re.compile(r"NCCL diagnostics completed in [\d.]{1,16} ms across (\d{1,7}) ranks")
_XID = re.compile(
    r"(S?Xid) (\d{1,6}) detected (?:at least )?(\d{1,20}) times? .{0,400}?on host ([A-Za-z0-9][\w.-]{0,252}?)\. "
)
_SWITCH = re.compile(r"NVSwitch driver reported ([A-Za-z-]{1,32}), link\(s\) \{([\d,]{0,400})\}")
_SET = r"rank\(s\) \{([\d,]{1,400})(,\.\.\.)?\}(?: \(N=(\d{1,7})\))?"
_OF = re.compile(r"across (\d{1,7}) ranks in comm 0x[0-9a-f]{1,16}")
_ON = re.compile(rf"\bon {_SET}")
_DIFFER = re.compile(rf"{_SET} differ from rank (\d{{1,7}})")
#: How a line begins that speaks against the ranks it names: code, bearing and a sentence, as nvidia-smi's checks have them.
_CHECKS = (
    # Errors of both memories are added up there: those of the DRAM are contained, so no more than the lesser is said.
    ("ECC: uncorrected volatile errors", "memory errors", Impact.SUSPECTS, "uncorrected memory errors since the driver was loaded"),
    ("NVLink: inactive link(s)", "NVLink inactive", Impact.SUSPECTS, "an NVLink of its GPU is not active"),
    ("NVLink: inconsistent link speeds", "NVLink speed", Impact.SLOWS, "an NVLink of its GPU runs at another speed"),
    ("NVLink: link-count mismatch", "NVLink missing", Impact.SUSPECTS, "its GPU has another number of NVLinks than most"),
    ("GPU inventory: count mismatch", "GPU missing", Impact.SUSPECTS, "its machine has another number of GPUs than most"),
)  # fmt: skip
#: Findings and lines of one text that are kept; characters of a line that are quoted.
_MOST, _QUOTED = 1_000, 240


@dataclass(frozen=True, slots=True)
class DiagFinding:
    """One finding; its ranks are those in a communicator of `size` members (0: not told)."""

    finding: Finding
    size: int = 0


def recognises(text: str) -> bool:
    """Whether lines of NCCL's diagnostics stand in a text; to be asked of the whole text."""
    return MARK in text


def read(text: str, limits: Limits = DEFAULTS) -> tuple[DiagFinding, ...]:
    """What the diagnostics report; where they report nothing, that they ran."""
    found: dict[Finding, DiagFinding] = {}
    edges: list[tuple[nccl_diag_p2p.Edge, int]] = []
    waiting: list[nccl_diag_p2p.Edge] = []  # they stand before the line that tells the size of their communicator
    ran = False
    for host, tag, words in _lines(text[: limits.file_bytes]):
        ran = ran or bool(tag)
        if done := _COMPLETED.match(words):
            edges += [(edge, int(done[1])) for edge in waiting]
            waiting = []
        elif (edge := nccl_diag_p2p.edge(host, words)) is not None:
            if len(edges) + len(waiting) < _MOST:
                waiting.append(edge)
        elif len(found) < _MOST:
            found.update((one.finding, one) for one in _of_line(tag, words))
    edges += [(edge, 0) for edge in waiting]
    pairs = [DiagFinding(finding, size) for finding, size in nccl_diag_p2p.findings(edges)]
    stated = (*pairs, *found.values())
    if ran and not stated:
        what = "NCCL's diagnostics found nothing to look at"
        return (DiagFinding(Finding(NCCL_DIAGNOSTICS, "passed", Impact.TELLS_NOTHING, what)),)
    return stated


def of_job(diagnosed: Iterable[DiagFinding], world: int) -> Iterator[Finding]:
    """The findings with the job's ranks: a communicator numbers its members alike only where it holds the whole job."""
    for one in diagnosed:
        finding = one.finding
        if finding.rank is not None and (one.size != world or not world):
            finding = replace(finding, rank=None, ranks=())
            if not finding.machine and finding.impact is Impact.PATH:
                finding = replace(finding, impact=Impact.TELLS_NOTHING)
        yield finding


def _lines(text: str) -> Iterator[tuple[str, str, str]]:
    at = text.find(MARK)
    while at >= 0:
        printer = _PRINTER.fullmatch(text[max(0, at - 300) : at].rstrip(" ").rpartition("\n")[2].rpartition(" ")[2])
        line = _LINE.match(text, at)
        if line is not None:
            yield printer[1] if printer else "", line[1] or "", line[2].strip()
        at = text.find(MARK, line.end() if line else at + 1)


def _of_line(tag: str, words: str) -> Iterator[DiagFinding]:
    if event := _XID.match(words):
        yield DiagFinding(_event(event, words))
    elif tag == "INFO":
        named = list(_of_ranks(words))
        yield from named
        if not named:
            quoted = printable(words, _QUOTED)
            yield DiagFinding(Finding(NCCL_DIAGNOSTICS, "to be looked at", Impact.TELLS_NOTHING, quoted))


def _event(event: re.Match[str], words: str) -> Finding:
    """An Xid or SXid of a host's kernel log, which means what it means there."""
    kind, number, times, host = event.groups()
    if kind == "Xid":
        meaning = policy.xid().of(int(number), "")
    else:
        switch = _SWITCH.search(words)
        meaning = policy.xid().of_switch(f"{switch[1]}, Link {switch[2]}" if switch else "")
    advice = f"; {meaning.action}" if meaning.action else ""
    what = f"{kind} {number}: {meaning.says}{advice}"
    return Finding(NCCL_DIAGNOSTICS, f"{kind} {number}", meaning.impact, what, host, times=min(int(times), 1 << 31))


def _of_ranks(words: str) -> Iterator[DiagFinding]:
    known = next((check for check in _CHECKS if words.startswith(check[0])), None)
    of = _OF.search(words)
    if known is None or of is None:
        return
    _, code, impact, says = known
    size = int(of[1])
    for number in _odd(words, size):
        what = f"{says}: rank {number} of a communicator of {size} ({printable(words, _QUOTED)})"
        yield DiagFinding(Finding(NCCL_DIAGNOSTICS, code, impact, what, rank=number), size)


def _odd(words: str, size: int) -> Iterator[Rank]:
    """The ranks that a line names, where they are the fewer ones: what most have alike is the build of the machines."""
    differ = _DIFFER.search(words)
    named = differ or _ON.search(words)
    if named is None:
        return
    numbers = [int(number) for number in named[1].split(",") if number]
    count = int(named[3]) if named[3] else len(numbers)
    if 2 * count < size or (count < size == 1):
        yield from (Rank(number) for number in numbers if number <= MAX_RANK)
    elif differ is not None and count == size - 1 > 1:
        yield Rank(min(int(differ[4]), MAX_RANK))  # all others differ from the first one: it is the odd one itself
