"""What may be written to a person's terminal: evidence comes from sick machines and strangers, and a terminal obeys it."""

from typing import TextIO

from rich.console import Console

from hangdog_models.reading.printable import escaped

#: Columns used when the output is a file or a pipe: wide enough for one frame a line, narrow enough to read in a pager.
PIPE_WIDTH = 120
#: Characters of one foreign sentence: no honest one is as long, and a name of 100 kB would push the answer off the screen.
SENTENCE = 2000


def printable(text: str) -> str:
    """The text with everything a terminal would act on, or hide, written as an escape: `\\x1b`, `\\n`, `\\u202e`; cut after SENTENCE."""
    return escaped(text) if len(text) <= SENTENCE else f"{escaped(text[:SENTENCE])}…"


def console_for(stream: TextIO) -> Console:
    """A console on this stream: coloured and as wide as the terminal, or plain and PIPE_WIDTH wide where there is none."""
    return Console(
        file=stream, width=None if stream.isatty() else PIPE_WIDTH, highlight=False, markup=False, emoji=False
    )
