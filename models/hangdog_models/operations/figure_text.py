"""A figure in a few words, the same in a terminal and on a page."""

from hangdog_models.operations.report import Figure, Unit

#: What stands where a figure is not known.
UNKNOWN = "unknown"


def value(figure: Figure, number: float | None) -> str:
    """A number of the figure in its unit; `unknown` where there is none."""
    if number is None:
        return UNKNOWN
    return f"{100 * number:.1f}%" if figure.unit is Unit.SHARE else duration(number)


def rests(figure: Figure) -> str:
    """What the figure rests on: `12 incidents`."""
    return cases(figure.count, figure.of)


def cases(count: int, of: str) -> str:
    """So many of them, `of` being their plural: `1 machine named`, `2 machines named`."""
    what, space, rest = of.partition(" ")
    return f"{count} {what.removesuffix('s') if count == 1 else what}{space}{rest}"


def duration(seconds: float) -> str:
    """A span to three digits or so: `0.4 s`, `14 s`, `11.2 min`, `3.5 h`, `2.1 d`."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
