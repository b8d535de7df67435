"""Takes secrets out of command lines before anything is stored or sent."""

import re
from collections.abc import Sequence

#: What stands in the place of a secret.
HIDDEN = "[redacted]"
#: Longest command line kept: enough for a launcher's call with its options, not for a generated list of files.
_MOST_CHARACTERS = 1000
#: Names whose value is a secret. `tokenizer` and `max-tokens` are none, `author` neither.
_NAME = (
    r"(?:token(?![a-z])|secret|passw|passphrase|credential|auth(?!or)|bearer|signature|(?<![a-z])sig(?![a-z])"
    r"|(?:(?<![a-z])|api|access|private|license|ssh)key(?![a-z])|(?<![a-z])pwd)"
)
_SECRET_NAME = re.compile(_NAME, re.IGNORECASE)
_NAMED_VALUE = re.compile(
    rf"""({_NAME}[\w.-]*["']?\s*[=:]\s*)("[^"]*"|'[^']*'|[^\s&;,"'}}]+)""",
    re.IGNORECASE,
)
_USER_IN_URL = re.compile(r"(?<=://)[^/@\s]+(?=@)")
#: Keys that say what they are: Hugging Face, GitHub, GitLab, OpenAI, Slack, AWS, JSON web tokens, and 40 hex digits (Weights & Biases).
_KNOWN_SHAPE = re.compile(
    r"\b(?:hf_\w{8,}|gh[pousr]_\w{8,}|github_pat_\w+|glpat-[\w-]+|sk-[\w-]{8,}|xox[a-z]-[\w-]+|A[KS]IA[0-9A-Z]{12,}"
    r"|eyJ[\w-]+\.[\w-]+\.[\w-]*|[0-9a-fA-F]{40})\b"
)


def command_line(arguments: Sequence[str]) -> str:
    """Joins a command line with blanks, without the values of secrets and without program text (`python -c ...`)."""
    words: list[str] = []
    hide_next = ""
    for argument in arguments:
        if sum(map(len, words)) > _MOST_CHARACTERS:
            break
        if hide_next and not argument.startswith("--"):
            words.append(hide_next)
            hide_next = ""
            continue
        hide_next = ""
        if argument == "-c":
            hide_next = "[code]"
        elif argument.startswith("-") and "=" not in argument and _SECRET_NAME.search(argument):
            hide_next = HIDDEN
        words.append(text(argument))
    line = " ".join(words)
    return line if len(line) <= _MOST_CHARACTERS else line[: _MOST_CHARACTERS - 1] + "…"


def text(written: str) -> str:
    """One piece of text, cut to what could be kept of it, without the secrets it shows by their name or their shape."""
    written = written[: 2 * _MOST_CHARACTERS]
    written = _USER_IN_URL.sub(HIDDEN, written)
    written = _NAMED_VALUE.sub(lambda found: found[1] + HIDDEN, written)
    return _KNOWN_SHAPE.sub(HIDDEN, written)
