"""Reads a machine's kernel log: Xid and SXid, the driver's other words, memory, network, storage and hung tasks.

What a line means stands in the policy files beside the rules; here is only how a line is taken apart. A repeated event is
one finding with the time of its last line; an event that a later line takes back (a file server that answers again) is none.
"""

import re
from dataclasses import replace

from hangdog_models.errors import UnreadableEvidence
from hangdog_models.findings import Finding, Impact, LogEnd
from hangdog_models.reading.dates import last_lines
from hangdog_models.reading.hardware.event_dedup import EventDedup
from hangdog_models.reading.hardware.kernel_line import KernelLine, messages, relevant_lines, split
from hangdog_models.reading.hardware.pci import canonical
from hangdog_models.reading.limits import DEFAULTS, Limits
from hangdog_models.reading.printable import printable
from hangdog_models.reading.stacks.dumped_process import lines_of
from hangdog_models.rules import policy
from hangdog_models.rules.meaning import HardwareEvent, HardwarePart, Meaning

SOURCE = "kernel log"

#: Whoever pastes a line may have masked it: `PCI:...`, `PCI:xxxx:xx:xx`.
_ADDRESS = r"(?:PCI:)?(?:([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}(?:\.[0-9a-f])?)|[x.*:_]{2,24})"
#: `Xid (PCI:0000:01:00 GPU-I:05): 94, …`: what stands behind the address is the MIG instance.
_XID = re.compile(rf"NVRM: Xid \({_ADDRESS}([^)]{{0,64}})\): (\d{{1,5}})\b,?\s*(.*)", re.IGNORECASE | re.DOTALL)
_SXID = re.compile(
    rf"nvidia-nvswitch\d{{1,4}}: SXid \({_ADDRESS}[^)]{{0,64}}\): (\d{{1,6}})\b,?\s*(.*)", re.IGNORECASE | re.DOTALL
)
#: The line after an SXid, with its details: not a second event.
_FOLLOW_UP = re.compile(r"Severity \d|Data \{", re.IGNORECASE)
_PID = re.compile(r"pid=(?:'[^']{0,32}'|[^,\s]{0,32}),?\s*", re.IGNORECASE)
_NAME = re.compile(r"name=('[^']{0,64}'|[^,]{0,64}),?\s*", re.IGNORECASE)
_NOBODY = {"", "<unknown>", "unknown", "n/a"}
#: One frame of a kernel stack, `? ` before those that may be left over from earlier calls.
_FRAME = re.compile(r"\s{0,8}(?:\[<[0-9a-f]{1,16}>\] )?(?:\? )?([A-Za-z_][\w.]{0,120})\+0x[0-9a-f]{1,8}/0x")
#: Messages after a hung-task line within which its stack is looked for; the longest printed stack has 64 frames.
_TRACE_LINES = 80
#: Characters of a message that are read: the kernel cuts its own at 1,024.
_LONGEST = 2_048
#: Characters of the line that a finding quotes.
_QUOTED = 120
#: Between an Xid and the Xid 45 in whose line it stands as the cause.
_BEHIND = " behind Xid "
#: Impacts that speak against the machine.
_AGAINST = (Impact.CONVICTS, Impact.RESET, Impact.SUSPECTS)
#: How many lines of a head are looked at, and what share of them must bear a mark of the kernel.
_HEAD_LINES, _MOSTLY = 50, 0.5
_MARK = re.compile(
    r"\[\s{0,12}\+?\d{1,12}\.\d{6}\]|\[[A-Z][a-z]{2} ?\d{1,2} \d\d:\d\d\] |[\w.:-]{1,253}: kern:\s{1,10}[a-z]{3,8}: \[|\d{1,5},\d+,\d+,[^;]{1,40};|(?:[^\s:]{1,255} )?kernel: "
)
_DATED = re.compile(
    r"\[[^\[\]]{8,30} \d\d:\d\d:\d\d (?:[A-Z]{3,5} )?\d{4}\] |\S{1,12}\s{1,2}\d{1,2} \d\d:\d\d:\d\d\S* \S{1,255} kernel: |\S{19,40} \S{1,255} kernel: "
)
_LINE = re.compile(r"[^\n]+")
_NVIDIA = re.compile(r"NVRM: |nvidia-nvswitch\d{1,4}: ")


def recognises(head: str) -> bool:
    """Whether a text begins like a kernel log, or one of its first messages is one that this reader knows."""
    lines = [line for line, _ in zip(lines_of(head), range(_HEAD_LINES), strict=False)]
    marked = sum(bool(_MARK.match(line) or _DATED.match(line)) for line in lines)
    if lines and marked >= _MOSTLY * len(lines):
        return True
    messages = [line.text[:_LONGEST] for line in map(split, lines) if line is not None]
    return any(_NVIDIA.match(text) or _event_of(text) for text in messages)


def read(text: str, limits: Limits = DEFAULTS) -> tuple[Finding, ...]:
    """The findings of a kernel log, in the order of their first lines; raises UnreadableEvidence where it is too large."""
    if len(text) > limits.file_bytes:
        raise UnreadableEvidence(
            f"{len(text)} characters; {limits.file_bytes} are read (limit file_bytes)", code="too-large"
        )
    log = _KernelLog()
    relevant = relevant_lines(text, ("xid (", *{event.needle for event in policy.kernel().events}))
    for found in _LINE.finditer(text):
        # Of the ten thousands of lines of a log a few tell something: the rest is not even taken apart.
        if log.follows or relevant is None or found.start() in relevant:
            for raw in lines_of(found[0]):
                for line in messages(text, found.start(), raw):
                    log.take(line)
    return log.findings()


def end(text: str) -> LogEnd | None:
    """Until when a kernel log goes, by its last lines, of a machine yet to be named; None where no line of them tells."""
    at_s = uptime_s = None
    host = ""
    for raw in last_lines(text):
        line = split(raw[:_LONGEST].strip())
        if line is not None:
            at_s = at_s if line.at_s is None else line.at_s
            uptime_s = uptime_s if line.uptime_s is None else line.uptime_s
            host = line.host or host
    return None if at_s is None and uptime_s is None else LogEnd(SOURCE, host, at_s, uptime_s)


class _KernelLog:
    """What was read so far: the tally, the GPU a record names before it says what is wrong, the task whose stack follows."""

    def __init__(self) -> None:
        self._events = EventDedup(SOURCE)
        self._gpu = ""
        self._hung: tuple[HardwareEvent, str, KernelLine] | None = None
        self._patience = 0

    @property
    def follows(self) -> bool:
        """Whether the stack of a hung task is being looked for, which no needle tells."""
        return self._hung is not None

    def take(self, line: KernelLine) -> None:
        self._events.pass_by(line)
        text = line.text[:_LONGEST]
        if xid := _XID.match(text):
            self._xid(xid, line)
        elif switch := _SXID.match(text):
            if not _FOLLOW_UP.match(switch[3]):
                meaning = policy.xid().of_switch(switch[3])
                address = canonical(switch[1] or "")
                where = f"NVSwitch {address}" if address else "an NVSwitch"
                what = _sentence(f"SXid {switch[2]} on {where}", meaning, switch[3])
                self._events.add(f"SXid {switch[2]}", meaning.impact, what, line, address)
        elif known := _event_of(text):
            self._flush()
            self._event(*known, line)
        elif self._hung is not None:
            self._follow(text)

    def findings(self) -> tuple[Finding, ...]:
        self._flush()
        return _without_peers(self._events.findings())

    def _xid(self, xid: re.Match[str], line: KernelLine) -> None:
        address, number, message = canonical(xid[1] or ""), int(xid[3]), xid[4]
        if pid := _PID.match(message):
            message = message[pid.end() :]
        name = ""
        if named := _NAME.match(message):
            name, message = named[1].strip("'"), message[named.end() :]
        rules = policy.xid()
        meaning = rules.of(number, message)
        impact, code = meaning.impact, f"Xid {number}"
        if meaning.defers and meaning.when and (other := meaning.when.search(message)):
            impact = _at_most(impact, rules.of(int(other["other"]), "").impact)
            code = f"Xid {int(other['other'])}{_BEHIND}{number}" if int(other["other"]) != number else code
        part = printable(xid[2], 64)
        instance = f" ({part})" if part else ""
        what = _sentence(f"{code} on {f'GPU {address}' if address else 'a GPU'}{instance}", meaning, message)
        if name.lower() not in _NOBODY and impact in (Impact.CONVICTS, Impact.RESET):
            what += f"; {printable(name, 64)}, which the line names, is a victim that asked"
        self._events.add(code, impact, what, line, address)

    def _event(self, event: HardwareEvent, found: re.Match[str], line: KernelLine) -> None:
        groups = found.groupdict()
        device = canonical(groups.get("device") or "")
        peer = printable(groups.get("peer") or "", 255)
        if event.names_gpu:
            self._gpu = device
        if event.of_named_gpu and not device:
            device, self._gpu = self._gpu, ""
        if event.clears and not self._events.clear(event.clears, device or peer):
            return
        if event.meaning is None:
            return
        what = _sentence(f"{event.code}{_about(device, peer, groups.get('process'))}", event.meaning, found.string)
        if event.trace:
            self._hung, self._patience = (event, what, line), _TRACE_LINES
        else:
            peers = (peer,) if peer else ()
            self._events.add(event.code, event.meaning.impact, what, line, device, peers, event.echo)

    def _follow(self, text: str) -> None:
        """Looks for the first function of a hung task's stack that tells what it waits for."""
        frame = _FRAME.match(text)
        place = _place_of(frame[1]) if frame else None
        self._patience -= 1
        if place is not None:
            self._flush(place)
        elif self._patience <= 0:
            self._flush()

    def _flush(self, place: HardwarePart | None = None) -> None:
        if self._hung is None:
            return
        (event, what, line), self._hung = self._hung, None
        if place is not None:
            self._events.add(place.code, place.meaning.impact, f"{what}; {place.meaning.says}", line)
        elif event.meaning is not None:
            self._events.add(event.code, event.meaning.impact, what, line)


def _without_peers(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """The findings; GPUs whose programs fell for Xid 145 suffer where another's fell for Xid 149: it has the link's fault."""
    if not any(one.code == f"Xid 149{_BEHIND}45" and one.impact in _AGAINST for one in findings):
        return findings
    return tuple(
        replace(one, impact=Impact.VICTIM, what=f"{one.what}; a peer of the GPU with Xid 149")
        if one.code == f"Xid 145{_BEHIND}45" and one.impact in _AGAINST
        else one
        for one in findings
    )


def _event_of(text: str) -> tuple[HardwareEvent, re.Match[str]] | None:
    lower = text.lower()
    for event in policy.kernel().events:
        if event.needle in lower and (found := event.pattern.match(text)):
            return event, found
    return None


def _place_of(function: str) -> HardwarePart | None:
    return next((place for place in policy.kernel().places if function.startswith(place.functions)), None)


def _at_most(impact: Impact, other: Impact) -> Impact:
    """The bearing of the Xid that a line defers to, but no more than the line's own."""
    return impact if other in _AGAINST else other


def _about(device: str, peer: str, process: str | None) -> str:
    subject = device or peer or (printable(process, 64) if process else "")
    return f" ({subject})" if subject else ""


def _sentence(subject: str, meaning: Meaning, message: str) -> str:
    quoted = printable(message, _QUOTED)
    advice = f"; {meaning.action}" if meaning.action else ""
    return f"{subject}: {meaning.says}{advice}" + (f' ("{quoted}")' if quoted else "")
