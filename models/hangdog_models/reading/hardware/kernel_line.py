"""Takes a line of a kernel log apart: its clock, and the message without whatever a tool wrote before it.

Known writings: /dev/kmsg records, `dmesg` plain, -T, -x, -r, -H and --time-format iso, `journalctl` short, short-iso,
short-precise, short-monotonic, short-unix and short-full, syslog files with and without a year, `talosctl dmesg`, and each
of these as `grep` writes it, with the name of its file.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from hangdog_models.reading.dates import LAST_LINES, SOME_YEAR, moment, month_of, written_out
from hangdog_models.reading.printable import printable

#: Facility of the kernel: what a user writes into /dev/kmsg gets another one, so nobody can talk a machine out of a job.
_KERNEL = 0

_RECORD = re.compile(r"(\d{1,5}),\d{1,20},(\d{1,17}),[^;]{1,40};(.*)", re.DOTALL)
_PRIORITY = re.compile(r"<(\d{1,5})>")
_DECODED = re.compile(r"([a-z]{3,8}\d?)\s{0,4}:(?:emerg|alert|crit|err|warn|notice|info|debug)\s{0,4}: ")
_UPTIME = re.compile(r"\[\s{0,12}(\d{1,12}\.\d{1,9})\]\s?")
_CALLER = re.compile(r"\[\s{0,8}[CT]\d{1,9}\]\s?")
#: `dmesg -H`: a date without seconds, and on the lines below it the seconds since the line before.
_HOUR = re.compile(r"\[([A-Z][a-z]{2}) ?(\d{1,2}) (\d\d):(\d\d)\]\s?")
_RELATIVE = re.compile(r"\[\s{0,12}\+\d{1,7}\.\d{1,9}\]\s?")
_CUT = re.compile(r"\[\.\.\.\]\s?")
_CLOCK = r"(\d{1,2}):(\d\d):(\d\d)"
_HUMAN = re.compile(r"\[([^\[\]]{15,40}\d{4})\]\s?")
_ISO = re.compile(
    rf"(?:[A-Za-z]{{3}} )?(\d{{4}})-(\d\d)-(\d\d)[T ]{_CLOCK}(?:([.,])(\d{{1,9}}))?\s?(Z|UTC|[+-]\d\d:?\d\d)? ?"
)
# months of any language, so that the message is found: the clock of one that is not English stays unknown
_SYSLOG = re.compile(rf"([^\s\d:\[]{{3,9}}|\d{{1,2}}月)\s{{1,2}}(\d{{1,2}}) {_CLOCK}(?:\.(\d{{1,9}}))? ")
_TALOS = re.compile(
    rf"([0-9A-Za-z][\w.:-]{{0,252}}): (\w{{1,8}}):\s{{1,10}}[a-z]{{3,8}}: \[(\d{{4}})-(\d\d)-(\d\d)T{_CLOCK}(?:\.(\d{{1,9}}))?(Z)\]: "
)
#: The name of a file that `grep` writes before a line, and the line's number; a date or a clock follows.
_GREP = re.compile(
    r"(?:[\w.@+/-]{1,255}:)?(?:\d{1,9}:)?(?=[A-Z][a-z]{2} {1,2}\d{1,2} \d\d:\d\d:\d\d |\d{4}-\d\d-\d\dT\d|\[\s{0,12}\d{1,12}\.\d|<\d{1,5}>)"
)
_UNIX = re.compile(r"(\d{9,10}\.\d{1,9}) ")
_NAME = re.compile(r"[0-9A-Za-z][\w.-]{0,252}")
_TAG = re.compile(r"([^\s:]{1,255}) ([^\s:\[\]]{1,64})(?:\[\d{1,9}\])?: ")
_HOST_KERNEL = re.compile(r"(?:([^\s:]{1,255}) )?kernel: ")
#: NVIDIA's driver writes one record of several lines: that of a GPU which is gone. `dmesg` and `journalctl` pad those below
#: the first, /dev/kmsg and rsyslog write the line ends out. No other message is taken apart so: it may hold a user's text,
#: such as the name of a process or of a file.
_DRIVER = "NVRM: "
_RECORD_OF_GPU = re.compile(r"NVRM: The NVIDIA GPU [0-9a-f:.]{7,20}\s{0,4}(?:\\x0a|#012|$)", re.IGNORECASE)
_BELOW = re.compile(rf"[ \t]{{2,80}}(?={_DRIVER})")
_LINE_END = re.compile(r"\\x0a|#012")
#: Lines of one record below its first.
_MOST_BELOW = 8


@dataclass(frozen=True, slots=True)
class KernelLine:
    """One message. `at_s` is Unix time, of a clock without a zone as if it were UTC: right for differences on one machine.

    `yearless_s` orders dates that come without a year among each other, and means nothing beyond that. `host` is the machine
    that wrote it, where the line says so.
    """

    text: str
    at_s: float | None = None
    uptime_s: float | None = None
    yearless_s: float | None = None
    host: str = ""


def split(line: str) -> KernelLine | None:
    """The message of a line and its time; None for what is not the kernel's own: other programs, users, other facilities."""
    record = _RECORD.fullmatch(line)
    if record is not None:
        return KernelLine(record[3], uptime_s=int(record[2]) / 1e6) if int(record[1]) >> 3 == _KERNEL else None
    if talos := _TALOS.match(line):
        return _of_talos(talos, line[talos.end() :])
    at = uptime = yearless = None
    name = ""
    grep = _GREP.match(line)
    rest = line[grep.end() :] if grep else line
    if priority := _PRIORITY.match(rest):
        if int(priority[1]) >> 3 != _KERNEL:
            return None
        rest = rest[priority.end() :]
    if decoded := _DECODED.match(rest):
        if decoded[1] != "kern":
            return None
        rest = rest[decoded.end() :]
    tagged = False
    if iso := _ISO.match(rest):
        at, rest = _of_iso(iso), rest[iso.end() :]
        tagged = iso[7] != ","  # dmesg writes a comma before the fraction and no tag, others a point and a tag
    elif human := _HUMAN.match(rest):
        at, rest = written_out(human[1]), rest[human.end() :]
    elif syslog := _SYSLOG.match(rest):
        yearless = moment(SOME_YEAR, month_of(syslog[1]), syslog[2], syslog[3], syslog[4], syslog[5])
        rest, tagged = rest[syslog.end() :], True
    elif unix := _UNIX.match(rest):
        at, rest, tagged = float(unix[1]), rest[unix.end() :], True
    if tagged and (tag := _TAG.match(rest)) and tag[2] != "kernel":
        return None
    if host := _HOST_KERNEL.match(rest):
        name, rest = host[1] or "", rest[host.end() :]
    if measured := _UPTIME.match(rest):
        uptime, rest = float(measured[1]), rest[measured.end() :]
        if host := _HOST_KERNEL.match(rest):  # journalctl -o short-monotonic writes them the other way round
            name, rest = host[1] or name, rest[host.end() :]
    elif hour := _HOUR.match(rest):
        yearless = moment(SOME_YEAR, month_of(hour[1]), hour[2], hour[3], hour[4], "0")
        rest = rest[hour.end() :]
    elif relative := _RELATIVE.match(rest):
        rest = rest[relative.end() :]
    elif cut := _CUT.match(rest):
        rest = rest[cut.end() :]
    if caller := _CALLER.match(rest):
        rest = rest[caller.end() :]
    return KernelLine(rest, at, uptime, yearless, printable(name, 253) if _NAME.fullmatch(name) else "")


def _of_talos(prefix: re.Match[str], message: str) -> KernelLine | None:
    """A line of `talosctl dmesg`, which begins with the machine's address."""
    if prefix[2] != "kern":
        return None
    at = moment(int(prefix[3]), int(prefix[4]), prefix[5], prefix[6], prefix[7], prefix[8], prefix[10])
    return KernelLine(
        message, None if at is None else at + float(f"0.{prefix[9] or 0}"), host=printable(prefix[1], 253)
    )


def messages(text: str, start: int, raw: str) -> tuple[KernelLine, ...]:
    """The messages of a line that begins there: mostly one, several where the driver's record of a GPU is in it, or none."""
    padded = _BELOW.match(raw)
    first = split(_first_line(text, start) if padded else raw)
    if first is None or not _RECORD_OF_GPU.match(first.text):
        return () if first is None or padded else (first,)
    parts = _LINE_END.split(raw[padded.end() :] if padded else first.text)
    return tuple(replace(first, text=part) for part in parts if part.startswith(_DRIVER))


def _first_line(text: str, start: int) -> str:
    """The line that those padded above `start` belong to; empty where there is none near."""
    for _ in range(_MOST_BELOW):
        end = max(start - 1, 0)
        start = text.rfind("\n", 0, end) + 1
        if not text[start : start + 1].isspace():
            return text[start:end]
    return ""


def _of_iso(iso: re.Match[str]) -> float | None:
    at = moment(int(iso[1]), int(iso[2]), iso[3], iso[4], iso[5], iso[6], iso[9])
    return None if at is None else at + float(f"0.{iso[8] or 0}")


def relevant_lines(text: str, needles: Iterable[str]) -> set[int] | None:
    """Where the lines begin that hold one of the texts (in lower case), say that the kernel started, or stand at the end.

    None for all lines: then the text cannot be searched in lower case.
    """
    lower = text.lower()
    if len(lower) != len(text):  # a letter that has no lower case of one character: places in the two texts differ
        return None
    begins: set[int] = set()
    for needle in ("linux version ", *needles):
        at = lower.find(needle)
        while at >= 0:
            begins.add(lower.rfind("\n", 0, at) + 1)
            end = lower.find("\n", at)
            at = lower.find(needle, end) if end >= 0 else -1
    end = len(text)
    for _ in range(LAST_LINES):
        end = text.rfind("\n", 0, end)
        begins.add(end + 1)
        if end < 0:
            break
    return begins
