"""One file's evidence with whose it is."""

from dataclasses import dataclass

from hangdog.evidence.content import Content
from hangdog.evidence.naming import Name


@dataclass(frozen=True, slots=True)
class Placed:
    """One file's evidence with whose it is. `from_text`: its text says that, not its name; another file may say more of the same."""

    name: Name
    content: Content
    from_text: bool = False
