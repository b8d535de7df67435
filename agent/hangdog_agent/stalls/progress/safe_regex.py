"""A regular expression from outside, changed so that no line can make it take long.

Python's engine tries all ways in which a line may be divided among the parts of a pattern, for years if need be, and holds
the interpreter's lock meanwhile. Here no part gives back what it took (every quantifier is possessive, every group atomic),
so there is one way only, and its cost is bounded by the length of the pattern times the square of the line's.
"""

import re

from hangdog_models.errors import WrongUse

#: Characters of a pattern; a step line's has tens.
LONGEST = 200
#: What a pattern is made of, each as it begins: an escape, a class, a group's head, a quantifier, or any character.
_PARTS = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*+\]|\((?:\?:)?+|[*+?]|\{\d{0,4}(?:,\d{0,4})?\}|.", re.DOTALL)
_QUANTIFIER = re.compile(r"[*+?]|\{\d{0,4}(?:,\d{0,4})?\}")
#: Most times a part may be asked for: `(a{999}){999}` would take long by itself.
_MOST_TIMES = 64


def safe(pattern: str) -> re.Pattern[str]:
    """The pattern, to be searched for in a line; raises WrongUse where it is none, or cannot be made safe."""
    if len(pattern) > LONGEST:
        raise WrongUse(
            f"the pattern has {len(pattern)} characters", f"write one of at most {LONGEST}", code="wrong-pattern"
        )
    if re.search(r"(?<!\\)\.[*+](?!$)", pattern):
        raise WrongUse(
            "`.*` and `.+` leave nothing for what follows them",
            "leave them out: the whole line is searched",
            code="wrong-pattern",
        )
    made: list[str] = []
    parts = _PARTS.findall(pattern)
    for number, part in enumerate(parts):
        before = parts[number - 1] if number else ""
        if part.startswith("("):
            if parts[number + 1 : number + 2] == ["?"]:
                raise WrongUse(
                    "the pattern has a group that begins with `(?`",
                    "use plain groups, or `(?:…)`",
                    code="wrong-pattern",
                )
            made.append("(?>")
        elif _QUANTIFIER.fullmatch(part) and number:
            if _QUANTIFIER.fullmatch(before):
                raise WrongUse(
                    f"`{before}{part}`: a quantifier on another", "give each part one quantifier", code="wrong-pattern"
                )
            if any(int(times) > _MOST_TIMES for times in re.findall(r"\d+", part)):
                raise WrongUse(
                    f"`{part}` repeats too often", f"ask for at most {_MOST_TIMES}, or use `+`", code="wrong-pattern"
                )
            made.append(f"{part}+")
        elif re.fullmatch(r"\\[1-9]", part):
            raise WrongUse(f"`{part}` refers to a group", "write out what it must match", code="wrong-pattern")
        else:
            made.append(part)
    try:
        return re.compile("".join(made), re.ASCII)
    except (re.error, OverflowError, RecursionError) as error:
        raise WrongUse(
            f"not a regular expression: {error}", "see docs/agent.md for one that works", code="wrong-pattern"
        ) from None
