"""Takes secrets out of command lines before anything is stored or sent."""

import re
from collections.abc import Sequence

#: What stands in the place of a secret.
HIDDEN = "[redacted]"
#: Longest command line kept: enough for a launcher's call with its options, not for a generated list of files.
_MOST_CHARACTERS = 1000
#: Names whose value is a secret. `tokenizer` and `max-tokens` are none, `author`, `passes` and `monkey` neither.
_NAME = (
    r"(?:token(?![a-z])|secret|passw|passphrase|(?<![a-z])pass(?![a-z])|credential|(?<![a-z])creds?(?![a-z])"
    r"|auth(?!or(?!i[sz]))|bearer|cookie|(?<![a-z])jwt(?![a-z])|(?<![a-z])otp(?![a-z])|signature|(?<![a-z])sig(?![a-z])"
    r"|(?:(?<![a-z])|api|access|account|client|deploy|encryption|license|master|private|session|shared|signing|ssh|storage)"
    r"key(?![a-z])|(?<![a-z])pwd)"
)
_SECRET_NAME = re.compile(_NAME, re.IGNORECASE)
#: Said before the value in HTTP's header.
_SCHEME = r"(?:(?:bearer|basic|digest|negotiate|token|apikey)\s+)?"
_NAMED_VALUE = re.compile(
    rf"""({_NAME}[\w.-]*["']?\s*[=:]\s*)({_SCHEME}(?:"[^"]*"|'[^']*'|[^\s&;,"'}}]+))""",
    re.IGNORECASE,
)
#: A whole argument that gives one name a value, `--password=...` or `WANDB_API_KEY=...`: all behind it is the value.
_ASSIGNED = re.compile(r"-{0,2}([\w.@+-]+)=(.+)", re.DOTALL)
_BEARER = re.compile(r"\b(bearer\s+)[\w.~+/=-]+", re.IGNORECASE)
#: Up to the last `@`: a password may hold one, and a slash.
_USER_IN_URL = re.compile(r"(?<=://)[^\s\"'<>]+(?=@)")
#: Keys that say what they are: Hugging Face, GitHub, GitLab, OpenAI and Anthropic, Stripe, Slack, AWS, Google, NVIDIA NGC,
#: Weights & Biases, Databricks, Replicate, Groq, npm, PyPI, hangdog's own, age, JSON web tokens (and Neptune's, which begin
#: like them), private keys; and 40 or 64 hex digits (Weights & Biases, and whatever else is as long as a digest).
_KNOWN_SHAPE = re.compile(
    r"\b(?:hf_\w{8,}|gh[pousr]_\w{8,}|github_pat_\w+|gl(?:pat|rt|dt|cbt)-[\w-]+|sk-[\w-]{8,}|[srp]k_(?:live|test)_\w{8,}"
    r"|xox[a-z]-[\w-]+|A[KS]IA[0-9A-Z]{12,}|AIza[\w-]{30,}|ya29\.[\w-]+|nvapi-[\w-]{8,}|wandb_\w{8,}|dapi[0-9a-f]{32}"
    r"|r8_\w{20,}|gsk_\w{20,}|npm_\w{20,}|pypi-[\w-]{16,}|hangdog_[\w-]{20,}|AGE-SECRET-KEY-1\w+"
    r"|eyJ[\w-]+\.[\w-]+\.[\w-]*|eyJ[\w+/-]{20,}=*|[0-9a-fA-F]{64}|[0-9a-fA-F]{40})(?![0-9a-zA-Z])"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*",
    re.DOTALL,
)
#: Programs that run text that they are given behind `-c`, alone or with other letters (`bash -lc`).
_INTERPRETER = re.compile(r"(?:ba|da|k|z|fi|c|tc)?sh|python[\d.]*|pypy[\d.]*|node|perl|ruby|su|ssh")
_CODE = re.compile(r"-[a-zA-Z]{0,8}c")
#: Programs whose `-p` is no password: a partition, parents, a port.
_OTHER_P = frozenset(
    {"srun", "sbatch", "salloc", "squeue", "sinfo", "mkdir", "install", "cp", "rsync", "tar", "ssh", "ps"}
)
#: Programs that take the password in the same word: `mysql -pSECRET`.
_ATTACHED_P = re.compile(r"(?:mysql|mariadb)\w*|sshpass|7z[ar]?")
#: Options whose value may be `USER:PASSWORD`, or `USER%PASSWORD`.
_USER_OPTION = re.compile(r"-[uU]|--(?:proxy-)?user(?:name)?")
_USER = re.compile(r"([^\s:%]*[:%]).+", re.DOTALL)
#: A port, or a mapping of ports, which is what most programs mean by `-p`.
_PORT = re.compile(r"[\d:.-]+(?:/(?:tcp|udp))?")


def command_line(arguments: Sequence[str]) -> str:
    """Joins a command line with blanks, without the values of secrets and without program text (`python -c ...`)."""
    words: list[str] = []
    hide_next = program = ""
    for argument in arguments:
        if sum(map(len, words)) > _MOST_CHARACTERS:
            break
        if not argument.startswith("-") and "=" not in argument and (not words or not hide_next):
            name = argument[:200].rpartition("/")[2]
            program = name if not words or _known(name) else program
        if hide_next and not argument.startswith("--"):
            words.append(_behind(hide_next, argument))
            hide_next = ""
            continue
        hide_next, word = _option(program, argument)
        words.append(word)
    line = " ".join(words)
    return line if len(line) <= _MOST_CHARACTERS else line[: _MOST_CHARACTERS - 1] + "…"


def text(written: str) -> str:
    """One piece of text, cut to what could be kept of it, without the secrets it shows by their name or their shape."""
    written = written[: 2 * _MOST_CHARACTERS]
    written = _USER_IN_URL.sub(HIDDEN, written)
    written = _NAMED_VALUE.sub(lambda found: found[1] + HIDDEN, written)
    written = _BEARER.sub(lambda found: found[1] + HIDDEN, written)
    return _KNOWN_SHAPE.sub(HIDDEN, written)


def _known(name: str) -> bool:
    """Whether a word names a program whose options are read in a way of their own: behind `sudo`, `env`, `srun`."""
    return bool(_INTERPRETER.fullmatch(name) or _ATTACHED_P.fullmatch(name)) or name in _OTHER_P


def _option(program: str, argument: str) -> tuple[str, str]:
    """What is to be hidden of the next argument, and this one as it may be shown."""
    if argument == "-c" or (_CODE.fullmatch(argument) and _INTERPRETER.fullmatch(program)):
        return "[code]", argument
    if argument.startswith("-c") and _INTERPRETER.fullmatch(program):
        return "", "-c[code]"
    if len(argument) > 2 and argument.startswith("-p") and _ATTACHED_P.fullmatch(program):
        return "", f"-p{HIDDEN}"
    assigned = _ASSIGNED.fullmatch(argument[: 2 * _MOST_CHARACTERS])
    if assigned is not None:
        name, value = assigned[1], assigned[2]
        if _SECRET_NAME.search(name):
            return "", argument[: argument.index("=") + 1] + HIDDEN
        if argument.startswith(("--user", "--proxy-user")):
            return "", argument[: argument.index("=") + 1] + _behind("user", value)
        return "", text(argument)
    if argument == "-p" and program not in _OTHER_P:
        return "-p", argument
    if _USER_OPTION.fullmatch(argument):
        return "user", argument
    if argument.startswith("-") and _SECRET_NAME.search(argument[:_MOST_CHARACTERS]):
        return HIDDEN, text(argument)
    return "", text(argument)


def _behind(what: str, argument: str) -> str:
    """The value of an option as it may be shown."""
    if what == "-p":
        return argument if _PORT.fullmatch(argument[:_MOST_CHARACTERS]) and len(argument) < 22 else HIDDEN
    if what == "user":
        found = _USER.fullmatch(argument[: 2 * _MOST_CHARACTERS])
        return text(found[1]) + HIDDEN if found else text(argument)
    return what
