"""Follows Python tracebacks through a log, so that the line that ends one can be told from a line that looks like it."""

import re
from dataclasses import dataclass

from hangdog_models.findings import Impact

_FRAME = re.compile(r'\s{0,200}File ".{1,4000}", line \d{1,9}(?:, in |$)')
_ENDS = re.compile(
    r"((?:\w{1,128}\.){0,16}[A-Z]\w{0,128}(?:Error|Exception|Interrupt|Exit|Timeout|Fault|Failure))(?:: ?(.*))?$"
)
#: Exceptions that only a program's own steps raise, whatever their message speaks of.
_OF_THE_PROGRAM = frozenset(
    f"{name}Error"
    for name in (
        "Assertion", "Attribute", "FileNotFound", "Import", "Index", "JSONDecode", "Key", "ModuleNotFound", "Name",
        "NotImplemented", "Recursion", "Syntax", "Type", "UnboundLocal", "UnicodeDecode", "Value", "ZeroDivision",
    )
)  # fmt: skip
#: What XLA says of a program that it refuses: these need no other process.
_REFUSED = re.compile(r"(?:INVALID_ARGUMENT|RESOURCE_EXHAUSTED|UNIMPLEMENTED|OUT_OF_RANGE)\b")
#: Words of a device, of communication, or of something remote. `cuda:0` and `torch.cuda` are a program's own words.
_BELOW = re.compile(
    r"CUDA|HIP\b|\bNPU\b|\bnpu[A-Z]|\baclrt|\bACL\b|NCCL|RCCL|HCCL|\bXLA\b|\bMPI\b|\bibv_"
    r"|\bsynStatus\b|\bHPU\b|\bPT_(?:DEVMEM|SYNHELPER|HPU)|\b(?:UR|ZE|PI)_(?:RESULT_)?ERROR|\bUR error\b|\bSYCL\b|\bsycl::|(?i:\blevel[_ -]zero\b|\boneccl\b|\bdevice[_ ]lost\b)"
    r"|(?i:gloo\b|hccl|rabit\b|/collective/|socket|timed[ -]?out|time-?out|deadline|connection|heartbeat|unavailable|unreachable)"
    r"|(?i:\bother (?:end|side)\b|\bremote (?:end|side|process|peer)\b|\bpeers?\b|broken pipe|collective ops? (?:is|are|was|were) aborted)"
)
_OTHERS = r"\b(?:rank|worker|process|node|peer|task|host|machine|member|replica|participant)(?:s|es)?\b"
_LACK = (
    r"(?:(?:did|do|does|ha[sv]e?|had|could|would)(?: not|n't)|never|fail(?:ed|s)? to)(?: yet| all)?"
    r" (?:finish|complete|come|came|join|arrive|respond|answer|connect|repl(?:y|ied)|reach|register|check(?:ed)? in|report(?:ed)? back)"
)
#: Words by which an error says that others did not come or did not finish.
_OTHERS_LACK = re.compile(
    rf"(?i)\btimed[ -]?out (?:\w{{1,20}} ){{0,4}}(?:wait|for\b)|\btime-?out (?:\w{{1,20}} ){{0,4}}waiting\b|{_OTHERS}.{{0,60}}?\b{_LACK}"
    rf"|\bnot all (?:\w{{1,20}} )?{_OTHERS}|\bonly \d{{1,7}} (?:of|out of|/) \d{{1,7}} {_OTHERS}.{{0,40}}?\b(?:joined|arrived|came|connected|registered|finished)"
)
#: How torch's errors of a meeting of launchers begin: it closed, or one did not come, for a reason that these do not tell.
_MEETING = "Rendezvous"
#: Characters of a message in which such a word is looked for.
_HEAD = 1_000


def impact_of(name: str, message: str) -> Impact:
    """What an exception that no row knows says, by its name and its message.

    An error of a layer below the program mostly comes from elsewhere: it blames nobody by itself. Nor does one that says that
    others did not come, whatever its class.
    """
    if others_lack(message) or name.startswith(_MEETING):
        return Impact.VICTIM
    if name in _OF_THE_PROGRAM or _REFUSED.match(message):
        return Impact.PROGRAM
    return Impact.VICTIM if _BELOW.search(f"{name}: {message[:_HEAD]}") else Impact.PROGRAM


def others_lack(message: str) -> bool:
    """Whether a message says that others did not come, or did not finish."""
    return _OTHERS_LACK.search(message[:_HEAD]) is not None


@dataclass(slots=True)
class Traceback:
    """Whether the lines of one process stand inside a traceback."""

    inside: bool = False

    def ends_with(self, line: str) -> tuple[str, str] | None:
        """The exception (without its module) and its message where a line ends the traceback; takes note of the others."""
        if 'File "' in line and _FRAME.match(line):
            self.inside = True
            return None
        if not self.inside or line[:1].isspace() or not line:
            return None
        found = _ENDS.match(line)
        if found is None:
            return None
        self.inside = False
        return found[1].rpartition(".")[2], found[2] or ""
