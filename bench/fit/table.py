"""A fit written into the text of the table of likelihoods, beside what people wrote there."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from fit.traced import Row
from hangdog_models.rules.likelihoods import Likelihood, parse

#: Keys that a fit writes; whatever stood there before is gone.
KEYS = ("judged", "error", "scenes", "worlds")


@dataclass(frozen=True, slots=True)
class Support:
    """What scenes say of one number: the standard error of its logarithm, how many scenes it moves, and of which worlds."""

    error: float
    scenes: int
    worlds: tuple[str, ...]


def written(
    text: str, judged: Mapping[str, Likelihood], fitted: Mapping[str, Likelihood], support: Mapping[Row, Support]
) -> str:
    """The text of a table with its numbers as `fitted`, those `judged` where they differ, and what supports each."""
    lines: list[str] = []
    now = parse(text)
    name = ""
    for line in text.splitlines():
        key = line.partition(" = ")[0]
        if key == "name":
            name = line.partition(" = ")[2].strip('"')
        if key in KEYS:
            continue
        if key != "value" or name not in fitted:
            lines.append(line)
            continue
        # what is not moved stays as it was written
        lines.append(line if now[name].value == fitted[name].value else f"value = {_number(fitted[name].value)}")
        lines += _beside(name, judged[name], fitted[name], support)
    return "\n".join(lines) + "\n"


def _beside(name: str, judged: Likelihood, fitted: Likelihood, support: Mapping[Row, Support]) -> Iterator[str]:
    if judged.value != fitted.value:
        yield f"judged = {_number(judged.value)}"
    numbers = [f"{name}.{cause}" for cause in fitted.value] if isinstance(fitted.value, Mapping) else [name]
    of = {number.removeprefix(name).removeprefix("."): support[number] for number in numbers if number in support}
    if not of:
        return
    yield f"error = {_each({cause: f'{one.error:.2f}' for cause, one in of.items()})}"
    yield f"scenes = {_each({cause: str(one.scenes) for cause, one in of.items()})}"
    worlds = sorted({world for one in of.values() for world in one.worlds})
    yield f"worlds = [{', '.join(_quoted(worlds))}]"


def _number(value: float | Mapping[str, float]) -> str:
    return _each(
        {cause: _short(one) for cause, one in value.items()} if isinstance(value, Mapping) else {"": _short(value)}
    )


def _short(number: float) -> str:
    """A number with as many digits as it has, at most three of those that count, as tables are written by hand."""
    text = f"{number:.3g}"
    plain = repr(float(text)) if "e" in text else text
    return plain if "." in plain or "e" in plain else f"{plain}.0"


def _each(of: Mapping[str, str]) -> str:
    if set(of) == {""}:
        return of[""]
    return "{ " + ", ".join(f"{cause} = {text}" for cause, text in of.items()) + " }"


def _quoted(words: Iterable[str]) -> Iterator[str]:
    return (f'"{word}"' for word in words)
