"""Takes a text apart that holds the stacks of several ranks below headers of their own: `Rank 3: …`, `16 ranks: [0-15]`.

So write PyTorch's debug server, tools that merge the stacks of ranks that stand at the same place, and people.
"""

import re
from dataclasses import dataclass, field

from hangdog_models.errors import UnreadableEvidence, WrongUse
from hangdog_models.ranks import Rank, parse_ranks
from hangdog_models.reading.limits import Limits
from hangdog_models.reading.stacks import bare_frames
from hangdog_models.reading.stacks.dumped_process import LONGEST_LINE

_SET = r"[\[({]?[ \t]?(\d{1,7}(?:[ \t]?[,-][ \t]?\d{1,7}){0,8192})[ \t]?[\])}]?"
#: A rank on a machine or in a group is none of the job's.
_RANKS = re.compile(
    r"(?<![\w-])(?<!local[-_. ])(?<!node[-_. ])(?<!group[-_. ])(?:global[-_ ])?ranks?[ \t]?[:=#_-]?[ \t]{0,2}" + _SET,
    re.IGNORECASE,
)
#: `[0-6] (7 processes)`, as padb writes it.
_COUNTED = re.compile(_SET + r" \(\d{1,7} (?:processes|process|ranks?|tasks?)\)", re.IGNORECASE)
#: A header stands alone in its line: what may stand before it are some words and marks, behind it an address or a remark.
_BEFORE = re.compile(r"[^\"/]{0,80}")
_BEHIND = re.compile(
    r"\]?[ \t]*(?::?[ \t]?(?:https?://\S{1,400}|\([^()]{0,200}\)|(?:on|at|host|pid|node)\b[^\"]{0,120}))?[^\w\"]{0,80}",
    re.IGNORECASE,
)
_ADDRESS = re.compile(r"https?://([A-Za-z0-9][\w.-]{0,252})(?::\d{1,5})?(?:/|\s|$)")
#: Names by which every machine calls itself.
_ITSELF = ("localhost", "127.", "0.0.0.0")
#: The longest header: a set of ranks without any order has some thousand numbers.
_LONGEST = 1 << 13
#: Branches of a tree inside one another.
_DEEPEST = 256
#: Lines below a header among which a stack must begin, not counting blank ones and drawn ones.
_NEAR = 6
#: How the stacks of tools begin, beside frames.
_STACK = re.compile(
    r"\s*(?:\(gdb\) )?(?:Process \d+: |Thread (?:0x[0-9a-fA-F]+|\d+) \(|Current thread 0x|Traceback (?:for thread|\(most recent call first)"
    r"|Stack \(most recent|Fatal Python error|Timeout \(|PID \d+ - |TID \d+:|#\d+ |\[<[0-9a-f]+>\] |\[New LWP |Python v\d|Thread 0x|(?:\* )?thread #\d|~~~* Stack of |# Thread)"
)


@dataclass(slots=True)
class Section:
    """The lines below one header, and whose stacks they hold; `host` where the header names the machine in an address."""

    ranks: set[Rank]
    indent: int
    host: str = ""
    lines: list[str] = field(default_factory=list)


def sections_of(text: str, limits: Limits) -> tuple[Section, ...]:
    """The sections with a stack in them; none where the text has no headers. Raises UnreadableEvidence past a limit.

    A tree of branches (`[0-15]`, inside of it `[0]` and `[1-15]`) comes out as its branches, each with the frames above it.
    """
    found: list[Section] = []
    named = 0
    for line in text.split("\n"):
        line = line[:LONGEST_LINE]
        ranks = _ranks(line)
        if ranks:
            named += len(ranks)
            if named > limits.files:  # each of them could be a file of its own
                raise UnreadableEvidence(f"stacks of more than {limits.files} ranks (limit files)", code="too-many")
            found.append(Section(set(ranks), len(line) - len(line.lstrip()), _host(line)))
        elif found:
            found[-1].lines.append(line)
    _branch(found, limits)
    return tuple(section for section in found if section.ranks and _begins(section))


def _ranks(line: str) -> tuple[Rank, ...]:
    if not 5 <= len(line) <= _LONGEST:
        return ()
    header = _RANKS.search(line) if "ank" in line or "ANK" in line else None
    if header is None and line.rstrip(" -=\t").endswith(")"):
        header = _COUNTED.search(line)
    if header is None or not _BEFORE.fullmatch(line, 0, header.start()) or not _BEHIND.fullmatch(line, header.end()):
        return ()
    try:
        return parse_ranks(header[1].replace("\t", ""))
    except WrongUse:
        return ()


def _host(header: str) -> str:
    """The machine in a header's address: the debug server gives each rank's own."""
    address = _ADDRESS.search(header)
    return address[1] if address and not address[1].startswith(_ITSELF) else ""


def _begins(section: Section) -> bool:
    """Whether a stack begins soon below the header."""
    near = [line for line in section.lines[: 4 * _NEAR] if any(letter.isalnum() for letter in line)][:_NEAR]
    return any(_STACK.match(line) or bare_frames.is_frame(line) for line in near)


def _branch(sections: list[Section], limits: Limits) -> None:
    """Gives sections that are drawn as branches of another its frames before theirs, and takes their ranks from it."""
    above: list[Section] = []
    copied = 0
    for section in sections:
        while above and (above[-1].indent >= section.indent or not section.ranks <= above[-1].ranks):
            above.pop()
        if above and len(above) < _DEEPEST:
            copied += len(above[-1].lines)
            if copied > limits.values:
                raise UnreadableEvidence(
                    f"a tree of stacks with more than {limits.values} frames (limit values)", code="too-many"
                )
            section.lines = [*above[-1].lines, *section.lines]
            for outer in above:
                outer.ranks -= section.ranks
        above.append(section)
