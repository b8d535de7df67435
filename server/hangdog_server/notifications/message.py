"""What people are told: a title, three lines and a link, in words that nobody else can make do anything."""

from collections.abc import Iterable
from dataclasses import dataclass

from hangdog_models.reading.printable import printable

#: Lines of a message beside its link: it is read on a lock screen.
LINES = 3
#: Characters of a title and of a line: a mail's subject stays in one line, and a chat shows it without folding.
TITLE, LINE = 150, 300

#: What chats and mail programs would obey in names that a sick machine or a stranger chose, and what is shown in its place:
#: `<!channel>` and `@here` wake a company, `[text](address)` and bare addresses lead elsewhere, `![](address)` loads something.
_OBEYED = str.maketrans("<>@[]`*~|", "\u2039\u203a\uff20\uff3b\uff3d'\u2217\u223c\u00a6")


@dataclass(frozen=True, slots=True)
class Message:
    """One message; `link` is empty where nobody said how pages are reached."""

    title: str
    lines: tuple[str, ...]
    link: str = ""

    @property
    def body(self) -> str:
        """The lines and the link."""
        return "\n".join(filter(None, (*self.lines, self.link)))


def message(title: str, lines: Iterable[str], link: str) -> Message:
    """A message whose words are foreign and whose link is ours."""
    shown = [harmless(line, LINE) for line in lines if line.strip()]
    return Message(harmless(title, TITLE), tuple(shown[:LINES]), link)


def harmless(text: str, most: int) -> str:
    """Foreign text in one bounded line that mentions nobody, links nowhere, loads nothing and looks like nothing else."""
    return printable(printable(text, most).translate(_OBEYED).replace("://", ":/ /"), most)
