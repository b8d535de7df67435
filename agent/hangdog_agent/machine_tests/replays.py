"""Reads which commands this machine's own administrator lets a server have replayed, each under a name.

A server sends a name only, and never a command: what runs here is what stands in a file that nobody but root, or the
agent's own user, could have written.
"""

import os
import stat
import tomllib
from collections.abc import Mapping
from pathlib import Path

from hangdog_models.errors import UnreadableEvidence, WrongUse

Replays = Mapping[str, tuple[str, ...]]

#: Bytes of the file, names in it, words of a command, and characters of a word: several times what anybody writes.
_BYTES, _NAMES, _WORDS, _CHARACTERS = 64 << 10, 64, 64, 4096
_EXAMPLE = 'write it as llama = ["/opt/llama/bin/python", "/opt/llama/reproduce.py"] under [tests.replay]'


def read_replays(path: Path) -> Replays:
    """The commands by name, from `[tests.replay]` of a TOML file.

    Raises UnreadableEvidence where it cannot be read, and WrongUse where others may write it or it says something else.
    """
    try:
        with path.open("rb") as file:
            found = os.fstat(file.fileno())  # of what is open: a name could be given to another file meanwhile
            if found.st_uid not in (0, os.geteuid()) or stat.S_IMODE(found.st_mode) & 0o022:
                raise WrongUse(
                    f"others may change {path}, which says what the agent runs",
                    f"chown root {path}; chmod 644 {path}",
                    code="unsafe-file",
                )
            text = file.read(_BYTES + 1)
        if len(text) > _BYTES:
            raise WrongUse(f"{path} is longer than {_BYTES} bytes", _EXAMPLE, code="too-long")
        document = tomllib.loads(text.decode())
    except OSError as error:
        raise UnreadableEvidence(
            f"cannot read {path}: {error.strerror or error}", "check --replays", code="unreadable-file"
        ) from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise WrongUse(f"{path}: {error}", _EXAMPLE, code="damaged-toml") from error
    tests = document.pop("tests", None)
    table = tests.pop("replay", None) if isinstance(tests, dict) else None
    if not isinstance(table, dict) or tests or document or len(table) > _NAMES:  # a misspelt table is no empty one
        raise WrongUse(f"{path} has another table than [tests.replay]", _EXAMPLE, code="wrong-setting")
    return {name: _command(path, name, words) for name, words in table.items()}


def _command(path: Path, name: str, words: object) -> tuple[str, ...]:
    if not isinstance(words, list) or not 0 < len(words) <= _WORDS or not all(map(_word, words)):
        raise WrongUse(f"{path}: {name[:100]!r} is no list of words", _EXAMPLE, code="wrong-setting")
    if not words[0].startswith("/"):  # the agent's PATH is no part of what was allowed
        raise WrongUse(f"{path}: the program of {name[:100]!r} has no full path", _EXAMPLE, code="wrong-setting")
    return tuple(words)


def _word(word: object) -> bool:
    return isinstance(word, str) and len(word) <= _CHARACTERS and "\0" not in word
