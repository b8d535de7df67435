"""Takes the logs of containers apart: Docker's `json-file`, the lines of the CRI (containerd, CRI-O), what Docker Compose shows.

`{"log":"step 3\\n","stream":"stderr","time":"2026-01-02T03:04:05.6Z"}` and `2026-01-02T03:04:05.6Z stderr F step 3`. Both cut long
lines into pieces: Docker's lack the end of the line, the CRI's bear a `P`. `docker compose logs` puts `trainer-1  | ` before
each line.
"""

import json
import re
from collections.abc import Iterator

from hangdog_models.reading.limits import DEFAULTS, Limits

_DOCKER = re.compile(r'\s{0,8}\{"(?:log|stream|time|attrs)":')
_TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)"
_CRI = re.compile(rf"({_TIME}) (stdout|stderr) ([FP])(?::[FP])? ?(.*)", re.DOTALL)
_STAMP = re.compile(_TIME)
_COMPOSE = re.compile(r"([A-Za-z0-9][\w.-]{0,127}) {1,32}\| ?(.*)")


def recognises(head: str) -> bool:
    """Whether a text begins like the log of a container."""
    first = head.lstrip().partition("\n")[0]
    return _CRI.match(first) is not None or (_DOCKER.match(first) is not None and _of_docker(first) is not None)


def recognises_compose(head: str) -> bool:
    """Whether nearly all lines that a text begins with have a container's name and a bar before them."""
    lines = [line for line in head.split("\n")[:-1] if line.strip()]
    marked = sum(_COMPOSE.match(line) is not None for line in lines)
    return marked > 1 and 10 * marked >= 9 * len(lines)


def one_by_one(text: str, limits: Limits = DEFAULTS) -> str:
    """What each container printed, one container after another, so that no stack is torn apart."""
    printed: dict[str, list[str]] = {}
    for line in text[: limits.file_bytes].split("\n"):
        if found := _COMPOSE.match(line.removesuffix("\r")):
            printed.setdefault(found[1], []).append(found[2])
    return "".join(f"{line}\n" for lines in printed.values() for line in lines)


def joined(text: str, limits: Limits = DEFAULTS) -> str:
    """The log as whole lines of the CRI, in the order of their beginnings; what is none stays as it is."""
    lines: list[list[str]] = []
    begun: dict[str, list[str]] = {}  # the line of each stream that lacks its end
    for raw in text[: limits.file_bytes].split("\n"):
        piece = _of_docker(raw) or _of_cri(raw)
        if piece is None:
            lines += [[raw]] if raw.strip() else []
            continue
        at, stream, complete, words = piece
        line = begun.pop(stream, None)
        if line is None:
            line = [f"{at} {stream} F "]
            lines.append(line)
        line.append(words)
        if not complete:
            begun[stream] = line
    return "".join(f"{''.join(line)}\n" for line in lines)


def plain(text: str) -> str:
    """The lines of `joined` without what the runtime put before them."""
    return "".join(f"{whole[4] if (whole := _CRI.match(line)) else line}\n" for line in _lines(text))


def _lines(text: str) -> Iterator[str]:
    yield from text.removesuffix("\n").split("\n") if text else ()


def _of_docker(line: str) -> tuple[str, str, bool, str] | None:
    """Time, stream, whether the line ends here, and what was printed."""
    if not _DOCKER.match(line):
        return None
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(entry, dict) or not isinstance(words := entry.get("log"), str):
        return None
    at, stream = entry.get("time"), entry.get("stream")
    if not isinstance(at, str) or not _STAMP.fullmatch(at):
        return None
    ended = words.removesuffix("\n").removesuffix("\r")
    return at, "stderr" if stream == "stderr" else "stdout", words.endswith("\n"), ended.replace("\n", " ")


def _of_cri(line: str) -> tuple[str, str, bool, str] | None:
    found = _CRI.match(line)
    return (found[1], found[2], found[3] == "F", found[4].removesuffix("\r")) if found else None
